package push

import (
	"maps"
	"slices"
	"sync"
	"time"

	"weft/internal/envoy"
	"weft/internal/graph"
	"weft/internal/service"
	"weft/internal/state"
	"weft/internal/table"
	"weft/internal/xds"
	"weft/resource"
)

// removals has the endpoint lists from which the endpoints of proxies were removed. A client that rejects the next
// version of such a list may still send requests to them. It has a lock of its own: the table's writer records
// removals, and waits for acks read them.
type removals struct {
	state *graph.State

	mu    sync.Mutex
	lists map[state.ProxyKey]map[service.DestinationKey]bool
}

func newRemovals(g *graph.State) *removals {
	return &removals{state: g, lists: map[state.ProxyKey]map[service.DestinationKey]bool{}}
}

// follow records the removals of commits, and drops those of proxies whose listener status is among the removed rows.
// It is a [Follower].
func (r *removals) follow(_ []resource.Any, removed []resource.Key, commits []*table.Changes, _ time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, changes := range commits {
		for _, lists := range r.state.Services.EndpointLists() {
			for t := range table.Transitions(lists, changes) {
				if t.Old != nil {
					r.note(t)
				}
			}
		}
	}
	for _, key := range removed {
		if proxy, ok := state.ProxyOf(key); ok && key == proxy.ListenerStatusRow() {
			delete(r.lists, proxy)
		}
	}
}

func (r *removals) note(t table.Transition[service.DestinationKey, *service.Endpoints]) {
	for _, e := range t.Old.Endpoints {
		if e.Proxy == (state.ProxyKey{}) || t.New.Has(e) {
			continue
		}
		if r.lists[e.Proxy] == nil {
			r.lists[e.Proxy] = map[service.DestinationKey]bool{}
		}
		r.lists[e.Proxy][t.Key] = true
	}
}

// relevantNACKs returns a function that reports whether a NACK leaves open what a client applied of rows. For a
// Dataplane or a listener status, these are the NACKs of the endpoint lists that have or had its endpoints. For other
// rows all NACKs count, and the function is nil. Listeners, permissions and roots lead to no other endpoint.
func (r *removals) relevantNACKs(rows []resource.Key) func(xds.NACK) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	var proxies []*removedProxy
	for _, row := range rows {
		key, ok := state.ProxyOf(row)
		if !ok || row != key.Resource() && row != key.ListenerStatusRow() {
			return nil
		}
		proxies = append(proxies, &removedProxy{r.state, key, maps.Clone(r.lists[key])})
	}
	return func(nack xds.NACK) bool {
		return slices.ContainsFunc(proxies, func(p *removedProxy) bool { return p.concernedBy(nack) })
	}
}

// removedProxy is a proxy whose endpoints are being removed from the endpoint lists of all clients.
type removedProxy struct {
	state *graph.State
	key   state.ProxyKey
	lists map[service.DestinationKey]bool // nil: not known, as after a start
}

func (d *removedProxy) concernedBy(nack xds.NACK) bool {
	if nack.Type == xds.Listener || nack.Type == xds.Secret {
		return false
	}
	r := table.Eval(d.state.Tables.DB.Snapshot())
	list := destinationOf(d.state, r, nack)
	if list == nil || list.Mesh != d.key.Mesh {
		return false
	}
	return d.lists == nil || d.mayBeIn(r, *list)
}

// mayBeIn reports whether a list has or had an endpoint of the proxy. A rejected cluster names the destination, and so
// all of its localities. The list of the clients' own zone may have the egresses that lead to others.
func (d *removedProxy) mayBeIn(r *table.Reader, list service.DestinationKey) bool {
	return d.lists[list] || list.Locality == "" && d.lists[list.WithLocality(service.LocalLocality)] ||
		list.Locality == service.LocalLocality && d.lists[list.WithLocality(service.RemoteLocality)] ||
		d.state.Services.IsMember(r, d.key, list)
}

// destinationOf returns the destination from which a resource was generated: by its own name for a client, by SNI for a
// zone ingress. It returns nil for any other resource.
func destinationOf(state *graph.State, r *table.Reader, nack xds.NACK) *service.DestinationKey {
	sni, crossZone := envoy.SNIOfCluster(nack.Name)
	if sniRoute, ok := state.ZoneProxies.SNIRouteOf(r, sni, crossZone); ok {
		return &sniRoute.Destination
	}
	return envoy.OriginOf(nack.Type, nack.Name).Destination
}
