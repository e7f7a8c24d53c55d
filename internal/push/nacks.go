package push

import (
	"maps"

	"weft/internal/envoy"
	"weft/internal/graph"
	"weft/internal/state"
	"weft/internal/table"
	"weft/internal/xds"
	"weft/resource"
)

// noteRemovals remembers from which endpoint lists the endpoints of a proxy were removed. A client that rejects the
// next version of such a list may still send requests to them.
func (h *Hub) noteRemovals(changes *table.Changes) {
	for _, lists := range h.state.EndpointLists() {
		for t := range lists.Transitions(changes) {
			if t.Old != nil {
				h.noteRemoval(t)
			}
		}
	}
}

func (h *Hub) noteRemoval(t table.Transition[graph.DestinationKey, *graph.Endpoints]) {
	for _, e := range t.Old.Endpoints {
		if e.Proxy == (state.ProxyKey{}) || t.New.Has(e) {
			continue
		}
		if h.removedFrom[e.Proxy] == nil {
			h.removedFrom[e.Proxy] = map[graph.DestinationKey]bool{}
		}
		h.removedFrom[e.Proxy][t.Key] = true
	}
}

// relevantNACKs returns a function that reports whether a NACK leaves open what a client applied of rows. For a
// Dataplane or a listener status, these are the NACKs of the endpoint lists that have or had its endpoints. For other
// rows all NACKs count, and the function is nil. Listeners, permissions and roots lead to no other endpoint.
func (h *Hub) relevantNACKs(rows []resource.Key) func(xds.NACK) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	var proxies []*removedProxy
	for _, row := range rows {
		key, ok := state.ProxyOf(row)
		if !ok || row != key.Resource() && row != key.ListenerStatusRow() {
			return nil
		}
		proxies = append(proxies, &removedProxy{h.state, key, maps.Clone(h.removedFrom[key])})
	}
	return func(r xds.NACK) bool {
		for _, p := range proxies {
			if p.concernedBy(r) {
				return true
			}
		}
		return false
	}
}

// removedProxy is a proxy whose endpoints are being removed from the endpoint lists of all clients.
type removedProxy struct {
	state *graph.State
	key   state.ProxyKey
	lists map[graph.DestinationKey]bool // nil: not known, as after a start
}

func (d *removedProxy) concernedBy(nack xds.NACK) bool {
	if nack.Type != xds.Cluster && nack.Type != xds.Endpoint && nack.Type != xds.Route {
		return false
	}
	r := table.Eval(d.state.DB.Snapshot())
	list := destinationOf(d.state, r, nack)
	if list == nil || list.Mesh != d.key.Mesh {
		return false
	}
	return d.lists == nil || d.mayBeIn(r, *list)
}

// mayBeIn reports whether a list has or had an endpoint of the proxy. A rejected cluster names the destination, and so
// all of its localities.
func (d *removedProxy) mayBeIn(r *table.Reader, list graph.DestinationKey) bool {
	return d.lists[list] || list.Locality == "" && d.lists[list.On(graph.LocalLocality)] ||
		d.state.IsMember(r, d.key, list)
}

// destinationOf returns the destination from which a resource was generated: by its own name for a client, by SNI for a
// zone ingress. It returns nil for any other resource.
func destinationOf(state *graph.State, r *table.Reader, nack xds.NACK) *graph.DestinationKey {
	sni, crossZone := envoy.ServerName(nack.Name)
	if sniRoute, ok := state.SNIRouteOf(r, sni, crossZone); ok {
		return &sniRoute.Destination
	}
	return envoy.OriginOf(nack.Type, nack.Name).Destination
}
