package inspect

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"weft/internal/policy"
	"weft/internal/proxy"
	"weft/internal/service"
	"weft/internal/sni"
	"weft/internal/state"
	"weft/kind"
	"weft/resource"
)

// Reasons of the condition Applied. All but the first one mean that the policy has no effect.
const (
	Applies           = "Applied"
	ShadowPolicy      = "Shadow"
	NoProxySelected   = "NoProxySelected"
	NoSectionSelected = "NoSectionSelected"
	NoDestination     = "NoDestination"
	Overridden        = "Overridden"
	NotApplicable     = "NotApplicable"
	NothingMatched    = "NothingMatched"
	ModificationFails = "ModificationFails"
	LeftOut           = "LeftOut"
)

// PolicyEffect is what a policy does in the zone, or on global in all zones.
type PolicyEffect struct {
	Counts kind.PolicyCounts
	// Reason is why the policy has an effect or none, and Message is the same as text.
	Reason, Message string
	// Unresolved are the targets, sections and backends that do not exist.
	Unresolved []string
	// Warnings are the fields that have no effect anywhere, where others have, and a large number of proxy groups.
	Warnings []string
	// Unmatched are the modifications of a MeshProxyPatch that match nothing, or fail, as texts.
	Unmatched []string
	// Rejected are those of the failing modifications whose result Envoy would reject, as texts.
	Rejected []string
}

// PolicyEffects computes the effects of policies. Policies of a kind share one pass over the Dataplanes of their mesh.
// It is for the goroutine and the request of its [Reports].
type PolicyEffects struct {
	*Reports
	meshes map[string]*effectMesh
	passes map[proxy.PoliciesKey]*effectPass
	// modifiedBy are the results of Modifying.
	modifiedBy map[proxy.WholeKey][]Modified
}

// PolicyEffects returns the effects of the policies in the snapshot.
func (rs *Reports) PolicyEffects() *PolicyEffects {
	return &PolicyEffects{rs, map[string]*effectMesh{}, map[proxy.PoliciesKey]*effectPass{},
		map[proxy.WholeKey][]Modified{}}
}

// effectMesh is a mesh as its policies target it.
type effectMesh struct {
	dataplanes []*resource.Object[kind.Dataplane]
	proxies    []*policy.Proxy
	ports      []service.DestinationKey
	places     map[service.DestinationKey]int // of the ports
	protocols  []kind.Protocol                // of the ports
	external   []externalPort
	routes     []targetedRoute
	reach      effectReach
	routings   map[proxy.EffectiveKey]*proxy.Routing // nil: no policy routes the traffic
}

// targetedRoute is a MeshHTTPRoute as to items match it, with the ports that it addresses.
type targetedRoute struct {
	labels map[string]string
	ports  []service.DestinationKey
}

// externalPort is the port of an external service at zone egresses.
type externalPort struct {
	snis     []string
	protocol kind.Protocol
}

func (e *PolicyEffects) mesh(name string) *effectMesh {
	if known := e.meshes[name]; known != nil {
		return known
	}
	m := &effectMesh{places: map[service.DestinationKey]int{}, routings: map[proxy.EffectiveKey]*proxy.Routing{}}
	e.meshes[name] = m
	for dp := range e.State.Tables.Dataplanes.RowsAfter(e.Snapshot, state.MeshKey(name), "") {
		p := e.State.Proxies.Selectable.Get(e.r, state.ProxyKey{Mesh: name, Name: dp.Name})
		m.dataplanes, m.proxies = append(m.dataplanes, dp), append(m.proxies, p)
	}
	for _, of := range e.State.Services.Destinations.Get(e.r, name) {
		for _, port := range e.State.Services.Ports.Get(e.r, of) {
			m.places[of.WithPort(port)] = len(m.ports)
			m.ports = append(m.ports, of.WithPort(port))
			m.protocols = append(m.protocols, e.State.Services.ProtocolOf(e.r, of.WithPort(port)))
		}
	}
	for o := range e.State.Tables.ResourcesAfter(e.Snapshot, kind.MeshHTTPRoutes.Name, name, "") {
		route := targetedRoute{labels: policy.RouteLabels(o.Envelope())}
		for _, part := range e.parts(o.Key()) {
			route.ports = append(route.ports, e.State.Services.TargetedBy(e.r, name, part.To)...)
		}
		m.routes = append(m.routes, route)
	}
	for o := range e.State.Tables.ExternalServices.RowsAfter(e.Snapshot, state.MeshKey(name), "") {
		m.external = append(m.external, externalPort{sni.InAllFormats(sni.PortOf(o, o.Spec.Match.Port)),
			o.Spec.Match.Protocol})
	}
	m.reach = e.reach(name, m)
	return m
}

func (e *PolicyEffects) parts(of resource.Key) []policy.Part {
	return e.State.Tables.PolicyRows[of.Kind].Parts(e.r, of.Mesh, of.Name)
}

// effectPass is the selections of the policies of a kind in a mesh.
type effectPass struct {
	key        proxy.PoliciesKey
	mesh       *effectMesh
	selections []policy.Selection
	of         map[resource.Key][]int // the places of a policy's selections
	results    []*effectResult        // by selection; nil: not computed yet
	reached    [][]reached            // by selection, the ports that its proxies reach; nil: not computed yet
	zones      *zonePass              // nil: not computed yet
	merged     map[string]policy.Merged
	numbers    map[partKey]uint64
	targeted   map[policy.Origin]*partTargets
}

// partKey identifies a part. The items of to and the rules of a policy are numbered alike.
type partKey struct {
	policy.Origin
	to bool
}

// number returns a number that no other part has.
func (p *effectPass) number(part *policy.Part) uint64 {
	of := partKey{part.Origin(), part.To != nil}
	n, ok := p.numbers[of]
	if !ok {
		n = uint64(len(p.numbers))
		p.numbers[of] = n
	}
	return n
}

// partTargets are the ports of a mesh that a to item is about, by their places. An item about a route has none.
type partTargets struct {
	ports []bool
}

// targets returns the ports that a to item is about.
func (e *PolicyEffects) targets(pass *effectPass, part *policy.Part) *partTargets {
	if known := pass.targeted[part.Origin()]; known != nil {
		return known
	}
	t := &partTargets{make([]bool, len(pass.mesh.ports))}
	pass.targeted[part.Origin()] = t
	for i, port := range pass.mesh.ports {
		d := e.State.Services.Targeted.Get(e.r, port)
		t.ports[i] = d != nil && part.To.Matches(d)
	}
	return t
}

func (e *PolicyEffects) pass(key proxy.PoliciesKey) *effectPass {
	if known := e.passes[key]; known != nil {
		return known
	}
	m := e.mesh(key.Mesh)
	p := &effectPass{key: key, mesh: m, of: map[resource.Key][]int{}, merged: map[string]policy.Merged{},
		numbers: map[partKey]uint64{}, targeted: map[policy.Origin]*partTargets{}}
	e.passes[key] = p
	p.selections = e.State.Proxies.Policies.Get(e.r, key).Tally(m.proxies)
	p.results, p.reached = make([]*effectResult, len(p.selections)), make([][]reached, len(p.selections))
	for i := range p.selections {
		for _, selected := range p.selections[i].Policies {
			p.of[selected.Key] = append(p.of[selected.Key], i)
		}
	}
	return p
}

// EffectOf returns the effect of a policy.
func (e *PolicyEffects) EffectOf(o resource.Any) *PolicyEffect {
	p, own := e.begin(o)
	if p.effect.Reason != "" {
		return &p.effect
	}
	p.judge(own)
	if warning := e.State.Proxies.AffinityWarning(e.r, p.key); warning != "" {
		p.effect.Warnings = append(p.effect.Warnings, warning)
	}
	return &p.effect
}

// Targets returns the part of the effect of a policy that costs little, since it merges no policies: the counts, what
// is unresolved, and a reason where no proxy is selected or the policy is a shadow.
func (e *PolicyEffects) Targets(o resource.Any) *PolicyEffect {
	p, _ := e.begin(o)
	if p.effect.Reason == "" && p.effect.Counts.Proxies == 0 {
		p.selectsNone()
	}
	return &p.effect
}

// begin returns the computation of an effect up to its counts, and the parts of the policy. The effect has a reason
// where it is known already that the policy has none.
func (e *PolicyEffects) begin(o resource.Any) (*policyEffect, []policy.Part) {
	key, meta := o.Key(), o.Envelope()
	parts := kind.ByName(key.Kind).(kind.Policy).Parts(o)
	p := &policyEffect{PolicyEffects: e, key: key, target: policy.TargetOf(parts.TargetRef),
		pass:  e.pass(proxy.PoliciesKey{Kind: key.Kind, Mesh: key.Mesh}),
		rules: len(parts.Rules) > 0, whole: parts.Default != nil}
	p.effect.Unresolved = e.State.Proxies.RouteProblems(e.r, key)
	own := policy.PartsOf(policy.New(key, meta, p.target), meta, parts)
	p.items(own)
	if policy.Shadow(meta) {
		p.without(ShadowPolicy, "the label %s is shadow: `weft diff --shadow` shows the effect that it would have",
			policy.EffectLabel)
		return p, own
	}
	if reason := e.State.Proxies.CostReason(e.r, key); reason != "" {
		p.without(kind.CostTooHigh, "it is left out: %s", reason)
		return p, own
	}
	p.count()
	return p, own
}

// Status returns the status of a policy: the stored condition Accepted, and the effect of the policy.
func (e *PolicyEffects) Status(o resource.Any) *kind.PolicyStatus {
	effect := e.EffectOf(o)
	accepted := kind.Accepted
	for _, rejected := range append(effect.rejectedResults(), e.AcceptedConditions(o)...) {
		accepted = rejected
	}
	refs := kind.Condition{Type: kind.ResolvedRefsCondition, Status: "True", Reason: "ResolvedRefs",
		Message: "each target, section and backend exists"}
	if len(effect.Unresolved) > 0 {
		refs.Status, refs.Reason, refs.Message = "False", "RefNotFound", someProblems(effect.Unresolved)
	}
	applied := kind.Condition{Type: kind.AppliedCondition, Status: "True", Reason: effect.Reason,
		Message: effect.Message}
	if effect.Reason != Applies {
		applied.Status = "False"
	}
	return &kind.PolicyStatus{Conditions: []kind.Condition{accepted, refs, applied}, Applied: &effect.Counts,
		Warnings: append(effect.Warnings, effect.Unmatched...)}
}

// rejectedResults returns the condition Accepted of a MeshProxyPatch whose result Envoy would reject; none of others.
func (e *PolicyEffect) rejectedResults() []kind.Condition {
	if len(e.Rejected) == 0 {
		return nil
	}
	return []kind.Condition{{Type: kind.AcceptedCondition, Status: "False", Reason: kind.InvalidResult,
		Message: someProblems(e.Rejected)}}
}

// AcceptedConditions returns the condition Accepted of a policy where it is False; none where it is True. That of
// proxies, which reject the configuration, is the last one.
func (e *PolicyEffects) AcceptedConditions(o resource.Any) []kind.Condition {
	var all []kind.Condition
	text := excessText(o)
	if reason := e.State.Proxies.CostReason(e.r, o.Key()); reason != "" {
		text = "is left out: " + reason
	}
	if text != "" {
		all = append(all, kind.Condition{Type: kind.AcceptedCondition, Status: "False", Reason: kind.CostTooHigh,
			Message: text})
	}
	of := o.Key()
	if stored, ok := e.State.Tables.PolicyRows[of.Kind].Statuses.Find(e.r, of.Mesh, of.Name); ok {
		all = append(all, stored.Spec.Conditions...)
	}
	return slices.DeleteFunc(all, func(c kind.Condition) bool {
		return c.Type != kind.AcceptedCondition || c.Status != "False"
	})
}

// excessText lists the first values of a policy beyond their bounds; empty where it has none.
func excessText(o resource.Any) string {
	var texts []string
	for excess := range kind.Excesses(o) {
		texts = append(texts, excess.String())
	}
	return someProblems(texts)
}

// someProblems lists the first problems.
func someProblems(problems []string) string {
	const shown = 10
	text := strings.Join(problems[:min(len(problems), shown)], "; ")
	if more := len(problems) - shown; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

// policyEffect is the computation of one effect.
type policyEffect struct {
	*PolicyEffects
	key    resource.Key
	target policy.Target
	pass   *effectPass
	ports  map[service.DestinationKey]bool // that to items are about
	about  []itemPorts
	rules  bool // whether it has rules
	whole  bool // whether it has a conf about the whole proxy
	effect PolicyEffect
}

func (p *policyEffect) without(reason, message string, args ...any) {
	p.effect.Reason, p.effect.Message = reason, fmt.Sprintf(message, args...)
}

// itemPorts are the ports that a to item is about.
type itemPorts struct {
	item  int
	ports []service.DestinationKey
}

// items finds the destinations of the to items.
func (p *policyEffect) items(parts []policy.Part) {
	p.ports = map[service.DestinationKey]bool{}
	add := func(ports []service.DestinationKey) {
		of := &p.about[len(p.about)-1]
		of.ports = append(of.ports, ports...)
		for _, port := range ports {
			p.ports[port] = true
		}
	}
	for _, part := range parts {
		unresolved := ""
		p.about = append(p.about, itemPorts{item: part.Index})
		switch to := part.To; {
		case to == nil:
		case to.Kind == policy.ToMesh:
			add(p.pass.mesh.ports)
		case to.Kind == policy.ToMeshHTTPRoute:
			unresolved = "there is no MeshHTTPRoute " + service.ShownLabels(to.Labels)
			for _, route := range p.pass.mesh.routes {
				if kind.Subset(to.Labels, route.labels) {
					unresolved = ""
					add(route.ports)
				}
			}
		default:
			add(p.State.Services.TargetedBy(p.r, p.key.Mesh, to))
			unresolved = p.State.Services.UntargetedReason(p.r, p.key.Mesh, to)
		}
		if unresolved != "" {
			p.effect.Unresolved = append(p.effect.Unresolved,
				fmt.Sprintf("to[%d].targetRef: %s", part.Index, unresolved))
		}
	}
}

// count counts the selected proxies and sections, and the ports that the proxies reach.
func (p *policyEffect) count() {
	zones := map[string]bool{}
	counts := &p.effect.Counts
	for _, i := range p.pass.of[p.key] {
		s := &p.pass.selections[i]
		counts.Proxies += len(s.Proxies)
		selected := s.Policies[slices.IndexFunc(s.Policies, func(of policy.Selected) bool { return of.Key == p.key })]
		for _, n := range s.Proxies {
			has := p.pass.mesh.proxies[n]
			if p.rules && selected.Sections == nil {
				counts.Sections += len(has.Sections)
			} else if p.rules {
				counts.Sections += len(selected.Sections)
			}
			zones[has.Zone] = true
		}
	}
	counts.Routes = p.routes()
	if p.State.Tables.Zone == "" {
		counts.Zones = slices.Sorted(maps.Keys(zones))
	}
}

// judge finds whether the policy has an effect, and why.
func (p *policyEffect) judge(own []policy.Part) {
	counts := &p.effect.Counts
	switch {
	case counts.Proxies == 0:
		p.selectsNone()
	case !p.rules && !p.whole && counts.Routes == 0:
		if len(p.ports) == 0 {
			p.without(NoDestination, "no item of `to` selects a port of a service")
		} else {
			p.without(NoDestination, "no selected Dataplane reaches a port that an item of `to` selects (%d)",
				len(p.ports))
		}
	default:
		p.fields(own)
		p.modifies(own)
	}
}

// selectsNone states why no proxy is selected.
func (p *policyEffect) selectsNone() {
	if n := len(p.State.Tables.ExceptionsFrom(p.r, p.key)); n > 0 {
		p.without(LeftOut, "%s without it, since Envoy rejects it", countOf(n, "selected proxy runs",
			"selected proxies run"))
		return
	}
	whole := p.target
	whole.Section = ""
	had, stated := 0, 0
	for _, proxy := range p.pass.mesh.proxies {
		if _, all := whole.Selects(proxy); all {
			had++
		}
		if proxy.Stated == nil {
			continue
		}
		if sections, all := p.target.Selects(proxy.Stated); all || len(sections) > 0 {
			stated++
		}
	}
	t := &p.target
	switch {
	case stated > 0:
		p.without(NoProxySelected, "%s what it selects, without a voucher; `weft check` names the tokens to make",
			countOf(stated, "Dataplane states", "Dataplanes state"))
	case t.Section != "" && had > 0:
		p.without(NoSectionSelected, "%s, and none of them has a section %s", countOf(had, "Dataplane is selected",
			"Dataplanes are selected"), t.Section)
		p.effect.Unresolved = append(p.effect.Unresolved,
			"targetRef: no selected Dataplane has a section "+t.Section)
	case t.Name != "" && had == 0:
		p.without(NoProxySelected, "there is no Dataplane %s", t.Name)
		p.effect.Unresolved = append(p.effect.Unresolved, "targetRef: there is no Dataplane "+t.Name)
	default:
		p.without(NoProxySelected, "it selects none of the Dataplanes of the mesh (%d)", len(p.pass.mesh.proxies))
	}
}

// fields states which fields have an effect.
func (p *policyEffect) fields(own []policy.Part) {
	fields, results, snis := map[string]fieldEffect{}, []*effectResult{}, sniPolicies{}
	paths := p.paths(own)
	for _, result := range p.results() {
		results = append(results, result)
		for path, of := range result.fields[p.key] {
			fields[path] = fields[path].with(of)
		}
		for sni, decides := range result.snis[p.key] {
			snis.add(sni, decides)
		}
		if !snis.anyOverridden() &&
			!slices.ContainsFunc(paths, func(path string) bool { return !fields[path].applied }) {
			break // the other selections have no effect on the result
		}
	}
	p.unreached()
	counts, applied := &p.effect.Counts, 0
	for _, path := range slices.Sorted(maps.Keys(fields)) {
		if of := fields[path]; of.applied {
			applied++
		} else {
			p.effect.Warnings = append(p.effect.Warnings, path+": no effect: "+of.reason)
		}
	}
	p.effect.Warnings = append(p.effect.Warnings, snis.warnings()...)
	switch {
	case len(fields) == 0:
		p.without(Overridden, "other policies override each of its fields: %s", p.overriders(paths, results))
	case applied == 0:
		p.without(NotApplicable, "%s", strings.Join(p.effect.Warnings, "; "))
		p.effect.Warnings = nil
	default:
		text := []string{countOf(counts.Proxies, "proxy", "proxies")}
		if p.rules {
			text = append(text, countOf(counts.Sections, "section", "sections"))
		}
		if counts.Routes > 0 {
			text = append(text, countOf(counts.Routes, "route", "routes"))
		}
		p.without(Applies, "it configures %s", strings.Join(text, ", "))
	}
	if zones := counts.Zones; len(zones) > 0 {
		p.effect.Message += " (zones: " + strings.Join(zones, ", ") + ")"
	}
}

// results yields the results of the selections that have the policy, each computed when it is needed.
func (p *policyEffect) results() iter.Seq2[int, *effectResult] {
	return func(yield func(int, *effectResult) bool) {
		for _, i := range p.pass.of[p.key] {
			if !yield(i, p.result(p.pass, i)) {
				return
			}
		}
		if p.forwarded() != nil {
			yield(len(p.pass.selections), p.zoneResult(p.pass))
		}
	}
}

// unreached adds a warning for each to item about ports of which no selected proxy reaches one.
func (p *policyEffect) unreached() {
	all := p.reachedByAny()
	for _, of := range p.about {
		has := func(port service.DestinationKey) bool { return all[p.pass.mesh.places[port]] != 0 }
		if len(of.ports) > 0 && !slices.ContainsFunc(of.ports, has) {
			p.effect.Warnings = append(p.effect.Warnings, fmt.Sprintf(
				"to[%d]: no effect: no selected proxy reaches a port that it selects (%d)", of.item, len(of.ports)))
		}
	}
}

func countOf(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// paths returns the paths of the fields of parts.
func (p *policyEffect) paths(own []policy.Part) []string {
	var paths []string
	for path := range p.State.Tables.PolicyRows[p.key.Kind].Plan.Merge(own).Origins.All() {
		if field := path.Field(); !slices.Contains(paths, field) {
			paths = append(paths, field)
		}
	}
	return paths
}

// overriders lists the first policies that override the fields of some paths.
func (p *policyEffect) overriders(paths []string, results []*effectResult) string {
	const shown = 5
	set := map[string]bool{}
	for _, path := range paths {
		for _, result := range results {
			for by, fields := range result.fields {
				if _, sets := fields[path]; sets {
					set[by.String()] = true
				}
			}
		}
	}
	names := slices.Sorted(maps.Keys(set))
	text := strings.Join(names[:min(len(names), shown)], ", ")
	if more := len(names) - shown; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return cmp.Or(text, "none")
}
