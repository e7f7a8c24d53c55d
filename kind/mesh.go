package kind

import (
	"cmp"
	"slices"
	"time"

	"weft/resource"
)

// Mesh is a set of workloads that may reach each other; no traffic crosses from one mesh into another. Without a
// MeshIdentity and without mtls, its traffic is plaintext.
type Mesh struct {
	// MTLS is the older form of mutual TLS. It applies to Dataplanes that no MeshIdentity selects.
	MTLS *MeshMTLS `json:"mtls,omitempty"`
	// Routing is the routing of traffic that leaves a zone.
	Routing *MeshRouting `json:"routing,omitempty"`
	// DataplaneProxyMembership is the rules that admit Dataplanes; by default all are admitted. (Mesh Membership.)
	DataplaneProxyMembership *Membership `json:"dataplaneProxyMembership,omitempty"`
	// UnvouchedMembers lets Dataplanes be members of services for a time although the tags, labels, name or address by
	// which a service selects them have no voucher. Policies and DataplaneProxyMembership select them likewise. By
	// default they are no members, and are not selected. With tags, a Pod also has a SPIFFE ID by a label of its own
	// without its namespace.
	UnvouchedMembers *UnvouchedMembers `json:"unvouchedMembers,omitempty"`
	// SkipCreatingInitialPolicies is a list of initial policies to omit, or "*". A new mesh of weft has no initial
	// policies, so the field has no effect.
	SkipCreatingInitialPolicies []string `json:"skipCreatingInitialPolicies,omitempty" schema:"maxItems=64 maxLength=253"`
	// MeshServices is accepted with the mode Exclusive, the mode of every mesh, and is not stored.
	MeshServices *MeshServicesMode `json:"meshServices,omitempty" schema:"deprecated"`
}

// UnvouchedMembers are the facts that count without a voucher, which is the token of the proxy, an operator, or the API
// server of Kubernetes. Where a service has vouched members, one without a voucher counts only with a SPIFFE ID that
// one of them has.
type UnvouchedMembers struct {
	Tags      bool `json:"tags,omitempty"`      // tags, labels and names that a proxy states
	Addresses bool `json:"addresses,omitempty"` // addresses that a proxy states and does not connect from
	// Until is when it ends, in RFC 3339: 2027-06-30T00:00:00Z.
	Until Time `json:"until,omitzero"`
}

// Exemption is the part of facts without a voucher that counts in a mesh now, for membership in services, policies and
// dataplaneProxyMembership.
type Exemption struct {
	Tags, Addresses bool
}

// ExemptionOf returns what a Mesh exempts. past reports whether a time has passed. A Mesh that an earlier release wrote
// exempts everything until the control plane that owns it has decided ([resource.Vouched]).
func ExemptionOf(o *resource.Object[Mesh], past func(time.Time) bool) Exemption {
	exempt := o.Spec.UnvouchedMembers
	switch {
	case !o.Vouched.Complete:
		return Exemption{Tags: true, Addresses: true}
	case exempt == nil || past(exempt.Until.Time):
		return Exemption{}
	}
	return Exemption{Tags: exempt.Tags, Addresses: exempt.Addresses}
}

// UnvouchedMembersTime is how long members without a voucher stay after the upgrade that asks for vouchers.
const UnvouchedMembersTime = 180 * 24 * time.Hour

// MeshServicesMode is the service discovery mode of a mesh.
type MeshServicesMode struct {
	Mode string `json:"mode,omitempty" schema:"required enum=Exclusive"` // Exclusive: services are MeshServices only
}

// MeshMTLS is the mutual TLS of a mesh.
type MeshMTLS struct {
	// EnabledBackend is the name of the backend that signs; without it no backend signs, and traffic is plaintext.
	EnabledBackend string `json:"enabledBackend,omitempty" schema:"maxLength=253"`
	// Backends are certificate authorities; all of them are trusted.
	Backends []MTLSBackend `json:"backends,omitempty" schema:"maxItems=16"`
	// SkipValidation is true to enable a backend whose CA cannot be read yet.
	SkipValidation bool `json:"skipValidation,omitempty"`
}

// Backend returns a backend by its name, or nil.
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

// SigningBackend returns the backend that signs, or nil.
func (m *MeshMTLS) SigningBackend() *MTLSBackend {
	if m == nil {
		return nil
	}
	return m.Backend(m.EnabledBackend)
}

// MTLSBackend is one CA of a mesh.
type MTLSBackend struct {
	Name string `json:"name" schema:"required pattern=name"` // unique in the mesh
	// Type is the source of the CA: builtin (the control plane generates it) or provided (the operator provides it).
	Type string `json:"type" schema:"required enum=builtin|provided"`
	// Mode is STRICT (mutual TLS only) or PERMISSIVE (plaintext connections too).
	Mode string `json:"mode,omitempty" schema:"enum=STRICT|PERMISSIVE default=STRICT"`
	// DPCert is the parameters of the proxies' certificates.
	DPCert *DPCert `json:"dpCert,omitempty"`
	// Conf is the CA.
	Conf *MTLSConf `json:"conf,omitempty"`
}

// CertificateLife returns the validity of a proxy's certificate.
func (b *MTLSBackend) CertificateLife() time.Duration {
	if b.DPCert == nil || b.DPCert.Rotation == nil {
		return defaultExpiry
	}
	return lifeOr(b.DPCert.Rotation.Expiration, defaultExpiry)
}

// BuiltinCA returns the parameters of a builtin CA: the bits of its RSA key and its validity.
func (b *MTLSBackend) BuiltinCA() (bits int, life time.Duration) {
	ca := BuiltinCACert{}
	if b.Conf != nil && b.Conf.CACert != nil {
		ca = *b.Conf.CACert
	}
	return int(cmp.Or(ca.RSABits, defaultRSABits)), lifeOr(ca.Expiration, defaultCALife)
}

// Value returns the inline value, or an empty one for a Secret.
func (s *LegacyDataSource) Value() []byte {
	if len(s.Inline) > 0 {
		return s.Inline
	}
	return []byte(s.InlineString)
}

// lifeOr returns a parsed duration, or d for an empty text.
func lifeOr(text string, d time.Duration) time.Duration {
	if parsed, err := resource.ParseDuration(text); err == nil && text != "" {
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

// DPCert has the parameters of the proxies' certificates.
type DPCert struct {
	Rotation *DPCertRotation `json:"rotation,omitempty"` // the rotation of certificates
}

// DPCertRotation has the parameters of certificate rotation.
type DPCertRotation struct {
	// the validity of a certificate, 10s to 365d
	Expiration string `json:"expiration,omitempty" schema:"pattern=duration min=10s max=365d default=24h"`
}

// MTLSConf is the CA of a [MTLSBackend].
type MTLSConf struct {
	CACert *BuiltinCACert    `json:"caCert,omitempty"` // parameters of a builtin CA
	Cert   *LegacyDataSource `json:"cert,omitempty"`   // certificates of a provided CA, in PEM
	Key    *LegacyDataSource `json:"key,omitempty"`    // private key of a provided CA, in PEM
}

// BuiltinCACert has the parameters of a builtin CA.
type BuiltinCACert struct {
	// the size of its RSA key in bits
	RSABits uint32 `json:"RSAbits,omitempty" schema:"min=2048 max=8192 default=2048"`
	// the validity of the CA, 1h to 100y
	Expiration string `json:"expiration,omitempty" schema:"pattern=duration min=1h max=100y default=10y"`
}

// LegacyDataSource is the source of a value; it has exactly one of its fields.
type LegacyDataSource struct {
	Secret       string `json:"secret,omitempty" schema:"pattern=name"`                 // the name of a Secret of the mesh
	Inline       []byte `json:"inline,omitempty" schema:"maxLength=65536 secret"`       // the value in base64
	InlineString string `json:"inlineString,omitempty" schema:"maxLength=65536 secret"` // the value
}

// MeshRouting is the routing of traffic that leaves a zone.
type MeshRouting struct {
	// ZoneEgress is true to send cross-zone traffic through the zone's egresses.
	ZoneEgress bool `json:"zoneEgress,omitempty"`
	// LocalityAwareLoadBalancing is accepted and has no effect: servers of the client's zone always come first.
	LocalityAwareLoadBalancing bool `json:"localityAwareLoadBalancing,omitempty"`
	// DefaultForbidMeshExternalServiceAccess is whether an external service that no MeshTrafficPermission reaches is
	// denied to all; by default it is open to the mesh.
	DefaultForbidMeshExternalServiceAccess bool `json:"defaultForbidMeshExternalServiceAccess,omitempty"`
}

// Membership has the rules that admit Dataplanes to a mesh. (Mesh Membership.)
type Membership struct {
	// Allowed are alternative rules; without any, every Dataplane is admitted.
	Allowed []MembershipRule `json:"allowed,omitzero" schema:"maxItems=256"`
	// Blocked are those that may not join, whatever Allowed has.
	Blocked []MembershipRule `json:"blocked,omitempty" schema:"maxItems=256"`
}

// MembershipRule matches Dataplanes by tags, or by their Kubernetes namespace and Pod.
type MembershipRule struct {
	// Tags are required tags with their values; "*" is any value.
	Tags map[string]string `json:"tags,omitempty" schema:"maxProperties=64 maxLength=253"`
	// Kubernetes is a match of proxies on Kubernetes; it matches no other proxy.
	Kubernetes *KubernetesMembers `json:"kubernetes,omitempty"`
}

// KubernetesMembers are the Dataplanes of some Pods.
type KubernetesMembers struct {
	Namespace *NamespaceMembers `json:"namespace,omitempty"`                  // the namespace of the Pod
	Pod       *PodMembers       `json:"pod,omitempty"`                        // the Pod
	Zone      string            `json:"zone,omitempty" schema:"pattern=mesh"` // the zone of the Pod
}

// NamespaceMembers are the Dataplanes of a namespace, by its name or its labels.
type NamespaceMembers struct {
	Name   string            `json:"name,omitempty" schema:"maxLength=63"` // of the namespace
	Labels map[string]string `json:"labels,omitempty" schema:"labels"`     // of the namespace
}

// PodMembers are the Dataplanes of Pods that have labels.
type PodMembers struct {
	Labels map[string]string `json:"labels,omitempty" schema:"required labels"` // of the Pod
}

// noMetricsYet is the problem of fields about metrics of proxies.
const noMetricsYet = "this release exposes no metrics of proxies, and lacks MeshMetric; leave it out"

// Meshes is the kind of [Mesh].
var Meshes = &resource.Kind[Mesh]{
	Info: resource.Info{
		Name: "Mesh", Plural: "meshes", ShortName: "m", Scope: resource.Global,
		WrittenBy: resource.Operator, Sync: resource.GlobalToZones,
		Flat: true,
		Replaced: map[string]string{
			"networking": "has no meaning here; use a MeshPassthrough of the mesh with the mode None for " +
				"passthrough: false",
			"tracing":     "has no effect: this release writes no traces, and lacks MeshTrace; leave it out",
			"logging":     "has no effect: this release writes no access logs, and lacks MeshAccessLog; leave it out",
			"metrics":     "has no effect: " + noMetricsYet,
			"constraints": "has no meaning here; use dataplaneProxyMembership",

			"mtls.backends.conf.cert.file": useASecret,
			"mtls.backends.conf.key.file":  useASecret,
			"mtls.backends.rootChain": "has no meaning here; leave it out: nothing is asked for with " +
				"a time limit",
			"mtls.backends.dpCert.requestTimeout": "has no meaning here; leave it out: nothing is asked for with " +
				"a time limit",
		},
	},
	Default:  defaultMesh,
	Validate: validateMesh,
}

// defaultMesh removes the mode of MeshServices, which is the same for every mesh.
func defaultMesh(o *resource.Object[Mesh]) {
	if s := o.Spec.MeshServices; s != nil && s.Mode == "Exclusive" {
		o.Spec.MeshServices = nil
	}
}
