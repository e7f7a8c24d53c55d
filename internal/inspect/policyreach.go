package inspect

import (
	"slices"

	"weft/internal/policy"
	"weft/internal/proxy"
	"weft/internal/service"
	"weft/kind"
	"weft/resource"
)

// effectReach are the ports of a mesh that each of its Dataplanes reaches. Dataplanes with the same ports share a set.
type effectReach struct {
	of   []int    // the place of a Dataplane's set
	sets [][]bool // by the places of the ports
}

// reachKey identifies what Dataplanes reach.
type reachKey struct {
	services string          // as [proxy.Group] has it
	routes   proxy.PolicySet // the routes of their traffic
}

// reach returns what the Dataplanes of a mesh reach: the destinations of their applications, and the backends to which
// routes send this traffic.
func (e *PolicyEffects) reach(mesh string, m *effectMesh) effectReach {
	reach, known := effectReach{of: make([]int, len(m.dataplanes))}, map[reachKey]int{}
	routes := e.routesOf(mesh, m)
	for n, dp := range m.dataplanes {
		key := reachKey{e.State.Proxies.ReachOf(e.r, mesh, e.namedHere(dp)), proxy.PolicySetOf(routes[n])}
		set, ok := known[key]
		if !ok {
			set = len(reach.sets)
			known[key], reach.sets = set, append(reach.sets, e.reachedBy(mesh, m, key))
		}
		reach.of[n] = set
	}
	return reach
}

// routesOf returns the policies that route the traffic of each Dataplane of a mesh, by its place; nil without any.
func (e *PolicyEffects) routesOf(mesh string, m *effectMesh) map[int][]resource.Key {
	routes := map[int][]resource.Key{}
	for _, of := range []string{kind.MeshHTTPRoutes.Name, kind.MeshTCPRoutes.Name} {
		list := e.State.Proxies.Policies.Get(e.r, proxy.PoliciesKey{Kind: of, Mesh: mesh})
		if !list.HasOutbound() {
			continue
		}
		for _, selection := range list.Tally(m.proxies) {
			for _, selected := range selection.Policies {
				for _, n := range selection.Proxies {
					routes[n] = append(routes[n], selected.Key)
				}
			}
		}
	}
	return routes
}

// reachedBy returns which ports of a mesh proxies reach.
func (e *PolicyEffects) reachedBy(mesh string, m *effectMesh, key reachKey) []bool {
	set := make([]bool, len(m.ports))
	add := func(port service.DestinationKey) {
		if i, ok := m.places[port]; ok {
			set[i] = true
		}
	}
	for _, port := range e.State.Proxies.Reached.Get(e.r, proxy.ReachKey{Mesh: mesh, Services: key.services}) {
		add(port)
		if route := e.State.Proxies.RouteOf(e.r, key.routes, port).Route(); route != nil {
			for _, backend := range route.Backends() {
				add(backend.On(""))
			}
		}
	}
	return set
}

// namedHere returns the networking of a Dataplane in which services have their names on this control plane. The zone of
// the Dataplane owns those that it names without a suffix, so global has them under another name.
func (e *PolicyEffects) namedHere(dp *resource.Object[kind.Dataplane]) *kind.Networking {
	zone := e.State.Tables.ZoneOf(&dp.Meta)
	if zone == e.State.Tables.Zone {
		return &dp.Spec.Networking
	}
	renamed := func(ref kind.BackendRef) kind.BackendRef {
		of := kind.ByName(ref.Kind)
		if of == nil || ref.Name == "" {
			return ref
		}
		key := resource.Key{Kind: ref.Kind, Mesh: dp.Mesh,
			Name: kind.SyncedName(of.Describe(), ref.Name, kind.Owner{Zone: zone})}
		if _, ok := e.State.Tables.Find(e.r, key); ok {
			ref.Name = key.Name
		}
		return ref
	}
	n := dp.Spec.Networking
	n.Outbound = slices.Clone(n.Outbound)
	for i := range n.Outbound {
		if ref := n.Outbound[i].BackendRef; ref != nil {
			here := renamed(*ref)
			n.Outbound[i].BackendRef = &here
		}
	}
	if t := n.TransparentProxying; t != nil && t.ReachableBackends != nil {
		here, backends := *t, *t.ReachableBackends
		backends.Refs = slices.Clone(backends.Refs)
		for i := range backends.Refs {
			backends.Refs[i] = renamed(backends.Refs[i])
		}
		here.ReachableBackends = &backends
		n.TransparentProxying = &here
	}
	return &n
}

// reachedIn returns which ports of the mesh the proxies of a selection reach. Zone proxies forward to all of them, for
// the kinds that they apply.
func (e *PolicyEffects) reachedIn(p *effectPass, i int) []bool {
	if p.reached[i] != nil {
		return p.reached[i]
	}
	reached, seen := make([]bool, len(p.mesh.ports)), map[int]bool{}
	zones := len(p.selections[i].Policies) > 0 &&
		proxy.AppliedByZoneProxies(p.selections[i].Policies[0].Key.Kind)
	for _, n := range p.selections[i].Proxies {
		networking := &p.mesh.dataplanes[n].Spec.Networking
		if zones && (networking.ZoneIngress != nil || networking.ZoneEgress != nil) {
			reached = slices.Repeat([]bool{true}, len(reached))
			break
		}
		of := p.mesh.reach.of[n]
		if seen[of] {
			continue
		}
		seen[of] = true
		for port, has := range p.mesh.reach.sets[of] {
			reached[port] = reached[port] || has
		}
	}
	p.reached[i] = reached
	return reached
}

// forwarded reports whether a ZoneIngress or ZoneEgress, which forwards to every port, applies the policy.
func (p *policyEffect) forwarded() bool {
	if !proxy.AppliedByZoneProxies(p.key.Kind) {
		return false
	}
	if _, all := p.target.Selects(&policy.Proxy{Zone: p.State.Tables.Zone}); !all {
		return false
	}
	for range p.State.Tables.ZoneIngresses.From(p.Snapshot, "", "") {
		return true
	}
	for range p.State.Tables.ZoneEgresses.From(p.Snapshot, "", "") {
		return true
	}
	return false
}

// routes counts the ports that to items are about and that a selected proxy reaches.
func (p *policyEffect) routes() int {
	if p.forwarded() {
		return len(p.ports)
	}
	reached := make([]bool, len(p.pass.mesh.ports))
	for _, i := range p.pass.of[p.key] {
		for port, has := range p.reachedIn(p.pass, i) {
			reached[port] = reached[port] || has
		}
	}
	count := 0
	for port := range p.ports {
		if reached[p.pass.mesh.places[port]] {
			count++
		}
	}
	return count
}
