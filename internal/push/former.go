package push

import (
	"slices"
	"strings"

	"weft/internal/graph"
	"weft/internal/service"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
)

// formerEndpoints has the endpoints that each list has lost and whose inbounds drain. Where the Dataplanes of a service
// lose their inbounds one by one, the last loss empties the list: what the losses before it took from the list still
// serves, and so shares the load with the last one. The end of its drain removes an endpoint from the record, which
// therefore needs no time of its own. The record is not stored: a control plane that starts between the losses has
// those after its start.
type formerEndpoints map[service.DestinationKey][]service.Endpoint

// follow records what a list has lost, and returns the former endpoints of a list that has become empty. Endpoints that
// were retained are not among them: the row that retained them decides about their end.
func (f formerEndpoints) follow(g *graph.State, before, after *table.Reader, key service.DestinationKey,
	from, to *service.Endpoints) (former []service.Endpoint) {
	if key.Zone != g.Tables.Zone {
		return nil // the zone of the service decides
	}
	var lost []service.Endpoint
	if from != nil && lacksAny(to.Endpoints, from.Endpoints) {
		retained := g.Services.RetainedEndpointsOf(before, key)
		lost = slices.DeleteFunc(slices.Clone(from.Endpoints), func(e service.Endpoint) bool {
			return to.Has(e) || slices.ContainsFunc(retained, func(of service.Endpoint) bool {
				return of.Address == e.Address && of.Port == e.Port
			})
		})
	}
	if len(lost) == 0 && len(f[key]) == 0 {
		return nil
	}
	proxies := map[state.ProxyKey]bool{} // with an endpoint
	for _, e := range to.Endpoints {
		proxies[e.Proxy] = true
	}
	ends := func(e service.Endpoint) bool { return proxies[e.Proxy] || !drains(g, after, key, e) }
	former = slices.DeleteFunc(f[key], ends)
	delete(f, key)
	if len(to.Endpoints) == 0 {
		return service.InOrder(append(former, lost...))
	}
	if former = append(former, slices.DeleteFunc(lost, ends)...); len(former) > 0 {
		f[key] = former
	}
	return nil
}

// drains returns whether a former endpoint of a destination still serves, and its inbound drains.
func drains(g *graph.State, r *table.Reader, key service.DestinationKey, e service.Endpoint) bool {
	at := kind.HostPort(e.Address, e.Port)
	return slices.ContainsFunc(g.Proxies.Draining.Get(r, e.Proxy), func(listener string) bool {
		return listener == at || strings.HasPrefix(listener, at+"/")
	}) && g.Services.StillServes(r, key,
		&kind.RetainedEndpoint{Dataplane: e.Proxy.Name, Address: e.Address, Port: e.Port})
}

// lacksAny returns whether endpoints lack any of the others. Both are in the order of [service.InOrder].
func lacksAny(endpoints, others []service.Endpoint) bool {
	at := 0
	for _, e := range others {
		for at < len(endpoints) && endpoints[at] != e {
			at++
		}
		if at == len(endpoints) {
			return true
		}
	}
	return false
}
