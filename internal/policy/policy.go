// Package policy selects, orders and merges policies of any kind. It is pure: all functions depend on their arguments
// alone, and results share memory with arguments, which must not change.
//
// A policy of a mesh selects proxies by its top-level targetRef ([Target]) and has confs in its to items, its rules or
// its default ([Part]). For one traffic of one proxy, the parts that apply are sorted in the order of precedence
// ([Sort]), and a later part overrides an earlier one field by field ([Plan.Merge]). The merged conf comes with the
// part that each field is from ([Origins]).
//
// The package knows no kind of policy: a kind describes its confs with Go types and the struct tag `merge`.
package policy

import (
	"cmp"

	"weft/kind"
	"weft/resource"
)

// Labels of a policy that change where it applies.
const (
	RoleLabel   = kind.PolicyRoleLabel
	EffectLabel = "kuma.io/effect"
)

// Values of [RoleLabel]: the relation between the owner of a policy and the proxies that it configures. Outside
// Kubernetes, policies have no role.
const (
	SystemRole        = "system"
	ProducerRole      = kind.ProducerRole
	ConsumerRole      = "consumer"
	WorkloadOwnerRole = "workload-owner"
)

// Policy is one policy without its confs, so that a changed conf leaves it equal.
type Policy struct {
	Key    resource.Key
	Target Target
	Rank   Rank
	// Outbound is true where the policy has to items: it configures the traffic that the selected proxies send.
	Outbound bool
	// Inbound is true where the policy has rules that merge: it configures the traffic that the selected proxies
	// receive.
	Inbound bool
	// WholeProxy is true where the policy has a conf about the selected proxies as a whole.
	WholeProxy bool
}

// New returns the policy with a key, metadata, a top-level targetRef and no to items. The canary selector of the
// metadata narrows the target.
func New(key resource.Key, meta *resource.Meta, target Target) *Policy {
	target.Canary = kind.CanaryOf(meta.Labels)
	return &Policy{Key: key, Target: target, Rank: rankOf(meta, &target)}
}

// reaches reports whether a policy applies in the zone and in the namespace of a proxy. Policies of a zone apply in it,
// those of a producer everywhere, and those of a consumer or a workload owner in their namespace.
func (p *Policy) reaches(proxy *Proxy) bool {
	r := &p.Rank
	otherZone := r.origin == ofZone && r.role != producer && r.zone != "" && proxy.Zone != "" && r.zone != proxy.Zone
	otherNamespace := (r.role == consumer || r.role == workloadOwner) &&
		r.namespace != proxy.Labels[resource.NamespaceLabel]
	return !otherZone && !otherNamespace
}

// Equal reports whether both policies select the same proxies for the same direction and have the same precedence.
func (p *Policy) Equal(other *Policy) bool {
	return p == other || p.Key == other.Key && p.Rank == other.Rank && p.Outbound == other.Outbound &&
		p.Inbound == other.Inbound && p.WholeProxy == other.WholeProxy && p.Target.equal(&other.Target)
}

// Shadow reports whether a policy has no effect, and shows only in a shadow configuration.
func Shadow(meta *resource.Meta) bool { return meta.Label(EffectLabel) == "shadow" }

// role is the relation between the owner of a policy and the proxies that it configures. Roles are ordered: a later one
// overrides an earlier one.
type role uint8

const (
	system        role = iota
	producer           // of a service, for all its clients
	consumer           // of services, for the clients of its namespace
	workloadOwner      // of the proxies of its namespace
)

// roleOf are the values of [RoleLabel]. The role of a policy without the label is system.
var roleOf = map[string]role{ProducerRole: producer, ConsumerRole: consumer, WorkloadOwnerRole: workloadOwner}

// origin is the control plane that owns a policy. A zone knows its proxies better than global.
type origin uint8

const (
	ofGlobal origin = iota
	unlabeled
	ofZone
)

// originOf are the values of [kind.OriginLabel].
var originOf = map[string]origin{"global": ofGlobal, "": unlabeled, "zone": ofZone}

// Rank is the place of a policy in the order of precedence. Ranks of two policies of a mesh and kind are never equal.
type Rank struct {
	target    uint8
	origin    origin
	role      role
	display   string // the name that the owner gave
	namespace string
	zone      string
	name      string
}

func rankOf(meta *resource.Meta, target *Target) Rank {
	return Rank{
		target: target.rank(), origin: originOf[meta.Label(kind.OriginLabel)], role: roleOf[meta.Label(RoleLabel)],
		display:   cmp.Or(meta.Label(resource.DisplayName), meta.Name),
		namespace: meta.Label(resource.NamespaceLabel), zone: meta.Label(resource.ZoneLabel), name: meta.Name,
	}
}

// compare is negative where a is overridden by b. The specificity of a to item stands between the role and the name; of
// two names the smaller one overrides.
func compare(a, b *Rank, toA, toB uint8) int {
	if order := cmp.Or(cmp.Compare(a.target, b.target), cmp.Compare(a.origin, b.origin), cmp.Compare(a.role, b.role),
		cmp.Compare(toA, toB)); order != 0 {
		return order
	}
	return cmp.Or(cmp.Compare(b.display, a.display), cmp.Compare(b.namespace, a.namespace), cmp.Compare(b.zone, a.zone),
		cmp.Compare(b.name, a.name))
}

// Compare is negative where b overrides a.
func Compare(a, b *Policy) int { return compare(&a.Rank, &b.Rank, 0, 0) }

// Owner is who pays for what policies cost proxies: operators, the zero value, or a namespace of Kubernetes, for the
// policies about its own proxies and for those of a producer about the clients of its services.
type Owner struct {
	Namespace string
	Producer  bool
}

// Owner returns the owner of the policy.
func (p *Policy) Owner() Owner {
	if p.Rank.role == system {
		return Owner{}
	}
	return Owner{p.Rank.namespace, p.Rank.role == producer}
}

// String reads as "of operators" or "of the namespace shop".
func (o Owner) String() string {
	if o.Namespace == "" {
		return "of operators"
	}
	return "of the namespace " + o.Namespace
}
