package publish

import (
	"maps"

	"weft/internal/envoy"
	"weft/internal/graph"
	"weft/internal/table"
	"weft/internal/xds"
	"weft/resource"
)

// noteLeft remembers which lists a proxy's endpoints have left. A client that refuses the next of such a
// list may send to them still.
func (h *Hub) noteLeft(changes *table.Changes) {
	for _, lists := range h.state.EndpointLists() {
		for t := range lists.Transitions(changes) {
			if t.Old != nil {
				h.noteLeftBy(t)
			}
		}
	}
}

func (h *Hub) noteLeftBy(t table.Transition[graph.DestinationKey, *graph.Endpoints]) {
	for _, e := range t.Old.Endpoints {
		if e.Proxy == (graph.ProxyKey{}) || t.New.Has(e) {
			continue
		}
		if h.left[e.Proxy] == nil {
			h.left[e.Proxy] = map[graph.DestinationKey]bool{}
		}
		h.left[e.Proxy][t.Key] = true
	}
}

// concerns says which refusals leave open what a client runs with, where it is to have settled on what
// rows say. Of a Dataplane, and of what it serves, these are the refusals of the lists that its endpoints
// were or may be in; of anything else, all. Listeners, permissions and roots lead to no other endpoint.
func (h *Hub) concerns(rows []resource.Key) func(xds.NACK) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	var proxies []*departure
	for _, row := range rows {
		key, ok := graph.ProxyOf(row)
		if !ok || row != key.Resource() && row != key.ListenerStatusRow() {
			return nil
		}
		proxies = append(proxies, &departure{h.state, key, maps.Clone(h.left[key])})
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

// departure is a proxy whose endpoints are to be in no client's list any more.
type departure struct {
	state *graph.State
	key   graph.ProxyKey
	left  map[graph.DestinationKey]bool // nil: nothing is known, as after a start
}

func (d *departure) concernedBy(refused xds.NACK) bool {
	if refused.Type != xds.Cluster && refused.Type != xds.Endpoint && refused.Type != xds.Route {
		return false
	}
	r := table.Eval(d.state.DB.Snapshot())
	list := destinationOf(d.state, r, refused)
	if list == nil || list.Mesh != d.key.Mesh {
		return false
	}
	return d.left == nil || d.mayBeIn(r, *list)
}

// mayBeIn says whether one of the proxy's endpoints was or may be in a list. A refused cluster names the
// destination, and so all its legs.
func (d *departure) mayBeIn(r *table.Reader, list graph.DestinationKey) bool {
	return d.left[list] || list.Locality == "" && d.left[list.On(graph.LocalLocality)] ||
		d.state.IsMember(r, d.key, list)
}

// destinationOf is the destination that a resource was made of: a client's by its own name, a zone ingress's by
// a server name; nil for any other.
func destinationOf(state *graph.State, r *table.Reader, refused xds.NACK) *graph.DestinationKey {
	sni, abroad := envoy.ServerName(refused.Name)
	if passage, ok := state.SNIRouteOf(r, sni, abroad); ok {
		return &passage.Destination
	}
	return envoy.OriginOf(refused.Type, refused.Name).Destination
}
