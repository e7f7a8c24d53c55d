package check

import (
	"maps"
	"slices"
	"strings"

	"weft/internal/inspect"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// policyChecker is the pass over the policies.
type policyChecker struct {
	*checker
	snapshot *table.Snapshot
	effects  *inspect.PolicyEffects
}

func (s *Stage) policyChecker(snapshot *table.Snapshot, modifying inspect.Modifying) *policyChecker {
	reports := inspect.NewReports(s.State, snapshot)
	reports.Modifying = modifying
	return &policyChecker{s.checker(reports.Reader()), snapshot, reports.PolicyEffects()}
}

// policyChecks are the checks about the policies of a mesh.
var policyChecks = []func(l *policyChecker, mesh string){
	(*policyChecker).policies,
	(*policyChecker).fullOfPolicies,
}

func (l *policyChecker) run() {
	for mesh := range l.Tables.Meshes.All(l.snapshot) {
		for _, check := range policyChecks {
			check(l, mesh.Name)
		}
	}
}

// policies checks the policies of every kind: whether proxies accept them, and whether they have an effect. A zone
// checks those of global as far as it has proxies that they select: global knows the proxies of all zones. A mesh
// without proxies needs nothing.
func (l *policyChecker) policies(mesh string) {
	if !l.Tables.DataplanesBySelector.Any(l.r, state.MeshKey(mesh)) {
		return
	}
	for _, of := range kind.Policies() {
		for o := range l.Tables.ResourcesAfter(l.snapshot, of.Describe().Name, mesh, "") {
			l.policy(o)
		}
	}
}

// fullOfPolicies finds the namespaces of this zone that may not have another policy.
func (l *policyChecker) fullOfPolicies(mesh string) {
	if l.isGlobal() {
		return
	}
	namespaces := map[string]bool{}
	for _, of := range kind.Policies() {
		for o := range l.Tables.ResourcesAfter(l.snapshot, of.Describe().Name, mesh, "") {
			namespaces[o.Envelope().Label(kind.NamespaceLabel)] = true
		}
	}
	for _, namespace := range slices.Sorted(maps.Keys(namespaces)) {
		if reason := l.Tables.FullOfPolicies(l.r, mesh, namespace); reason != "" {
			l.found(namespaceFull, objectOf(kind.Meshes.Key("", mesh)), "a further policy is rejected: %s", reason)
		}
	}
}

func (l *policyChecker) policy(o resource.Any) {
	object, effect := objectOf(o.Key()), l.effects.EffectOf(o)
	for _, c := range l.effects.AcceptedConditions(o) {
		l.found(policyNotAccepted, object, "%s: %s", c.Reason, c.Message).cause = c.Reason
	}
	if rejected := effect.Rejected; len(rejected) > 0 {
		l.found(policyNotAccepted, object, "%s: %s", kind.InvalidResult,
			strings.Join(rejected[:min(len(rejected), 3)], "; "))
	}
	for _, warning := range kind.OpenPrefixes(o) {
		l.found(prefixWithinSegment, object, "%s", warning)
	}
	if graced, until := l.Proxies.GraceOfRoute(l.r, o.Key()); len(graced) > 0 {
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
			l.found(policyWithoutEffect, object, "%s: %s", effect.Reason, effect.Message).cause = effect.Reason
		}
	case inspect.ShadowPolicy, kind.CostTooHigh, inspect.LeftOut: // Accepted says why
	case inspect.NoProxySelected, inspect.NoSectionSelected:
		l.found(selectorMatchesNothing, object, "%s", effect.Message)
	default:
		problem := policyWithoutEffect
		if o.Key().Kind == kind.MeshTrafficPermissions.Name {
			problem = permissionWithoutEffect
		}
		l.found(problem, object, "%s: %s", effect.Reason, effect.Message).cause = effect.Reason
	}
}

// targets reports the targets, sections and backends of a policy that do not exist.
func (l *policyChecker) targets(object Object, effect *inspect.PolicyEffect) {
	if len(effect.Unresolved) > 0 {
		l.found(policyRefNotFound, object, "%s", strings.Join(effect.Unresolved[:min(len(effect.Unresolved), 3)], "; "))
	}
}

// written reports what needs no other policy about a policy that would be stored.
func (l *policyChecker) written(o resource.Any) {
	object, effect := objectOf(o.Key()), l.effects.Targets(o)
	l.targets(object, effect)
	if effect.Reason == kind.CostTooHigh {
		l.found(policyNotAccepted, object, "%s: %s", effect.Reason, effect.Message)
	}
	if effect.Reason == inspect.NoProxySelected || effect.Reason == inspect.NoSectionSelected {
		l.found(selectorMatchesNothing, object, "%s", effect.Message)
	}
}
