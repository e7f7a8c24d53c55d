package kind

import (
	"cmp"
	"slices"
	"time"

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
	SkipCreatingInitialPolicies []string `json:"skipCreatingInitialPolicies,omitempty" schema:"maxItems=64 maxLength=253"`
	// MeshServices is accepted with the mode Exclusive, which every mesh has, and is not stored.
	MeshServices *MeshServicesMode `json:"meshServices,omitempty" schema:"deprecated"`
}

// MeshServicesMode says how the services of a mesh are found.
type MeshServicesMode struct {
	Mode string `json:"mode,omitempty" schema:"required enum=Exclusive"` // by MeshServices alone
}

// MeshMTLS is the mutual TLS of a mesh.
type MeshMTLS struct {
	// EnabledBackend is the name of the one that signs; without it none does, and traffic is plain.
	EnabledBackend string `json:"enabledBackend,omitempty" schema:"maxLength=253"`
	// Backends are certificate authorities; all of them are believed.
	Backends []MTLSBackend `json:"backends,omitempty" schema:"maxItems=16"`
	// SkipValidation is whether a backend may be enabled whose authority can't be read yet.
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
	// DPCert is how the certificates of proxies are.
	DPCert *DPCert `json:"dpCert,omitempty"`
	// Conf is the authority.
	Conf *MTLSConf `json:"conf,omitempty"`
}

// LeafLife is how long a certificate of a proxy is valid.
func (b *MTLSBackend) LeafLife() time.Duration {
	if b.DPCert == nil || b.DPCert.Rotation == nil {
		return defaultExpiry
	}
	return lifeOr(b.DPCert.Rotation.Expiration, defaultExpiry)
}

// BuiltinCA is how the authority of a builtin backend is made: the bits of its RSA key and how long it is valid.
func (b *MTLSBackend) BuiltinCA() (bits int, life time.Duration) {
	ca := BuiltinCACert{}
	if b.Conf != nil && b.Conf.CACert != nil {
		ca = *b.Conf.CACert
	}
	return int(cmp.Or(ca.RSABits, defaultRSABits)), lifeOr(ca.Expiration, defaultCALife)
}

// Value is the value itself; empty where a Secret has it.
func (s *LegacyDataSource) Value() []byte {
	if len(s.Inline) > 0 {
		return s.Inline
	}
	return []byte(s.InlineString)
}

// lifeOr is a duration as it was written; d where it is left out.
func lifeOr(text string, d time.Duration) time.Duration {
	if parsed, err := ParseDuration(text); err == nil && text != "" {
		return parsed
	}
	return d
}

// Types of a [MTLSBackend].
const (
	BuiltinBackend  = "builtin"
	ProvidedBackend = "provided"
)

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
	Expiration string `json:"expiration,omitempty" schema:"pattern=duration default=24h"` // how long one is valid, 10s to 365d
}

// MTLSConf is the authority of a [MTLSBackend].
type MTLSConf struct {
	CACert *BuiltinCACert    `json:"caCert,omitempty"` // of a builtin one: how it is made
	Cert   *LegacyDataSource `json:"cert,omitempty"`   // of a provided one: its certificates, in PEM
	Key    *LegacyDataSource `json:"key,omitempty"`    // of a provided one: its private key, in PEM
}

// BuiltinCACert is how a builtin authority is made.
type BuiltinCACert struct {
	RSABits    uint32 `json:"RSAbits,omitempty" schema:"min=2048 max=8192 default=2048"`  // how many bits its key has
	Expiration string `json:"expiration,omitempty" schema:"pattern=duration default=10y"` // how long it is valid, 1h to 100y
}

// LegacyDataSource says where a value stands; it has exactly one of its fields.
type LegacyDataSource struct {
	Secret       string `json:"secret,omitempty" schema:"pattern=name"`          // the name of a Secret of the mesh
	Inline       []byte `json:"inline,omitempty" schema:"maxLength=65536"`       // the value; in YAML and JSON in base64
	InlineString string `json:"inlineString,omitempty" schema:"maxLength=65536"` // the value
}

// MeshRouting is how traffic leaves a zone.
type MeshRouting struct {
	// ZoneEgress is whether what goes to other zones goes through the zone's egresses.
	ZoneEgress bool `json:"zoneEgress,omitempty"`
	// LocalityAwareLoadBalancing is whether servers of the client's zone come first, which is always so.
	LocalityAwareLoadBalancing bool `json:"localityAwareLoadBalancing,omitempty"`
	// DefaultForbidMeshExternalServiceAccess is whether an external service that no MeshTrafficPermission reaches is
	// refused to everybody; by default it is open to the mesh.
	DefaultForbidMeshExternalServiceAccess bool `json:"defaultForbidMeshExternalServiceAccess,omitempty"`
}

// Membership says which Dataplanes may join a mesh. (Mesh Membership.)
type Membership struct {
	// Allowed are alternatives; without any, everybody may join.
	Allowed []MembershipRule `json:"allowed,omitzero" schema:"maxItems=256"`
	// Blocked are those that may not join, whoever allows them.
	Blocked []MembershipRule `json:"blocked,omitempty" schema:"maxItems=256"`
}

// MembershipRule matches Dataplanes: by tags or by where they are in Kubernetes.
type MembershipRule struct {
	// Tags must all be there, with these values; "*" is any value.
	Tags map[string]string `json:"tags,omitempty" schema:"maxProperties=64 maxLength=253"`
	// Kubernetes matches proxies of Kubernetes alone.
	Kubernetes *KubernetesMembers `json:"kubernetes,omitempty"`
}

// KubernetesMembers are the Dataplanes of some Pods.
type KubernetesMembers struct {
	Namespace *NamespaceMembers `json:"namespace,omitempty"`                  // of their namespace
	Pod       *PodMembers       `json:"pod,omitempty"`                        // of their Pod
	Zone      string            `json:"zone,omitempty" schema:"maxLength=63"` // their zone
}

// NamespaceMembers are the Dataplanes of a namespace, by its name or its labels.
type NamespaceMembers struct {
	Name   string            `json:"name,omitempty" schema:"maxLength=63"` // of the namespace
	Labels map[string]string `json:"labels,omitempty" schema:"labels"`     // of the namespace
}

// PodMembers are the Dataplanes of Pods that have labels.
type PodMembers struct {
	Labels map[string]string `json:"labels,omitempty" schema:"labels"` // of the Pod
}

// Meshes is the kind of [Mesh].
var Meshes = &resource.Kind[Mesh]{
	Info: resource.Info{
		Name: "Mesh", Plural: "meshes", ShortName: "m", Scope: resource.Global, Sync: resource.GlobalToZones, Flat: true,
		Replaced: map[string]string{
			"networking":  "has no meaning here; MeshPassthrough decides what may leave the mesh",
			"tracing":     "has no meaning here; use a MeshTrace",
			"logging":     "has no meaning here; use a MeshAccessLog",
			"metrics":     "has no meaning here; use a MeshMetric",
			"constraints": "has no meaning here; use dataplaneProxyMembership",

			"mtls.backends.conf.cert.file":        useASecret,
			"mtls.backends.conf.key.file":         useASecret,
			"mtls.backends.rootChain":             "has no meaning here; leave it out: nothing is asked for with a time limit",
			"mtls.backends.dpCert.requestTimeout": "has no meaning here; leave it out: nothing is asked for with a time limit",
		},
	},
	Default:  defaultMesh,
	Validate: validateMesh,
}

// defaultMesh leaves out the mode of MeshServices that every mesh has.
func defaultMesh(o *resource.Object[Mesh]) {
	if s := o.Spec.MeshServices; s != nil && s.Mode == "Exclusive" {
		o.Spec.MeshServices = nil
	}
}
