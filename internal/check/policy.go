package check

import (
	"strings"

	"weft/internal/inspect"
	"weft/internal/state"
	"weft/kind"
	"weft/resource"
)

// policies checks the policies of every kind: whether proxies accept them, and whether they have an effect. A zone
// checks those of global as far as it has proxies that they select: global knows the proxies of all zones.
func (l *checker) policies(mesh string) {
	if len(l.State.Tables.DataplanesBySelector.List(l.r, state.MeshKey(mesh))) == 0 {
		return // a mesh without proxies needs nothing
	}
	for _, of := range kind.Policies() {
		for o := range l.State.Tables.ResourcesAfter(l.Snapshot, of.Describe().Name, mesh, "") {
			l.policy(o)
		}
	}
}

func (l *checker) policy(o resource.Any) {
	object, effect := objectOf(o.Key()), l.effects.EffectOf(o)
	for _, c := range l.effects.AcceptedConditions(o) {
		l.found(policyNotAccepted, object, "%s: %s", c.Reason, c.Message)
	}
	if rejected := effect.Rejected; len(rejected) > 0 {
		l.found(policyNotAccepted, object, "%s: %s", kind.InvalidResult,
			strings.Join(rejected[:min(len(rejected), 3)], "; "))
	}
	for _, warning := range kind.OpenPrefixes(o) {
		l.found(prefixWithinSegment, object, "%s", warning)
	}
	if graced, until := l.State.Proxies.GraceOfRoute(l.r, o.Key()); len(graced) > 0 {
		l.found(routeUngranted, object, "until %s only: %s", day(until),
			strings.Join(graced[:min(len(graced), 3)], "; "))
	}
	if effect.Counts.Proxies == 0 && l.everywhere(o.Envelope()) {
		return
	}
	l.targets(object, effect)
	switch effect.Reason {
	case inspect.Applies:
		if unmatched := effect.Unmatched; len(unmatched) > len(effect.Rejected) {
			l.found(policyWithoutEffect, object, "%s", strings.Join(unmatched[:min(len(unmatched), 3)], "; "))
		}
	case inspect.ModificationFails:
		if unmatched := effect.Unmatched; len(unmatched) > len(effect.Rejected) { // Accepted says the rejected ones
			l.found(policyWithoutEffect, object, "%s: %s", effect.Reason, effect.Message)
		}
	case inspect.ShadowPolicy, kind.CostTooHigh, inspect.LeftOut: // Accepted says why
	case inspect.NoProxySelected, inspect.NoSectionSelected:
		l.found(selectorMatchesNothing, object, "%s", effect.Message)
	default:
		problem := policyWithoutEffect
		if o.Key().Kind == kind.MeshTrafficPermissions.Name {
			problem = permissionWithoutEffect
		}
		l.found(problem, object, "%s: %s", effect.Reason, effect.Message)
	}
}

// targets reports the targets, sections and backends of a policy that do not exist.
func (l *checker) targets(object Object, effect *inspect.PolicyEffect) {
	if len(effect.Unresolved) > 0 {
		l.found(policyRefNotFound, object, "%s", strings.Join(effect.Unresolved[:min(len(effect.Unresolved), 3)], "; "))
	}
}
