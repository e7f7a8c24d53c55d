package inspect

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"

	"weft/internal/policy"
	"weft/internal/state"
	"weft/kind"
	"weft/resource"
)

// fieldEffect is whether a field that no other policy overrides has an effect somewhere, and the reason where it has
// none.
type fieldEffect struct {
	applied bool
	reason  string
}

func (f fieldEffect) with(other fieldEffect) fieldEffect {
	return fieldEffect{f.applied || other.applied, bothReasons(f.reason, other.reason)}
}

// bothReasons adds a reason that holds in another place.
func bothReasons(reason, other string) string {
	switch {
	case reason == "":
		return other
	case strings.Contains(reason, other):
		return reason
	}
	return reason + "; in other places, " + other
}

// effectResult is the effect of the fields of policies on the proxies of a selection. Fields that are overridden for
// all of their traffic are absent.
type effectResult struct {
	fields map[resource.Key]map[string]fieldEffect
	snis   map[resource.Key]sniPolicies // of MeshTCPRoutes
}

func (r *effectResult) add(by policy.Origin, field, reason string) {
	if r.fields[by.Policy] == nil {
		r.fields[by.Policy] = map[string]fieldEffect{}
	}
	r.fields[by.Policy][field] = r.fields[by.Policy][field].with(fieldEffect{reason == "", reason})
}

// result returns the effect of the fields of the policies of a selection.
func (e *PolicyEffects) result(pass *effectPass, i int) *effectResult {
	if pass.results[i] != nil {
		return pass.results[i]
	}
	s := newSelectionFields(e, pass, &pass.selections[i], e.reachedIn(pass, i))
	s.reach = pass.mesh.reach.ofProxies(s.of.Proxies)
	pass.results[i] = s.result
	s.sent()
	s.received()
	s.wholeProxies()
	return s.result
}

// selectionFields is the computation of an [effectResult].
type selectionFields struct {
	*PolicyEffects
	kind    kind.Policy
	pass    *effectPass
	of      *policy.Selection
	reached []reached // the ports of the mesh
	result  *effectResult
	// reach are the places of what the Dataplanes reach as clients; none for ZoneIngresses and ZoneEgresses.
	reach []int
}

func newSelectionFields(e *PolicyEffects, pass *effectPass, of *policy.Selection, ports []reached) *selectionFields {
	return &selectionFields{PolicyEffects: e, kind: kind.ByName(pass.key.Kind).(kind.Policy), pass: pass, of: of,
		reached: ports,
		result:  &effectResult{map[resource.Key]map[string]fieldEffect{}, map[resource.Key]sniPolicies{}}}
}

// merge merges parts, each list of parts once.
func (s *selectionFields) merge(parts []policy.Part) policy.Merged {
	var key []byte
	for i := range parts {
		key = binary.AppendUvarint(key, s.pass.number(&parts[i]))
	}
	m, known := s.pass.merged[string(key)]
	if !known {
		m = s.State.Tables.PolicyRows[parts[0].Policy.Key.Kind].Plan.Merge(parts)
		s.pass.merged[string(key)] = m
	}
	return m
}

// sentAs adds the fields of the items about some traffic of a protocol.
func (s *selectionFields) sentAs(about []policy.Part, protocol kind.Protocol) {
	m := s.merge(about)
	toRoute := map[policy.Origin]bool{}
	for i := range about {
		toRoute[about[i].Origin()] = about[i].To.Kind == policy.ToMeshHTTPRoute
	}
	unused := s.snis(about, m, protocol)
	for path, origin := range m.Origins.All() {
		if rule, ok := path.ItemOf("rules"); ok && unused[rule] {
			continue
		}
		field := path.Field()
		at := kind.Place{Direction: kind.Sent, Protocol: protocol, Route: toRoute[origin]}
		s.result.add(origin, field, s.kind.NoEffectReason(m.Conf, field, &at))
	}
	s.rejected(about, m)
}

// rejected adds the fields of the parts that an effective conf is without.
func (s *selectionFields) rejected(parts []policy.Part, m policy.Merged) {
	for _, of := range m.Rejected {
		i := slices.IndexFunc(parts, func(p policy.Part) bool { return p.Origin() == of.Origin })
		s.addItem(parts[i], of.Reason)
	}
}

// wholeProxies adds the fields about the proxies as a whole.
func (s *selectionFields) wholeProxies() {
	parts := policy.WholeProxyParts(s.of.Policies, s.parts)
	if len(parts) == 0 {
		return
	}
	m, at := s.merge(parts), kind.Place{Secured: true, Transparent: slices.ContainsFunc(s.of.Proxies, func(n int) bool {
		return s.pass.mesh.dataplanes[n].Spec.Networking.TransparentProxying != nil
	})}
	for path, origin := range m.Origins.All() {
		s.result.add(origin, path.Field(), s.kind.NoEffectReason(m.Conf, path.Field(), &at))
	}
	s.rejected(parts, m)
}

// received adds the fields about the callers of each place where connections arrive.
func (s *selectionFields) received() {
	for _, at := range s.places() {
		for _, selected := range s.of.Policies {
			for _, part := range s.parts(selected.Key) {
				switch {
				case part.To != nil || part.WholeProxy || !selected.AppliesTo(at.section):
				case !selected.Inbound:
					s.result.add(part.Origin(), "rules", cmp.Or(at.emptyReason(), s.kind.NoEffectReason(nil, "",
						&kind.Place{Direction: kind.Received, Role: at.role, Secured: s.isSecured(at)})))
				case part.Match.SNI != "":
					if reason := s.unknownSNI(part.Match.SNI, at); reason != "" {
						s.addItem(part, reason)
					}
				}
			}
		}
		rules := policy.RulesAt(s.of.Policies, s.parts, at.section, strings.Split(at.snis, ","))
		for _, matched := range policy.Inbound(rules) {
			m := s.merge(matched.Parts)
			for path, origin := range m.Origins.All() {
				s.result.add(origin, path.Field(), s.unreceived(m.Conf, path.String(), matched.Match, at))
			}
			s.rejected(matched.Parts, m)
		}
	}
}

// placeKey identifies places that receive connections alike: listeners of inbounds, listeners of zone ingresses, and
// filter chains of zone egresses. It is that of [proxy.PlaceKey] for all proxies of a selection.
type placeKey struct {
	section  string // several, joined with "+", where they share a listener
	role     kind.Role
	protocol kind.Protocol
	snis     string // of a filter chain, those that a rule has; joined with ","
	unserved bool   // a zone egress without a MeshExternalService
}

// receivingPlace is a place of several proxies.
type receivingPlace struct {
	placeKey
	proxies []int
	none    bool  // the proxies have no section
	secured *bool // whether one of the proxies has an identity; nil: not known yet
}

// emptyReason returns why the proxies receive no connection at the place; empty: they may.
func (at *receivingPlace) emptyReason() string {
	switch {
	case at.none:
		return "the selected Dataplanes have no inbound and no section of a zone proxy"
	case at.unserved:
		return "there is no MeshExternalService"
	}
	return ""
}

// places returns the places of the proxies, by section. Without rules there are none.
func (s *selectionFields) places() []*receivingPlace {
	if !slices.ContainsFunc(s.of.Policies, func(of policy.Selected) bool { return s.hasRules(of.Key) }) {
		return nil
	}
	known, chains := map[placeKey]*receivingPlace{}, s.chains()
	add := func(n int, key placeKey) {
		if known[key] == nil {
			known[key] = &receivingPlace{placeKey: key}
		}
		known[key].proxies = append(known[key].proxies, n)
	}
	for _, n := range s.of.Proxies {
		networking := &s.pass.mesh.dataplanes[n].Spec.Networking
		for _, key := range inboundPlaces(networking) {
			add(n, key)
		}
		if z := networking.ZoneIngress; z != nil {
			section := cmp.Or(z.Name, fmt.Sprint(z.Port))
			add(n, placeKey{section: section, role: kind.ZoneIngressRole, protocol: kind.TCP})
		}
		if z := networking.ZoneEgress; z != nil {
			for _, chain := range chains {
				chain.section = cmp.Or(z.Name, fmt.Sprint(z.Port))
				add(n, chain)
			}
		}
	}
	if len(known) == 0 {
		return []*receivingPlace{{proxies: s.of.Proxies, none: true}}
	}
	return slices.SortedFunc(maps.Values(known), func(a, b *receivingPlace) int {
		return cmp.Or(cmp.Compare(a.section, b.section), cmp.Compare(a.role, b.role),
			cmp.Compare(a.protocol, b.protocol), cmp.Compare(a.snis, b.snis))
	})
}

// inboundPlaces returns the listeners of the inbounds of a Dataplane.
func inboundPlaces(networking *kind.Networking) []placeKey {
	var inbounds []kind.Inbound
	sections := map[string][]string{}
	for _, in := range networking.Inbound {
		if in = networking.Effective(in); in.State != kind.Ignored {
			inbounds = append(inbounds, in)
			at := in.Listener()
			sections[at] = append(sections[at], cmp.Or(in.Name, fmt.Sprint(in.Port)))
		}
	}
	var keys []placeKey
	for i := range inbounds {
		at := inbounds[i].Listener()
		if names := sections[at]; names != nil {
			slices.Sort(names)
			keys = append(keys, placeKey{section: strings.Join(slices.Compact(names), "+"),
				protocol: inbounds[i].Protocol})
			delete(sections, at)
		}
	}
	return keys
}

// chains returns the filter chains of a zone egress that differ by protocol or by SNIs of rules, without a section.
func (s *selectionFields) chains() []placeKey {
	ruled := map[string]bool{}
	for _, selected := range s.of.Policies {
		for _, part := range s.parts(selected.Key) {
			ruled[part.Match.SNI] = true
		}
	}
	var chains []placeKey
	for _, port := range s.pass.mesh.external {
		snis := slices.DeleteFunc(slices.Clone(port.snis), func(sni string) bool { return !ruled[sni] })
		key := placeKey{role: kind.ZoneEgressRole, protocol: port.protocol, snis: strings.Join(snis, ",")}
		if !slices.Contains(chains, key) {
			chains = append(chains, key)
		}
	}
	if len(chains) == 0 {
		return []placeKey{{role: kind.ZoneEgressRole, unserved: true}}
	}
	return chains
}

func (s *selectionFields) hasRules(of resource.Key) bool {
	return slices.ContainsFunc(s.parts(of), func(p policy.Part) bool { return p.To == nil && !p.WholeProxy })
}

// unreceived returns why a field about callers has no effect at a place; empty: it has one.
func (s *selectionFields) unreceived(conf any, path string, match policy.Match, at *receivingPlace) string {
	if reason := at.emptyReason(); reason != "" {
		return reason
	}
	byID := match.ID != kind.IDPattern{}
	here := kind.Place{Direction: kind.Received, Role: at.role, Protocol: at.protocol, ByID: byID,
		Secured: !byID || s.isSecured(at)}
	return s.kind.NoEffectReason(conf, path, &here)
}

// unknownSNI returns why a rule about an SNI is about no connection of the role of a place; empty: it may be about one.
func (s *selectionFields) unknownSNI(sni string, at *receivingPlace) string {
	if at.role != kind.ZoneEgressRole {
		return s.kind.NoEffectReason(nil, "", &kind.Place{Direction: kind.Received, Role: at.role, BySNI: true})
	}
	if slices.ContainsFunc(s.pass.mesh.external, func(p externalPort) bool { return slices.Contains(p.snis, sni) }) {
		return ""
	}
	return "there is no MeshExternalService with the SNI " + sni
}

// isSecured reports whether one of the proxies of a place has an identity.
func (s *selectionFields) isSecured(at *receivingPlace) bool {
	if at.secured == nil {
		secured := slices.ContainsFunc(at.proxies, func(n int) bool {
			dp := s.pass.mesh.dataplanes[n]
			return s.State.Identity.Identity.Get(s.r, state.ProxyKey{Mesh: dp.Mesh, Name: dp.Name}) != nil
		})
		at.secured = &secured
	}
	return *at.secured
}
