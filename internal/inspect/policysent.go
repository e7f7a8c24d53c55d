package inspect

import (
	"encoding/binary"
	"fmt"
	"slices"

	"weft/internal/policy"
	"weft/internal/proxy"
	"weft/kind"
)

// sentParts are the to items of the policies of a selection, in ascending order, with the ports that they are about.
type sentParts struct {
	parts   []policy.Part
	targets []*partTargets
	seen    map[string]bool // the traffic whose fields are added
}

func (s *selectionFields) sentParts() *sentParts {
	all := &sentParts{seen: map[string]bool{}}
	for _, selected := range s.of.Policies {
		for _, part := range s.parts(selected.Key) {
			if part.To != nil {
				all.parts = append(all.parts, part)
			}
		}
	}
	policy.Sort(all.parts)
	for i := range all.parts {
		all.targets = append(all.targets, s.targets(s.pass, &all.parts[i]))
	}
	return all
}

// about returns the items about the traffic to a port by some routes, and whether such traffic was not seen yet.
// Traffic of a protocol with the same items is alike, unless something else tells it apart.
func (p *sentParts) about(port int, routes []map[string]string, protocol kind.Protocol,
	apart string) (about []policy.Part, unseen bool) {
	key, byRoutes := []byte(string(protocol)+apart), policy.Destination{Routes: routes}
	for i := range p.parts {
		to := p.parts[i].To
		if p.targets[i].ports[port] || to.Kind == policy.ToMeshHTTPRoute && to.Matches(&byRoutes) {
			key = binary.AppendUvarint(key, uint64(i))
			about = append(about, p.parts[i])
		}
	}
	unseen = len(about) > 0 && !p.seen[string(key)]
	p.seen[string(key)] = true
	return about, unseen
}

// sent adds the fields about the traffic to each port that a proxy reaches, and about the requests of each rule of a
// route. Ports of a protocol with the same items have the same fields.
func (s *selectionFields) sent() {
	all := s.sentParts()
	switch {
	case len(all.parts) == 0:
		return
	case proxy.IsRouteKind(s.pass.key.Kind):
		s.routed(all)
		return
	}
	for port, by := range s.reached {
		for _, protocol := range by.protocols(s.pass.mesh.protocols[port]) {
			if about, unseen := all.about(port, nil, protocol, ""); unseen {
				s.sentAs(about, protocol)
			}
		}
	}
	s.sentByRoutes(all)
}

// sentByRoutes adds the fields about the requests of each rule of a route that the proxies have, where an item is about
// routes.
func (s *selectionFields) sentByRoutes(all *sentParts) {
	unused := map[policy.Origin]*policy.Part{}
	for i := range all.parts {
		if part := &all.parts[i]; part.To.Kind == policy.ToMeshHTTPRoute && s.pass.mesh.hasRoute(part.To) {
			unused[part.Origin()] = part
		}
	}
	if len(unused) == 0 || len(s.reach) == 0 {
		return
	}
	for _, of := range s.reach {
		set := &s.pass.mesh.reach.sets[of]
		for _, port := range set.dialed {
			protocol := s.pass.mesh.protocols[port]
			for _, routes := range s.rulesOf(set.key.routes, port) {
				about, unseen := all.about(port, routes, protocol, "")
				for i := range about {
					delete(unused, about[i].Origin())
				}
				if unseen {
					s.sentAs(about, protocol)
				}
			}
		}
	}
	for _, part := range unused {
		s.addItem(*part, "the proxy has no rule of the MeshHTTPRoute")
	}
}

// hasRoute reports whether the mesh has a MeshHTTPRoute that a to item is about.
func (m *effectMesh) hasRoute(to *policy.To) bool {
	return slices.ContainsFunc(m.routes, func(r targetedRoute) bool { return kind.Subset(to.Labels, r.labels) })
}

// addItem adds the fields of an item alone, with the reason why they have no effect.
func (s *selectionFields) addItem(part policy.Part, reason string) {
	for path, origin := range s.merge([]policy.Part{part}).Origins.All() {
		s.result.add(origin, path.Field(), reason)
	}
}

// routing returns the route of the traffic from proxies with some routes to a port; nil where no policy routes it.
func (s *selectionFields) routing(routes proxy.PolicySet, port int) *proxy.Routing {
	m := s.pass.mesh
	key := proxy.EffectiveKey{Policies: routes, Destination: m.ports[port]}
	known, ok := m.routings[key]
	if !ok {
		known = s.State.Proxies.RoutingOf(s.r, key)
		m.routings[key] = known
	}
	return known
}

// rulesOf returns, for each rule of the route to a port, the labels of the MeshHTTPRoutes that it is from.
func (s *selectionFields) rulesOf(routes proxy.PolicySet, port int) [][]map[string]string {
	routing := s.routing(routes, port)
	if routing == nil {
		return nil
	}
	var all [][]map[string]string
	for i := range routing.Rules {
		all = append(all, s.State.Proxies.RouteLabels(s.r, &routing.Rules[i]))
	}
	return all
}

// routed adds the fields of routes about the traffic to each port that applications dial.
func (s *selectionFields) routed(all *sentParts) {
	of := s.pass.key.Kind
	for _, at := range s.reach {
		set := &s.pass.mesh.reach.sets[at]
		for _, port := range set.dialed {
			routing, protocol := s.routing(set.key.routes, port), s.pass.mesh.protocols[port]
			apart := ""
			if routing != nil {
				apart = fmt.Sprint(routing.Kind, routing.Merged.Parts)
			}
			about, unseen := all.about(port, nil, protocol, apart)
			switch {
			case !unseen:
			case routing == nil:
				s.sentAs(about, protocol)
			case routing.Kind != of:
				by := routing.Merged.Parts[len(routing.Merged.Parts)-1].Policy
				for _, part := range about {
					s.addItem(part, fmt.Sprintf("%s routes the requests", by))
				}
			default:
				// Routes of the Gateway API may replace those of another owner.
				about = slices.DeleteFunc(about, func(part policy.Part) bool {
					return !slices.Contains(routing.Merged.Parts, part.Origin())
				})
				s.sentAs(about, protocol)
			}
		}
	}
}
