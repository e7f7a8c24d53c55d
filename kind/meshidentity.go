package kind

import "weft/resource"

// MeshIdentity gives the Dataplanes that it selects a SPIFFE ID and a certificate for it.
type MeshIdentity struct {
	Selector *IdentitySelector `json:"selector,omitempty"` // absent: selects nobody
	SpiffeID *SpiffeIDTemplate `json:"spiffeID,omitempty"`
	Provider IdentityProvider  `json:"provider"`
}

// IdentitySelector selects by Dataplane labels; the one with most labels wins, then the first name.
type IdentitySelector struct {
	Dataplane *LabelSelector `json:"dataplane,omitempty"`
}

// SpiffeIDTemplate are templates: of the trust domain over .Mesh and .Zone, of the path over .Workload
// and `label "key"` too.
type SpiffeIDTemplate struct {
	TrustDomain string `json:"trustDomain,omitempty"` // default "{{ .Mesh }}.{{ .Zone }}.mesh.local"
	Path        string `json:"path,omitempty"`        // default "/workload/{{ .Workload }}"
}

// Defaults of SpiffeIDTemplate.
const (
	DefaultTrustDomain = "{{ .Mesh }}.{{ .Zone }}.mesh.local"
	DefaultPath        = "/workload/{{ .Workload }}"
)

// IdentityProvider says who signs.
type IdentityProvider struct {
	Type    string           `json:"type"` // Bundled
	Bundled *BundledProvider `json:"bundled,omitempty"`
}

// BundledProvider is the control plane's own certificate authority.
type BundledProvider struct {
	MeshTrustCreation       string                 `json:"meshTrustCreation,omitempty"` // Enabled (default) or Disabled
	InsecureAllowSelfSigned *bool                  `json:"insecureAllowSelfSigned,omitempty"`
	Autogenerate            *Autogenerate          `json:"autogenerate,omitempty"`
	CertificateParameters   *CertificateParameters `json:"certificateParameters,omitempty"`
	CA                      *ProvidedCA            `json:"ca,omitempty"`
}

// LeafLife is how long a leaf is valid.
func (m *MeshIdentity) LeafLife() Duration {
	if b := m.Provider.Bundled; b != nil && b.CertificateParameters != nil && b.CertificateParameters.Expiry > 0 {
		return b.CertificateParameters.Expiry
	}
	return Duration(defaultExpiry)
}

// Autogenerate says whether the control plane makes the CA.
type Autogenerate struct {
	Enabled *bool `json:"enabled,omitempty"`
}

// CertificateParameters shape the leaves.
type CertificateParameters struct {
	Expiry Duration `json:"expiry,omitempty"` // default 24h
}

// ProvidedCA is a CA that the user brings.
type ProvidedCA struct {
	Certificate *DataSource `json:"certificate,omitempty"`
	PrivateKey  *DataSource `json:"privateKey,omitempty"`
}

// DataSource says where a secret value stands.
type DataSource struct {
	Type           string          `json:"type"` // Secret or InsecureInline; File and EnvVar need an operator's setting
	SecretRef      *SecretRef      `json:"secretRef,omitempty"`
	InsecureInline *InsecureInline `json:"insecureInline,omitempty"`
}

// SecretRef names a Secret of the same mesh.
type SecretRef struct {
	Kind string `json:"kind"` // Secret
	Name string `json:"name"`
}

// InsecureInline is a value in plain sight.
type InsecureInline struct {
	Value string `json:"value"`
}

// MeshIdentities is the kind of [MeshIdentity].
var MeshIdentities = &resource.Kind[MeshIdentity]{
	Info: resource.Info{
		Name: "MeshIdentity", Plural: "meshidentities", Scope: resource.Mesh,
		Replaced: map[string]string{
			"provider.spire":                         "is not served by this release; use the provider Bundled",
			"provider.bundled.ca.certificate.file":   "is not served by this release; use a Secret",
			"provider.bundled.ca.certificate.envVar": "is not served by this release; use a Secret",
			"provider.bundled.ca.privateKey.file":    "is not served by this release; use a Secret",
			"provider.bundled.ca.privateKey.envVar":  "is not served by this release; use a Secret",
		},
	},
	Default:  defaultMeshIdentity,
	Validate: validateMeshIdentity,
}

// MeshIdentityStatus is what the control plane knows of a MeshIdentity.
type MeshIdentityStatus struct {
	Conditions []Condition `json:"conditions,omitempty"`
}

// MeshIdentityStatuses is the kind of [MeshIdentityStatus].
var MeshIdentityStatuses = &resource.Kind[MeshIdentityStatus]{
	Info: resource.Info{Name: "MeshIdentityStatus", Plural: "meshidentitystatuses", Scope: resource.Mesh, ReadOnly: true, Hidden: true, StatusOf: "MeshIdentity"},
}
