package kind

import (
	"cmp"
	"time"

	"weft/resource"
)

// MeshIdentity gives the Dataplanes that it selects a SPIFFE ID and a certificate for it.
type MeshIdentity struct {
	// Selector says which Dataplanes; without one it is nobody.
	Selector *IdentitySelector `json:"selector,omitempty"`
	// SpiffeID is what the names look like.
	SpiffeID *SpiffeIDTemplate `json:"spiffeID,omitempty"`
	// Provider is who signs.
	Provider IdentityProvider `json:"provider" schema:"required"`
}

// IdentitySelector selects by Dataplane labels; the one with most labels wins, then the first name.
type IdentitySelector struct {
	Dataplane *LabelSelector `json:"dataplane,omitempty"` // Dataplanes by their labels; {} is all of them
}

// SpiffeIDTemplate are templates: of the trust domain over .Mesh and .Zone, of the path over .Workload
// and `label "key"` too.
type SpiffeIDTemplate struct {
	// TrustDomain is one for all of them; {{ .Mesh }} and {{ .Zone }} stand for values in it.
	TrustDomain string `json:"trustDomain,omitempty" schema:"maxLength=1024 default={{ .Mesh }}.{{ .Zone }}.mesh.local"`
	// Path may have {{ .Workload }} and {{ label "NAME" }} too. The workload is the label kuma.io/workload,
	// else the tag kuma.io/service of the first inbound, else the Dataplane's name.
	Path string `json:"path,omitempty" schema:"maxLength=2048 default=/workload/{{ .Workload }}"`
}

// Defaults of SpiffeIDTemplate.
const (
	DefaultTrustDomain = "{{ .Mesh }}.{{ .Zone }}.mesh.local"
	DefaultPath        = "/workload/{{ .Workload }}"
)

// IdentityProvider says who signs.
type IdentityProvider struct {
	Type    string           `json:"type" schema:"required enum=Bundled|Spire"` // which of them
	Bundled *BundledProvider `json:"bundled,omitempty"`                         // the control plane itself
	Spire   *SpireProvider   `json:"spire,omitempty"`                           // SPIRE
}

// SpireProvider is SPIRE: each proxy's Envoy asks the SPIRE agent of its machine for its certificate and for whom
// to believe. (Zone Egress Identity.)
type SpireProvider struct {
	Agent *SpireAgent `json:"agent,omitempty"` // the one beside each proxy
}

// SpireAgent is how a proxy reaches the SPIRE agent of its machine.
type SpireAgent struct {
	// Timeout is how long a connection to it may take to be made.
	Timeout Duration `json:"timeout,omitempty" schema:"default=1s"`
	// SocketPath is where it listens.
	SocketPath string `json:"socketPath,omitempty" schema:"maxLength=108 default=/run/spire/agent.sock"`
}

// BundledProvider is the control plane's own certificate authority.
type BundledProvider struct {
	// MeshTrustCreation says whether the root is put into a MeshTrust of the same name.
	MeshTrustCreation string `json:"meshTrustCreation,omitempty" schema:"enum=Enabled|Disabled default=Enabled"`
	// InsecureAllowSelfSigned says whether the authority may be its own root; by default a generated one may.
	InsecureAllowSelfSigned *bool `json:"insecureAllowSelfSigned,omitempty"`
	// Autogenerate is for an authority that the control plane makes.
	Autogenerate *Autogenerate `json:"autogenerate,omitempty"`
	// CertificateParameters shape the certificates.
	CertificateParameters *CertificateParameters `json:"certificateParameters,omitempty"`
	// CA is an authority of your own.
	CA *ProvidedCA `json:"ca,omitempty"`
}

// Types of an [IdentityProvider].
const (
	Bundled = "Bundled"
	Spire   = "Spire"
)

// Defaults of [SpireAgent].
const (
	defaultSpireSocket  = "/run/spire/agent.sock"
	defaultSpireTimeout = Duration(time.Second)
)

// SpireAgent is the SPIRE agent that gives the certificates, with the defaults filled in; false: the control
// plane signs them.
func (m *MeshIdentity) SpireAgent() (SpireAgent, bool) {
	if m.Provider.Type != Spire {
		return SpireAgent{}, false
	}
	agent := SpireAgent{}
	if s := m.Provider.Spire; s != nil && s.Agent != nil {
		agent = *s.Agent
	}
	agent.SocketPath = cmp.Or(agent.SocketPath, defaultSpireSocket)
	agent.Timeout = cmp.Or(agent.Timeout, defaultSpireTimeout)
	return agent, true
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
	Enabled *bool `json:"enabled,omitempty"` // by default where there is no ca
}

// CertificateParameters shape the leaves.
type CertificateParameters struct {
	Expiry Duration `json:"expiry,omitempty" schema:"default=24h"` // how long one is valid, 10s to 365d
}

// ProvidedCA is a CA that the user brings.
type ProvidedCA struct {
	Certificate *DataSource `json:"certificate,omitempty"` // in PEM; those up to the root may follow
	PrivateKey  *DataSource `json:"privateKey,omitempty"`  // in PEM
}

// MeshIdentities is the kind of [MeshIdentity].
var MeshIdentities = &resource.Kind[MeshIdentity]{
	Info: resource.Info{
		Name: "MeshIdentity", Plural: "meshidentities", ShortName: "mid", Scope: resource.Mesh, Sync: resource.GlobalToZones | resource.ZoneToGlobal,
		Replaced: map[string]string{
			"provider.bundled.ca.certificate.file":   useASecret,
			"provider.bundled.ca.certificate.envVar": useASecret,
			"provider.bundled.ca.privateKey.file":    useASecret,
			"provider.bundled.ca.privateKey.envVar":  useASecret,
		},
	},
	Default:  defaultMeshIdentity,
	Validate: validateMeshIdentity,
}

// MeshIdentityStatus is what the control plane knows of a MeshIdentity.
type MeshIdentityStatus struct {
	// Conditions are Ready, whether certificates are signed, and RotationSettled, which is False while a CA is
	// being replaced.
	Conditions []Condition `json:"conditions,omitempty"`
}

// MeshIdentityStatuses is the kind of [MeshIdentityStatus].
var MeshIdentityStatuses = &resource.Kind[MeshIdentityStatus]{
	Info: resource.Info{Name: "MeshIdentityStatus", Plural: "meshidentitystatuses", Scope: resource.Mesh, ReadOnly: true, Hidden: true, StatusOf: "MeshIdentity"},
}
