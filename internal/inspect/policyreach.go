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
	of   []int // the place of a Dataplane's set
	sets []reachSet
}

// reachSet are the ports that some Dataplanes reach, by their places.
type reachSet struct {
	key    reachKey
	dialed []int  // by their applications
	ports  []bool // dialed, or the backends of routes
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

// ofProxies returns the places of the sets of some Dataplanes.
func (r *effectReach) ofProxies(dataplanes []int) []int {
	var sets []int
	for _, n := range dataplanes {
		sets = append(sets, r.of[n])
	}
	slices.Sort(sets)
	return slices.Compact(sets)
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
func (e *PolicyEffects) reachedBy(mesh string, m *effectMesh, key reachKey) reachSet {
	set := reachSet{key: key, ports: make([]bool, len(m.ports))}
	add := func(port service.DestinationKey) {
		if i, ok := m.places[port]; ok {
			set.ports[i] = true
		}
	}
	for _, port := range e.State.Proxies.Reached.Get(e.r, proxy.ReachKey{Mesh: mesh, Services: key.services}) {
		add(port)
		if i, ok := m.places[port]; ok {
			set.dialed = append(set.dialed, i)
		}
		if route := e.State.Proxies.RouteOf(e.r, key.routes, port).Get(); route != nil {
			for _, backend := range route.Backends() {
				add(backend.WithLocality(""))
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
		if key, ok := e.State.Tables.StoredKey(e.r, of.Describe(), dp.Mesh, zone, ref.Name); ok {
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

// reached is how proxies reach a port: as clients and egresses, which know the protocol, or as ingresses, which forward
// connections. 0: not at all.
type reached uint8

const (
	byProtocol reached = 1 << iota
	asConnections
)

// protocols returns the protocols of the traffic to a port, as the proxies that reach it know it.
func (r reached) protocols(of kind.Protocol) []kind.Protocol {
	var known []kind.Protocol
	if r&byProtocol != 0 {
		known = append(known, of)
	}
	if r&asConnections != 0 && of != kind.TCP {
		known = append(known, kind.TCP)
	}
	return known
}

// forwardedTo adds the ports to which a zone ingress or a zone egress forwards, as they apply to items.
func (m *effectMesh) forwardedTo(ports []reached, ingress, egress bool) {
	for i := range ports {
		switch external := m.ports[i].Kind == service.ExternalService; {
		case external && egress:
			ports[i] |= byProtocol
		case !external && ingress:
			ports[i] |= asConnections
		}
	}
}

// reachedIn returns how the proxies of a selection reach the ports of the mesh. Sections of zone proxies forward to
// them, for the kinds that they apply.
func (e *PolicyEffects) reachedIn(p *effectPass, i int) []reached {
	if p.reached[i] != nil {
		return p.reached[i]
	}
	ports := make([]reached, len(p.mesh.ports))
	var ingress, egress bool
	for _, n := range p.selections[i].Proxies {
		networking := &p.mesh.dataplanes[n].Spec.Networking
		ingress, egress = ingress || networking.ZoneIngress != nil, egress || networking.ZoneEgress != nil
	}
	for _, of := range p.mesh.reach.ofProxies(p.selections[i].Proxies) {
		set := &p.mesh.reach.sets[of]
		for port, has := range set.ports {
			if has && (!proxy.IsRouteKind(p.key.Kind) || slices.Contains(set.dialed, port)) {
				ports[port] |= byProtocol
			}
		}
	}
	if len(p.selections[i].Policies) > 0 && proxy.AppliedByZoneProxies(p.selections[i].Policies[0].Key.Kind) {
		p.mesh.forwardedTo(ports, ingress, egress)
	}
	p.reached[i] = ports
	return ports
}

// zonePass is the selection of the ZoneIngresses and ZoneEgresses, which only policies of the whole mesh target.
type zonePass struct {
	selection policy.Selection
	reached   []reached // nil: there are none
	result    *effectResult
}

// zonesOf returns the selection of the ZoneIngresses and ZoneEgresses, for a kind that they apply.
func (e *PolicyEffects) zonesOf(p *effectPass, of string) *zonePass {
	if p.zones != nil {
		return p.zones
	}
	p.zones = &zonePass{}
	var ingress, egress bool
	for range e.State.Tables.ZoneIngresses.RowsAfter(e.Snapshot, "", "") {
		ingress = true
		break
	}
	for range e.State.Tables.ZoneEgresses.RowsAfter(e.Snapshot, "", "") {
		egress = true
		break
	}
	if (ingress || egress) && proxy.AppliedByZoneProxies(of) {
		list := e.State.Proxies.Policies.Get(e.r, p.key)
		p.zones.selection = list.Tally([]*policy.Proxy{{Zone: e.State.Tables.Zone}})[0]
		p.zones.reached = make([]reached, len(p.mesh.ports))
		p.mesh.forwardedTo(p.zones.reached, ingress, egress)
	}
	return p.zones
}

// zoneResult returns the effect of the fields of policies on the ZoneIngresses and ZoneEgresses.
func (e *PolicyEffects) zoneResult(p *effectPass) *effectResult {
	zones := p.zones
	if zones.result == nil {
		s := newSelectionFields(e, p, &zones.selection, zones.reached)
		zones.result = s.result
		s.sent()
	}
	return zones.result
}

// forwarded returns how ZoneIngresses and ZoneEgresses that apply the policy reach the ports; nil where none does.
func (p *policyEffect) forwarded() []reached {
	zones := p.zonesOf(p.pass, p.key.Kind)
	if slices.ContainsFunc(zones.selection.Policies, func(of policy.Selected) bool { return of.Key == p.key }) {
		return zones.reached
	}
	return nil
}

// reachedByAny returns how the proxies that the policy selects reach the ports of the mesh.
func (p *policyEffect) reachedByAny() []reached {
	all := make([]reached, len(p.pass.mesh.ports))
	for _, i := range p.pass.of[p.key] {
		for port, has := range p.reachedIn(p.pass, i) {
			all[port] |= has
		}
	}
	for port, has := range p.forwarded() {
		all[port] |= has
	}
	return all
}

// routes counts the ports that to items are about and that a selected proxy reaches.
func (p *policyEffect) routes() int {
	all, count := p.reachedByAny(), 0
	for port := range p.ports {
		if all[p.pass.mesh.places[port]] != 0 {
			count++
		}
	}
	return count
}
