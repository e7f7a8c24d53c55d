package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"weft/kind"
	"weft/resource"
)

// Origin is a part of a policy: a to item or a rule by its index, or the default.
type Origin struct {
	Policy resource.Key
	Part   int
}

// String reads as "MeshTimeout default/web[0]".
func (o Origin) String() string { return fmt.Sprintf("%s[%d]", o.Policy, o.Part) }

// DefaultPart is the name of the part of a policy about the proxy as a whole.
const DefaultPart = "default"

// PartName returns the name of the part in its policy: "to[0]", "rules[0]" or [DefaultPart]. list is the name of its
// list, or of the default.
func (o Origin) PartName(list string) string {
	if list == DefaultPart {
		return list
	}
	return fmt.Sprintf("%s[%d]", list, o.Part)
}

// Item reads as "MeshTimeout default/web to[0]". list is that of [Origin.PartName].
func (o Origin) Item(list string) string { return o.Policy.String() + " " + o.PartName(list) }

// Part is one conf of a policy and what it is about.
type Part struct {
	Policy *Policy
	Index  int
	To     *To   // of a to item, else nil
	Match  Match // of a rule, else the zero value
	Conf   any   // a pointer to the conf's struct
	// WholeProxy is true for the default of a policy: a conf about the proxy as a whole.
	WholeProxy bool
}

// Origin returns the place of the part.
func (p *Part) Origin() Origin { return Origin{p.Policy.Key, p.Index} }

// PartsOf returns the parts of a policy with the metadata, in the order in which they stand. A rule with several
// matches is a part for each.
func PartsOf(p *Policy, meta *resource.Meta, of kind.Parts) []Part {
	var parts []Part
	for i := range of.To {
		parts = append(parts, Part{Policy: p, Index: i, To: toOf(meta, &of.To[i].TargetRef), Conf: of.To[i].Conf})
	}
	for i, rule := range of.Rules {
		matches := rule.Matches
		if len(matches) == 0 {
			matches = []kind.RuleMatch{{}}
		}
		for _, m := range matches {
			parts = append(parts, Part{Policy: p, Index: i, Match: matchOf(m, meta), Conf: rule.Conf})
		}
	}
	if of.Default != nil {
		parts = append(parts, Part{Policy: p, Conf: of.Default, WholeProxy: true})
	}
	return parts
}

// Sort sorts parts of one kind of policy in ascending order: a later part overrides an earlier one.
func Sort(parts []Part) {
	slices.SortFunc(parts, func(a, b Part) int {
		return cmp.Or(compare(&a.Policy.Rank, &b.Policy.Rank, a.To.rank(), b.To.rank()), cmp.Compare(a.Index, b.Index))
	})
}

// ToKind is the kind of a to item's target, in the order of precedence.
type ToKind uint8

// The kinds of targets, from the least to the most specific.
const (
	toNothing ToKind = iota
	ToMesh
	ToMeshService
	ToMeshExternalService
	ToMeshMultiZoneService
	ToMeshHTTPRoute
)

// To is the target of a to item.
type To struct {
	Kind    ToKind
	Labels  map[string]string // labels of the destination or route
	Section string            // a port of the destination; empty: all ports
}

// toKinds are the kinds of the targets of to items. An unknown kind matches no destination.
var toKinds = map[string]ToKind{
	"Mesh": ToMesh, "MeshService": ToMeshService, "MeshExternalService": ToMeshExternalService,
	"MeshMultiZoneService": ToMeshMultiZoneService, "MeshHTTPRoute": ToMeshHTTPRoute,
}

func toOf(policy *resource.Meta, ref *kind.DestinationRef) *To {
	to := &To{Kind: toKinds[ref.Kind], Labels: ref.Labels, Section: ref.SectionName}
	if ref.Name != "" {
		to.Labels = named(policy, ref.Name, ref.Namespace)
		if to.Kind != ToMeshService {
			delete(to.Labels, resource.ZoneLabel) // a service of global has no zone
		}
	}
	return to
}

// TargetLabels returns the labels by which a target in a policy selects services. Those of a name include the zone of
// the policy.
func TargetLabels(policy *resource.Meta, ref *kind.DestinationRef) map[string]string {
	return toOf(policy, ref).Labels
}

// BackendLabels returns the labels by which a reference of a route to a backend selects services.
func BackendLabels(route *resource.Meta, ref *kind.RouteBackendRef) map[string]string {
	return TargetLabels(route, &kind.DestinationRef{Kind: ref.Kind, Name: ref.Name, Namespace: ref.Namespace,
		Labels: ref.Labels})
}

// RouteLabels returns the labels by which to items select a MeshHTTPRoute: its own, with the display name.
func RouteLabels(route *resource.Meta) map[string]string {
	labels := map[string]string{}
	maps.Copy(labels, route.Labels)
	labels[resource.DisplayName] = kind.DisplayNameOf(route)
	return labels
}

// named returns the labels by which the name of a target in a policy selects: the display name, the namespace, which is
// by default that of the policy, and the zone where the policy belongs to one.
func named(policy *resource.Meta, name, namespace string) map[string]string {
	labels := map[string]string{resource.DisplayName: name}
	if namespace = cmp.Or(namespace, policy.Label(resource.NamespaceLabel)); namespace != "" {
		labels[resource.NamespaceLabel] = namespace
	}
	if zone := policy.Label(resource.ZoneLabel); zone != "" && policy.Label(kind.OriginLabel) == "zone" {
		labels[resource.ZoneLabel] = zone
	}
	return labels
}

// rank is the place of the to item in the order of precedence. Only for a MeshService a section counts.
func (t *To) rank() uint8 {
	if t == nil {
		return 0
	}
	rank := uint8(t.Kind) << 1
	if t.Kind == ToMeshService && t.Section != "" {
		rank++
	}
	return rank
}

// Destination is a port of a service as to items match it.
type Destination struct {
	Kind   ToKind
	Labels map[string]string // with the display name
	// Sections are the names that a to item has for the port: its name, and its number where no other port has this
	// name.
	Sections []string
	Routes   []map[string]string // labels of the routes that a request takes; none: traffic without a route
}

// Matches reports whether the to item is about traffic to the destination.
func (t *To) Matches(d *Destination) bool {
	switch t.Kind {
	case ToMesh:
		return true
	case ToMeshHTTPRoute:
		return slices.ContainsFunc(d.Routes, func(route map[string]string) bool { return kind.Subset(t.Labels, route) })
	}
	return t.Kind == d.Kind && (t.Section == "" || slices.Contains(d.Sections, t.Section)) &&
		kind.Subset(t.Labels, d.Labels)
}

// Outbound returns the to items among sorted parts that are about traffic to a destination, still sorted.
func Outbound(parts []Part, d *Destination) []Part {
	var about []Part
	for _, part := range parts {
		if part.To != nil && part.To.Matches(d) {
			about = append(about, part)
		}
	}
	return about
}

// Match is one match of a rule; all its fields must hold. The zero value matches every caller.
type Match struct {
	ID  kind.IDPattern `json:"id,omitzero"`   // empty: any
	SNI string         `json:"sni,omitempty"` // empty: any
}

// AllCallers reports whether the match is without a condition.
func (m Match) AllCallers() bool { return m == Match{} }

// String reads as "spiffe://prod/web", "spiffe://prod/*", "spiffe://prod/web(/*)" or "every caller".
func (m Match) String() string {
	text := m.ID.String()
	switch {
	case m.AllCallers():
		return "every caller"
	case m.SNI == "":
		return text
	case text == "":
		return "SNI " + m.SNI
	}
	return text + " SNI " + m.SNI
}

func matchOf(m kind.RuleMatch, policy *resource.Meta) Match {
	var match Match
	if id := m.SpiffeID; id != nil {
		match.ID = id.Pattern(policy)
	}
	if m.SNI != nil {
		match.SNI = m.SNI.Value
	}
	return match
}

// Has reports whether a caller with SPIFFE IDs is one of the match; without any ID, whether every caller is.
func (m Match) Has(spiffeIDs []string) bool {
	if m.SNI != "" {
		return false
	}
	return m.ID == kind.IDPattern{} || slices.ContainsFunc(spiffeIDs, m.ID.Has)
}

// covers reports whether each caller that the other match matches is a caller of this one.
func (m Match) covers(other Match) bool {
	all := kind.IDPattern{}
	return (m.SNI == "" || m.SNI == other.SNI) && (m.ID == all || other.ID != all && m.ID.Covers(other.ID))
}

// specificity is greater for the match that decides: an exact SPIFFE ID before a prefix, a longer prefix before a
// shorter one, a prefix before an SNI alone, this before no match, and of each the match with an SNI before the one
// without.
func (m Match) specificity() int {
	level, length := 0, 0
	switch {
	case m.ID.IsPrefix():
		level, length = 2, len(m.ID.Value())
	case m.ID.Exact != "":
		level = 4
	}
	if m.SNI != "" {
		level++
	}
	return level<<32 + length
}

// Matched has the effective parts of the callers that one match selects.
type Matched struct {
	Match Match
	Parts []Part // ascending: a later one overrides
}

// PartsOfPlace returns the parts of rules about the callers of one place, with matches by SPIFFE ID alone: of an
// inbound, without SNIs, or of a chain of a zone egress with its SNIs. They keep the order of the sorted parts, and
// parts with an SNI follow the others with the same SPIFFE ID.
func PartsOfPlace(parts []Part, snis []string) []Part {
	var at []Part
	for _, part := range parts {
		if part.To == nil && (part.Match.SNI == "" || slices.Contains(snis, part.Match.SNI)) {
			at = append(at, part)
		}
	}
	slices.SortStableFunc(at, func(a, b Part) int {
		return cmp.Compare(a.Match.specificity(), b.Match.specificity())
	})
	for i := range at {
		at[i].Match.SNI = ""
	}
	return at
}

// RulesAt returns the rules of the policies that a proxy has about the callers of one place; see [PartsOfPlace]. The
// section may be several, joined with "+", where they share a listener. partsOf returns the parts of a policy.
func RulesAt(selected []Selected, partsOf func(resource.Key) []Part, section string, snis []string) []Part {
	var parts []Part
	for i := range selected {
		if of := &selected[i]; of.Inbound && of.AppliesTo(section) {
			parts = append(parts, partsOf(of.Key)...)
		}
	}
	parts = slices.DeleteFunc(parts, func(p Part) bool { return p.To != nil })
	Sort(parts)
	return PartsOfPlace(parts, snis)
}

// WholeProxyParts returns the confs of the policies that a proxy has about the proxy as a whole, in ascending order.
func WholeProxyParts(selected []Selected, partsOf func(resource.Key) []Part) []Part {
	var parts []Part
	for i := range selected {
		parts = append(parts, partsOf(selected[i].Key)...)
	}
	parts = slices.DeleteFunc(parts, func(p Part) bool { return !p.WholeProxy })
	Sort(parts)
	return parts
}

// Inbound returns the matches of the rules among sorted parts, the most specific first, each with all rules that cover
// it, once. The first match of a caller decides. A rule with several matches is one part for each of them.
func Inbound(parts []Part) []Matched {
	rules := slices.DeleteFunc(slices.Clone(parts), func(p Part) bool { return p.To != nil })
	slices.SortStableFunc(rules, func(a, b Part) int {
		return cmp.Compare(a.Match.specificity(), b.Match.specificity())
	})
	var matched []Matched
	seen := map[Match]bool{}
	for _, rule := range slices.Backward(rules) {
		if seen[rule.Match] {
			continue
		}
		seen[rule.Match] = true
		matched = append(matched, Matched{rule.Match, covering(rules, rule.Match)})
	}
	return matched
}

// covering returns the rules that cover a match. A rule with several such matches is the part of the most specific one.
func covering(rules []Part, match Match) []Part {
	var parts []Part
	seen := map[Origin]bool{}
	for _, p := range slices.Backward(rules) {
		if p.Match.covers(match) && !seen[p.Origin()] {
			seen[p.Origin()] = true
			parts = append(parts, p)
		}
	}
	slices.Reverse(parts)
	return parts
}
