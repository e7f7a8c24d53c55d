package kind

import (
	"reflect"
	"strings"

	"weft/resource"
)

// Policy is a kind of policies: resources that say how the traffic of the selected proxies is treated.
type Policy interface {
	resource.Descriptor
	// Parts returns the parts of a resource of the kind.
	Parts(resource.Any) Parts
	// HasTo and HasRules report whether policies of the kind have items about sent traffic, and rules about received
	// traffic.
	HasTo() bool
	HasRules() bool
	// StatusKind returns the kind of their statuses.
	StatusKind() *resource.Kind[PolicyStatus]
	// Restricts reports whether policies of the kind restrict traffic: a proxy without one of them would allow more.
	Restricts() bool
	// Deprecations returns the deprecation warnings about a resource of the kind as its user wrote it.
	Deprecations(resource.Any) []string
	// Conf returns an empty conf. Confs merge by its type; see internal/policy.
	Conf() any
	// NoEffectReason returns why a field of an effective conf has no effect at a place; empty: it has one. The empty
	// field is the conf as a whole.
	NoEffectReason(conf any, field string, at *Place) string
	// OwnFields returns the paths of the fields of a conf that have a rule, but those that need a further policy.
	OwnFields(conf any) []string
	// Warnings returns the warnings about what a resource of the kind says, beside [UnusedFields].
	Warnings(resource.Any) []string
	// RulesAreJoined reports whether all rules that match a caller are joined by a function of the kind. Otherwise the
	// confs of the rules that match a caller are merged.
	RulesAreJoined() bool
	// AtZoneProxies reports whether zone proxies apply items about sent traffic, and confs about the whole proxy.
	AtZoneProxies() bool
	// FieldCombination returns the rule about fields that different policies may set; nil: there is none.
	FieldCombination() *Combination[any]
	// PortCosts returns what confs cost a proxy for each port that they are about; nil: nothing that has a bound.
	PortCosts() *PortCosts[any]
}

// MayBeLeftOut reports whether a kind is one of policies that a proxy whose Envoy rejects them may be without.
func MayBeLeftOut(of string) bool {
	p, ok := ByName(of).(Policy)
	return ok && !p.Restricts()
}

// IsRestrictive reports whether a kind is one of policies that restrict traffic.
func IsRestrictive(of string) bool {
	p, ok := ByName(of).(Policy)
	return ok && p.Restricts()
}

// PolicyStatus says what a policy does. All but the condition Accepted is computed when it is read.
type PolicyStatus struct {
	// Conditions are Accepted (False where a proxy's Envoy rejects the resulting configuration, where an item has no
	// effect because it contradicts the policies that it is merged with, or where a value is beyond the bound of what
	// proxies pay and proxies have the bound), ResolvedRefs (False where a target, a section
	// or a backend does not exist) and Applied (False where the policy has no effect, with the reason).
	Conditions []Condition `json:"conditions,omitempty"`
	// Applied counts what the policy configures.
	Applied *PolicyCounts `json:"applied,omitempty"`
	// Warnings are fields without effect, and values that may have another effect than is intended.
	Warnings []string `json:"warnings,omitempty"`
}

// PolicyCounts counts what a policy configures, on a global control plane in all zones.
type PolicyCounts struct {
	Proxies  int `json:"proxies"`  // the selected Dataplanes
	Sections int `json:"sections"` // the selected inbounds and zone proxy sections, for a policy with rules
	Routes   int `json:"routes"`   // the ports of services that the items of `to` select and a selected Dataplane reaches
	// Zones are the zones of the counted Dataplanes, on a global control plane.
	Zones []string `json:"zones,omitempty"`
}

// CostTooHigh is the reason of the condition Accepted of a policy with values beyond their [CostBound].
const CostTooHigh = "CostTooHigh"

// InvalidResult is the reason of the condition Accepted of a MeshProxyPatch whose result Envoy would reject.
const InvalidResult = "InvalidResult"

// Types of the conditions of a [PolicyStatus].
const (
	AcceptedCondition     = "Accepted"
	ResolvedRefsCondition = "ResolvedRefs"
	AppliedCondition      = "Applied"
)

// policyStatuses returns the kind of the statuses of a kind of policies.
func policyStatuses(of string) *resource.Kind[PolicyStatus] {
	return &resource.Kind[PolicyStatus]{
		Info: resource.Info{Name: of + "Status", Plural: strings.ToLower(of) + "statuses",
			Scope: resource.Mesh, ReadOnly: true, Hidden: true, StatusOf: of},
	}
}

// Parts are what a policy says to the proxies that it selects. Confs are pointers into the policy, which is shared.
type Parts struct {
	TargetRef *TargetRef // the selected proxies; nil: all proxies of the mesh
	To        []ToPart   // about the traffic that they send
	Rules     []RulePart // about the traffic that they receive
	Default   any        // the conf about the whole proxy; nil: none
}

// ToPart is a conf about traffic to the destinations that its target selects.
type ToPart struct {
	TargetRef DestinationRef
	Conf      any
}

// RulePart is a conf about the callers that match one of its matches; without matches, about all callers.
type RulePart struct {
	Matches []RuleMatch
	Conf    any
}

// PolicyKind is the kind of policies whose spec is an S and whose confs are a C.
type PolicyKind[S, C any] struct {
	resource.Kind[S]
	Split func(*S) Parts // with confs of the type *C
	// Combination is what FieldCombination returns. Optional.
	Combination *Combination[*C]
	Statuses    *resource.Kind[PolicyStatus]
	// JoinsRules is what RulesAreJoined returns.
	JoinsRules bool
	// Costs is what confs cost a proxy. Optional.
	Costs *PortCosts[*C]
	// Restrictive is what Restricts returns.
	Restrictive bool
	// Fields are the rules about fields that have no effect at some places. A field may have several.
	Fields []FieldRule[C]
	// ZoneProxies is what AtZoneProxies returns.
	ZoneProxies bool
	// Content returns the warnings about what a resource says. Optional.
	Content func(*S) []string
	// Older returns a deprecation warning for each older form of a field that Default rewrites. Optional.
	Older func(*S) []string
}

// Combination is a rule about fields of a conf, a pointer, that different policies may set, such as a minimum and a
// maximum. Each policy alone is valid.
type Combination[C any] struct {
	// Partial reports whether a conf sets some of the fields and leaves others to less specific policies. Without such
	// a conf, every merged conf is valid.
	Partial func(C) bool
	// Conflict returns why a merged conf is invalid; empty: it is valid.
	Conflict func(C) string
}

// Deprecations implements [Policy].
func (k *PolicyKind[S, C]) Deprecations(o resource.Any) []string {
	var warnings []string
	if target := k.Parts(o).TargetRef; target != nil {
		warnings = target.older()
	}
	if k.Older != nil {
		warnings = append(warnings, k.Older(&o.(*resource.Object[S]).Spec)...)
	}
	return warnings
}

// Prepare implements [resource.Descriptor].
func (k *PolicyKind[S, C]) Prepare(o resource.Any) resource.Problems {
	if target := k.Parts(o).TargetRef; target != nil {
		target.complete()
	}
	return k.Kind.Prepare(o)
}

// Parts implements [Policy].
func (k *PolicyKind[S, C]) Parts(o resource.Any) Parts { return k.Split(&o.(*resource.Object[S]).Spec) }

// HasTo implements [Policy].
func (k *PolicyKind[S, C]) HasTo() bool { return hasField[S]("To") }

// HasRules implements [Policy].
func (k *PolicyKind[S, C]) HasRules() bool { return hasField[S]("Rules") }

func hasField[S any](name string) bool {
	_, ok := reflect.TypeFor[S]().FieldByName(name)
	return ok
}

// Restricts implements [Policy].
func (k *PolicyKind[S, C]) Restricts() bool { return k.Restrictive }

// Warnings implements [Policy].
func (k *PolicyKind[S, C]) Warnings(o resource.Any) []string {
	if k.Content == nil {
		return nil
	}
	return k.Content(&o.(*resource.Object[S]).Spec)
}

// RulesAreJoined implements [Policy].
func (k *PolicyKind[S, C]) RulesAreJoined() bool { return k.JoinsRules }

// AtZoneProxies implements [Policy].
func (k *PolicyKind[S, C]) AtZoneProxies() bool { return k.ZoneProxies }

// StatusKind implements [Policy].
func (k *PolicyKind[S, C]) StatusKind() *resource.Kind[PolicyStatus] { return k.Statuses }

// FieldCombination implements [Policy].
func (k *PolicyKind[S, C]) FieldCombination() *Combination[any] {
	c := k.Combination
	if c == nil {
		return nil
	}
	return &Combination[any]{
		Partial:  func(conf any) bool { return c.Partial(conf.(*C)) },
		Conflict: func(conf any) string { return c.Conflict(conf.(*C)) },
	}
}

// PortCosts implements [Policy].
func (k *PolicyKind[S, C]) PortCosts() *PortCosts[any] {
	if k.Costs == nil {
		return nil
	}
	of := func(conf any) int64 { return k.Costs.Of(conf.(*C)) }
	return &PortCosts[any]{k.Costs.EachRoute, k.Costs.EachEndpoint, k.Costs.Unit, of, k.Costs.Most,
		k.Costs.Producer}
}

// Conf implements [Policy].
func (k *PolicyKind[S, C]) Conf() any { return new(C) }
