package proxy

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"

	"weft/internal/policy"
	"weft/internal/service"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// Costly is a policy that is left out, since with it the policies of its owner would cost proxies more than the bound
// of their kind.
type Costly struct {
	Name   string
	Reason string
}

// costs returns the policies of a kind in a mesh that are left out, sorted by name. Each owner has its own bound: the
// operators, and each namespace, for its producers' policies and for its others. Of the policies of an owner those with
// the first names count, so that all zones leave the same ones out, except where endpoints count, which are those of
// the zone. A proxy that reaches few of the services pays less than is counted here.
func (s *Stage) costs(r *table.Reader, key PoliciesKey) []Costly {
	rows := s.state.PolicyRows[key.Kind]
	if rows.Costs == nil {
		return nil
	}
	policies := slices.SortedFunc(slices.Values(rows.List(r, key.Mesh)), func(a, b *policy.Policy) int {
		return cmp.Compare(a.Key.Name, b.Key.Name)
	})
	var left []Costly
	spent := map[policy.Owner]int64{}
	for _, p := range policies {
		cost := int64(0)
		for _, of := range s.PartCosts.Get(r, p.Key) {
			if rows.Costs.EachEndpoint {
				cost += of.Each * int64(s.endpointsAbout(r, key.Mesh, of.To))
			} else {
				cost += of.Each * int64(s.placesAbout(r, key.Mesh, of.To, rows.Costs.EachRoute))
			}
		}
		if cost == 0 {
			continue
		}
		owner := p.Owner()
		bound := rows.Costs.Bound(owner.Producer)
		if spent[owner]+cost > bound {
			left = append(left, Costly{p.Key.Name, fmt.Sprintf("a proxy that sends to all its services "+
				"would have %d %s by it and %d by the policies %s before it, and at most %d are allowed; write "+
				"smaller values, or select fewer services", cost, rows.Costs.Unit, spent[owner], owner, bound)})
			continue
		}
		spent[owner] += cost
	}
	return left
}

// PartCost is what an item of `to` costs a proxy for each port that it is about.
type PartCost struct {
	To   *policy.To
	Each int64
}

// partCosts returns the costs of the items of a policy that have any.
func (s *Stage) partCosts(r *table.Reader, key resource.Key) []PartCost {
	rows := s.state.PolicyRows[key.Kind]
	var costs []PartCost
	for _, part := range rows.Parts(r, key.Mesh, key.Name) {
		if each := rows.Costs.Of(part.Conf); each > 0 && part.To != nil {
			costs = append(costs, PartCost{part.To, each})
		}
	}
	return costs
}

// placesAbout returns the number of ports of services that an item of `to` is about and, if eachRoute, of the routes of
// the requests to them.
func (s *Stage) placesAbout(r *table.Reader, mesh string, to *policy.To, eachRoute bool) int {
	targeted, places := s.services.TargetedBy(r, mesh, to), 0
	if places = len(targeted); to.Kind == policy.ToMesh {
		for _, of := range s.services.Destinations.Get(r, mesh) {
			places += len(s.services.Ports.Get(r, of))
		}
	}
	if !eachRoute {
		return places
	}
	for _, routed := range s.RoutedPorts.Get(r, mesh) {
		for _, port := range routed.Ports {
			_, isTargeted := slices.BinarySearchFunc(targeted, port, service.CompareDestinations)
			ofRoute := to.Kind == policy.ToMeshHTTPRoute && kind.Subset(to.Labels, routed.Labels)
			if isTargeted || ofRoute || to.Kind == policy.ToMesh {
				places += routed.Routes
			}
		}
	}
	return places
}

// endpointsAbout returns the number of endpoints of this zone of the ports of services that an item of `to` is about:
// for each port the next power of two, so that few changes of endpoints change which policies apply.
func (s *Stage) endpointsAbout(r *table.Reader, mesh string, to *policy.To) int {
	sum := 0
	add := func(port service.DestinationKey) {
		if port.Kind == service.MultiZoneService {
			port = port.WithLocality(service.LocalLocality)
		}
		n := 0
		if endpoints := s.services.EndpointsOf(r, port); endpoints != nil {
			for i := range endpoints.Endpoints {
				if e := &endpoints.Endpoints[i]; e.Proxy != (state.ProxyKey{}) && !e.Egress {
					n++
				}
			}
		}
		sum += 1 << bits.Len(uint(max(n, 1)-1))
	}
	for _, port := range s.services.TargetedBy(r, mesh, to) {
		add(port)
	}
	if to.Kind == policy.ToMesh {
		for _, of := range s.services.Destinations.Get(r, mesh) {
			for _, port := range s.services.Ports.Get(r, of) {
				add(of.WithPort(port))
			}
		}
	}
	return sum
}

// RoutedPorts are the ports that an item of a MeshHTTPRoute is about, with the number of its routes and the labels by
// which other policies select the MeshHTTPRoute.
type RoutedPorts struct {
	Labels map[string]string
	Ports  []service.DestinationKey
	Routes int
}

// routedPorts returns the ports that the MeshHTTPRoutes of a mesh are about.
func (s *Stage) routedPorts(r *table.Reader, mesh string) []RoutedPorts {
	var routed []RoutedPorts
	rows := s.state.PolicyRows[kind.MeshHTTPRoutes.Name]
	for _, p := range rows.List(r, mesh) {
		o, ok := rows.Find(r, mesh, p.Key.Name)
		if !ok {
			continue
		}
		labels := policy.RouteLabels(o.Envelope())
		for _, part := range rows.Parts(r, mesh, p.Key.Name) {
			routed = append(routed, RoutedPorts{labels, s.services.TargetedBy(r, mesh, part.To),
				part.Conf.(*kind.HTTPRouteConf).RouteCount()})
		}
	}
	return routed
}

// CostReason returns why a policy is left out; empty: it is not.
func (s *Stage) CostReason(r *table.Reader, of resource.Key) string {
	left := s.Costs.Get(r, PoliciesKey{of.Kind, of.Mesh})
	i := slices.IndexFunc(left, func(c Costly) bool { return c.Name == of.Name })
	if i < 0 {
		return ""
	}
	return left[i].Reason
}
