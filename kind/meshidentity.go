package kind

import (
	"cmp"
	"time"

	"weft/resource"
)

// MeshIdentity gives the Dataplanes that it selects a SPIFFE ID and a certificate for it.
type MeshIdentity struct {
	// Selector selects Dataplanes; without one it selects none.
	Selector *IdentitySelector `json:"selector,omitempty"`
	// SpiffeID is the template of the SPIFFE IDs.
	SpiffeID *SpiffeIDTemplate `json:"spiffeID,omitempty"`
	// Provider is the issuer of the certificates.
	Provider IdentityProvider `json:"provider" schema:"required"`
}

// IdentitySelector selects Dataplanes by labels. Of several MeshIdentities, the one with the most labels wins, then the
// first by name.
type IdentitySelector struct {
	Dataplane *LabelSelector `json:"dataplane,omitempty"` // Dataplanes by their labels; {} is all of them
}

// SpiffeIDTemplate has the templates of trust domain and path.
type SpiffeIDTemplate struct {
	// TrustDomain is the trust domain; it may contain {{ .Mesh }} and {{ .Zone }}.
	TrustDomain string `json:"trustDomain,omitempty" schema:"maxLength=1024 default={{ .Mesh }}.{{ .Zone }}.mesh.local"`
	// Path is the path; it may also contain {{ .Workload }}, {{ label "NAME" }} and, for Pods, {{ .Namespace }} and
	// {{ .ServiceAccount }}. The workload is the label kuma.io/workload, else the tag kuma.io/service of the first
	// inbound, else the Dataplane's name. The default is /ns/{{ .Namespace }}/sa/{{ .ServiceAccount }} for Pods, and
	// /workload/{{ .Workload }} for machines.
	Path string `json:"path,omitempty" schema:"maxLength=2048"`
}

// Defaults of SpiffeIDTemplate.
const (
	DefaultTrustDomain = "{{ .Mesh }}.{{ .Zone }}.mesh.local"
	DefaultPath        = "/workload/{{ .Workload }}"
	DefaultPodPath     = "/ns/{{ .Namespace }}/sa/{{ .ServiceAccount }}"
)

// PathFor returns the template of the path for a Dataplane with some labels: the default depends on whether it is of a
// Pod.
func (m *MeshIdentity) PathFor(labels map[string]string) string {
	switch {
	case m.SpiffeID != nil && m.SpiffeID.Path != "":
		return m.SpiffeID.Path
	case labels[PodUIDLabel] != "":
		return DefaultPodPath
	}
	return DefaultPath
}

// IdentityProvider is the issuer of certificates.
type IdentityProvider struct {
	Type string `json:"type" schema:"required enum=Bundled|Spire"` // the type of the provider
	// parameters of the control plane as the issuer
	Bundled *BundledProvider `json:"bundled,omitempty"`
	Spire   *SpireProvider   `json:"spire,omitempty"` // parameters of SPIRE as the issuer
}

// SpireProvider is SPIRE: each proxy's Envoy requests its certificate and the trusted roots from the SPIRE agent of its
// machine. (Zone Egress Identity.)
type SpireProvider struct {
	Agent *SpireAgent `json:"agent,omitempty"` // the SPIRE agent of each machine
}

// SpireAgent is the address of the SPIRE agent of each machine.
type SpireAgent struct {
	// Timeout is the timeout for connecting to the agent.
	Timeout Duration `json:"timeout,omitempty" schema:"min=10ms max=1m default=1s"`
	// SocketPath is the agent's unix socket. Each zone has a default: /run/spire/agent.sock on machines, and on
	// Kubernetes the socket that the injector mounts, /run/spire/sockets/socket unless settings change it. The address
	// of a socket has room for 107 characters.
	SocketPath string `json:"socketPath,omitempty" schema:"maxLength=107"`
}

// BundledProvider is the control plane as the issuer.
type BundledProvider struct {
	// MeshTrustCreation is Enabled to write the root into a MeshTrust of the same name.
	MeshTrustCreation string `json:"meshTrustCreation,omitempty" schema:"enum=Enabled|Disabled default=Enabled"`
	// InsecureAllowSelfSigned is true to allow a self-signed CA; by default only a generated CA may be self-signed.
	InsecureAllowSelfSigned *bool `json:"insecureAllowSelfSigned,omitempty"`
	// Autogenerate is the setting for a CA that the control plane generates.
	Autogenerate *Autogenerate `json:"autogenerate,omitempty"`
	// CertificateParameters are the parameters of the certificates.
	CertificateParameters *CertificateParameters `json:"certificateParameters,omitempty"`
	// CA is your own CA.
	CA *ProvidedCA `json:"ca,omitempty"`
}

// Types of an [IdentityProvider].
const (
	Bundled = "Bundled"
	Spire   = "Spire"
)

// SpireSocket is the default socket of the SPIRE agent of a machine.
const SpireSocket = "/run/spire/agent.sock"

// defaultSpireTimeout is the default of [SpireAgent].
const defaultSpireTimeout = Duration(time.Second)

// SpireAgent returns the SPIRE agent, or false where the control plane signs. Without SocketPath, each zone has its own
// default.
func (m *MeshIdentity) SpireAgent() (SpireAgent, bool) {
	if m.Provider.Type != Spire {
		return SpireAgent{}, false
	}
	agent := SpireAgent{}
	if s := m.Provider.Spire; s != nil && s.Agent != nil {
		agent = *s.Agent
	}
	agent.Timeout = cmp.Or(agent.Timeout, defaultSpireTimeout)
	return agent, true
}

// CertificateLife returns the validity of a workload certificate.
func (m *MeshIdentity) CertificateLife() Duration {
	if b := m.Provider.Bundled; b != nil && b.CertificateParameters != nil && b.CertificateParameters.Expiry > 0 {
		return b.CertificateParameters.Expiry
	}
	return Duration(defaultExpiry)
}

// Autogenerate is the setting for a CA that the control plane generates.
type Autogenerate struct {
	Enabled *bool `json:"enabled,omitempty"` // true to generate the CA; the default where ca is absent
}

// CertificateParameters has the parameters of the certificates.
type CertificateParameters struct {
	Expiry Duration `json:"expiry,omitempty" schema:"min=10s max=365d default=24h"` // the validity of a certificate, 10s to 365d
}

// ProvidedCA is a CA that the user provides.
type ProvidedCA struct {
	// the certificate in PEM; the chain up to the root may follow
	Certificate *DataSource `json:"certificate,omitempty"`
	PrivateKey  *DataSource `json:"privateKey,omitempty"` // the private key in PEM
}

// MeshIdentities is the kind of [MeshIdentity].
var MeshIdentities = &resource.Kind[MeshIdentity]{
	Info: resource.Info{
		Name: "MeshIdentity", Plural: "meshidentities", ShortName: "mid", Scope: resource.Mesh,
		WrittenBy: resource.Operator,
		Sync:      resource.GlobalToZones | resource.ZoneToGlobal,
		Replaced: map[string]string{
			"provider.extension":                     "has no meaning here; use the provider Bundled or Spire",
			"provider.bundled.ca.certificate.file":   useASecret,
			"provider.bundled.ca.certificate.envVar": useASecret,
			"provider.bundled.ca.privateKey.file":    useASecret,
			"provider.bundled.ca.privateKey.envVar":  useASecret,
		},
	},
	Default:  defaultMeshIdentity,
	Validate: validateMeshIdentity,
}

// MeshIdentityStatus is the status of a MeshIdentity.
type MeshIdentityStatus struct {
	// Conditions are Ready (whether certificates are signed) and RotationConverged (False while a CA is being
	// replaced).
	Conditions []Condition `json:"conditions,omitempty"`
}

// MeshIdentityStatuses is the kind of [MeshIdentityStatus].
var MeshIdentityStatuses = &resource.Kind[MeshIdentityStatus]{
	Info: resource.Info{Name: "MeshIdentityStatus", Plural: "meshidentitystatuses", Scope: resource.Mesh,
		ReadOnly: true, Hidden: true, StatusOf: "MeshIdentity"},
}
