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
}

// wholeProxies adds the fields about the proxies as a whole.
func (s *selectionFields) wholeProxies() {
	var parts []policy.Part
	for _, selected := range s.of.Policies {
		for _, part := range s.parts(selected.Key) {
			if part.WholeProxy {
				parts = append(parts, part)
			}
		}
	}
	if len(parts) == 0 {
		return
	}
	policy.Sort(parts)
	m, at := s.merge(parts), kind.Place{Secured: true, Transparent: slices.ContainsFunc(s.of.Proxies, func(n int) bool {
		return s.pass.mesh.dataplanes[n].Spec.Networking.TransparentProxying != nil
	})}
	for path, origin := range m.Origins.All() {
		s.result.add(origin, path.Field(), s.kind.NoEffectReason(m.Conf, path.Field(), &at))
	}
}

// received adds the fields about the callers of each section.
func (s *selectionFields) received() {
	for _, at := range s.places() {
		var parts []policy.Part
		for _, selected := range s.of.Policies {
			if !selected.AppliesTo(at.name) {
				continue
			}
			for _, part := range s.parts(selected.Key) {
				if part.To == nil && selected.Inbound {
					parts = append(parts, part)
				} else if part.To == nil && !part.WholeProxy {
					s.result.add(part.Origin(), "rules", s.kind.NoEffectReason(nil, "",
						&kind.Place{Direction: kind.Received, Role: at.role, Secured: s.isSecured(at)}))
				}
			}
		}
		policy.Sort(parts)
		for _, matched := range policy.Inbound(parts) {
			m := s.merge(matched.Parts)
			for path, origin := range m.Origins.All() {
				s.result.add(origin, path.Field(), s.unreceived(m.Conf, path.String(), matched.Match, at))
			}
		}
	}
}

// sectionKey identifies sections that receive traffic alike.
type sectionKey struct {
	name     string
	role     kind.Role
	protocol kind.Protocol // of an inbound
}

// sectionPlace is the sections of several proxies that receive traffic alike.
type sectionPlace struct {
	sectionKey
	proxies []int
	none    bool  // the proxies have no section
	secured *bool // whether one of the proxies has an identity; nil: not known yet
}

// places returns the sections of the proxies, by name. Without rules there are none.
func (s *selectionFields) places() []*sectionPlace {
	if !slices.ContainsFunc(s.of.Policies, func(of policy.Selected) bool { return s.hasRules(of.Key) }) {
		return nil
	}
	known := map[sectionKey]*sectionPlace{}
	add := func(n int, key sectionKey) {
		if known[key] == nil {
			known[key] = &sectionPlace{sectionKey: key}
		}
		known[key].proxies = append(known[key].proxies, n)
	}
	for _, n := range s.of.Proxies {
		networking := &s.pass.mesh.dataplanes[n].Spec.Networking
		for _, in := range networking.Inbound {
			if in = networking.Effective(in); in.State != kind.Ignored {
				add(n, sectionKey{cmp.Or(in.Name, fmt.Sprint(in.Port)), kind.Sidecar, in.Protocol})
			}
		}
		if z := networking.ZoneIngress; z != nil {
			add(n, sectionKey{cmp.Or(z.Name, fmt.Sprint(z.Port)), kind.ZoneIngressRole, kind.TCP})
		}
		if z := networking.ZoneEgress; z != nil {
			add(n, sectionKey{name: cmp.Or(z.Name, fmt.Sprint(z.Port)), role: kind.ZoneEgressRole})
		}
	}
	if len(known) == 0 {
		return []*sectionPlace{{proxies: s.of.Proxies, none: true}}
	}
	return slices.SortedFunc(maps.Values(known), func(a, b *sectionPlace) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.role, b.role), cmp.Compare(a.protocol, b.protocol))
	})
}

func (s *selectionFields) hasRules(of resource.Key) bool {
	return slices.ContainsFunc(s.parts(of), func(p policy.Part) bool { return p.To == nil && !p.WholeProxy })
}

// unreceived returns why a field about callers has no effect at a section; empty: it has one.
func (s *selectionFields) unreceived(conf any, path string, match policy.Match, at *sectionPlace) string {
	if at.none {
		return "the selected Dataplanes have no inbound and no section of a zone proxy"
	}
	byID := match.ID != kind.IDPattern{}
	here := kind.Place{Direction: kind.Received, Role: at.role, Protocol: at.protocol, ByID: byID,
		BySNI: match.SNI != "", Secured: !byID || s.isSecured(at)}
	if at.role != kind.ZoneEgressRole {
		return s.kind.NoEffectReason(conf, path, &here)
	}
	reason := "there is no MeshExternalService"
	if match.SNI != "" {
		reason += " with the SNI " + match.SNI
	}
	for _, port := range s.pass.mesh.external { // that the zone egress serves
		if match.SNI != "" && !slices.Contains(port.snis, match.SNI) {
			continue
		}
		here.Protocol = port.protocol
		if reason = s.kind.NoEffectReason(conf, path, &here); reason == "" {
			break
		}
	}
	return reason
}

// isSecured reports whether one of the proxies of a section has an identity.
func (s *selectionFields) isSecured(at *sectionPlace) bool {
	if at.secured == nil {
		secured := slices.ContainsFunc(at.proxies, func(n int) bool {
			dp := s.pass.mesh.dataplanes[n]
			return s.State.Identity.Identity.Get(s.r, state.ProxyKey{Mesh: dp.Mesh, Name: dp.Name}) != nil
		})
		at.secured = &secured
	}
	return *at.secured
}
