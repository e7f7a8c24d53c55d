package kind

import (
	"slices"

	"weft/resource"
)

// Mesh is a set of workloads that may know each other; nothing crosses from one mesh into another. Without a
// MeshIdentity, and without mtls, its traffic is plain.
type Mesh struct {
	// MTLS is the older form of mutual TLS: it names the Dataplanes that no MeshIdentity selects.
	MTLS *MeshMTLS `json:"mtls,omitempty"`
	// Routing is how traffic leaves a zone.
	Routing *MeshRouting `json:"routing,omitempty"`
	// DataplaneProxyMembership says which Dataplanes may join; by default all. (Mesh Membership.)
	DataplaneProxyMembership *Membership `json:"dataplaneProxyMembership,omitempty"`
	// SkipCreatingInitialPolicies names policies that a new mesh shall not begin with, or "*". No mesh
	// of ours begins with any, so that whatever it asks for holds.
	SkipCreatingInitialPolicies []string `json:"skipCreatingInitialPolicies,omitempty"`
}

// MeshMTLS is the mutual TLS of a mesh.
type MeshMTLS struct {
	// EnabledBackend names the backend that signs; empty: none does, and traffic is plain.
	EnabledBackend string `json:"enabledBackend,omitempty"`
	// Backends are certificate authorities; all of them are believed.
	Backends []MTLSBackend `json:"backends,omitempty"`
	// SkipValidation lets a backend be enabled whose authority can't be read yet.
	SkipValidation bool `json:"skipValidation,omitempty"`
}

// Backend answers a backend by its name; nil where there is none.
func (m *MeshMTLS) Backend(name string) *MTLSBackend {
	if m == nil || name == "" {
		return nil
	}
	i := slices.IndexFunc(m.Backends, func(b MTLSBackend) bool { return b.Name == name })
	if i < 0 {
		return nil
	}
	return &m.Backends[i]
}

// Enabled is the backend that signs; nil: none does.
func (m *MeshMTLS) Enabled() *MTLSBackend {
	if m == nil {
		return nil
	}
	return m.Backend(m.EnabledBackend)
}

// MTLSBackend is one certificate authority of a mesh.
type MTLSBackend struct {
	Name string `json:"name" schema:"required pattern=name"` // unique in the mesh
	// Type says whose authority it is: builtin is made by the control plane, provided is brought.
	Type string `json:"type" schema:"required enum=builtin|provided"`
	// Mode says whether a proxy takes connections without TLS too.
	Mode string `json:"mode,omitempty" schema:"enum=STRICT|PERMISSIVE default=STRICT"`
	// DPCert shapes the certificates of proxies.
	DPCert *DPCert `json:"dpCert,omitempty"`
	// Conf is the authority.
	Conf *MTLSConf `json:"conf,omitempty"`
}

// Modes of a [MTLSBackend].
const (
	StrictMTLS     = "STRICT"
	PermissiveMTLS = "PERMISSIVE"
)

// DPCert shapes the certificates of proxies.
type DPCert struct {
	Rotation *DPCertRotation `json:"rotation,omitempty"` // when they are replaced
}

// DPCertRotation says when certificates are replaced.
type DPCertRotation struct {
	Expiration string `json:"expiration,omitempty" schema:"default=24h"` // how long one is valid, such as 1d, 12h, 30m
}

// MTLSConf is the authority of a [MTLSBackend].
type MTLSConf struct {
	CACert *BuiltinCACert    `json:"caCert,omitempty"` // of a builtin one: how it is made
	Cert   *LegacyDataSource `json:"cert,omitempty"`   // of a provided one: its certificates, in PEM
	Key    *LegacyDataSource `json:"key,omitempty"`    // of a provided one: its private key, in PEM
}

// BuiltinCACert is how a builtin authority is made.
type BuiltinCACert struct {
	RSABits    uint32 `json:"RSAbits,omitempty" schema:"default=2048"`   // of its key
	Expiration string `json:"expiration,omitempty" schema:"default=10y"` // how long it is valid, such as 10y
}

// LegacyDataSource says where a value stands; exactly one of its fields is set.
type LegacyDataSource struct {
	Secret       string `json:"secret,omitempty" schema:"pattern=name"` // the name of a Secret of the mesh
	Inline       []byte `json:"inline,omitempty"`                       // the value, in base64
	InlineString string `json:"inlineString,omitempty"`                 // the value
	File         string `json:"file,omitempty"`                         // a file of the control plane's machine
}

// MeshRouting is how traffic leaves a zone.
type MeshRouting struct {
	// ZoneEgress sends what goes to other zones through the zone's egresses.
	ZoneEgress bool `json:"zoneEgress,omitempty"`
	// LocalityAwareLoadBalancing prefers servers of the client's zone, which is what always happens.
	LocalityAwareLoadBalancing bool `json:"localityAwareLoadBalancing,omitempty"`
	// DefaultForbidMeshExternalServiceAccess refuses external services to callers whom no MeshTrafficPermission
	// names; without it those whom no rule reaches are let in.
	DefaultForbidMeshExternalServiceAccess bool `json:"defaultForbidMeshExternalServiceAccess,omitempty"`
}

// Membership says which Dataplanes may join a mesh. (Mesh Membership.)
type Membership struct {
	// Allowed are alternatives; without any, everybody may join.
	Allowed []MembershipRule `json:"allowed,omitzero"`
	// Blocked may not join, whoever allows it.
	Blocked []MembershipRule `json:"blocked,omitempty"`
}

// MembershipRule matches Dataplanes: by tags or by where they are in Kubernetes.
type MembershipRule struct {
	// Tags must all be there, with these values; "*" is any value.
	Tags map[string]string `json:"tags,omitempty"`
	// Kubernetes matches proxies of Kubernetes alone.
	Kubernetes *KubernetesMembers `json:"kubernetes,omitempty"`
}

// KubernetesMembers are the Dataplanes of some Pods.
type KubernetesMembers struct {
	Namespace *NamespaceMembers `json:"namespace,omitempty"` // of their namespace
	Pod       *PodMembers       `json:"pod,omitempty"`       // of their Pod
	Zone      string            `json:"zone,omitempty"`      // their zone
}

// NamespaceMembers are the Dataplanes of a namespace, by its name or its labels.
type NamespaceMembers struct {
	Name   string            `json:"name,omitempty"`                   // of the namespace
	Labels map[string]string `json:"labels,omitempty" schema:"labels"` // of the namespace
}

// PodMembers are the Dataplanes of Pods that have labels.
type PodMembers struct {
	Labels map[string]string `json:"labels,omitempty" schema:"labels"` // of the Pod
}

// Meshes is the kind of [Mesh].
var Meshes = &resource.Kind[Mesh]{
	Info: resource.Info{
		Name: "Mesh", Plural: "meshes", Scope: resource.Global, Sync: resource.GlobalToZones, Flat: true,
		Replaced: map[string]string{
			"networking":   "has no meaning here; MeshPassthrough decides what may leave the mesh",
			"tracing":      "has no meaning here; use a MeshTrace",
			"logging":      "has no meaning here; use a MeshAccessLog",
			"metrics":      "has no meaning here; use a MeshMetric",
			"constraints":  "has no meaning here; use dataplaneProxyMembership",
			"meshServices": "has no meaning here; MeshServices are always used",
		},
	},
	Validate: validateMesh,
}

func validateMesh(o *resource.Object[Mesh]) resource.Problems {
	return topEnvelope(&o.Meta).problems
}
