package push

import (
	"context"
	"errors"

	"weft/internal/graph"
	"weft/internal/state"
	"weft/internal/table"
	"weft/resource"
)

// AwaitSecret returns once the table of this instance has a Secret or GlobalSecret that was just stored, or ctx ends.
func (h *Hub) AwaitSecret(ctx context.Context, key resource.Key) error {
	_, err := h.await(ctx, func(r *table.Reader) bool {
		_, ok := h.secret(r, key)
		return ok
	})
	return err
}

// Drained returns once a drain is complete, or ctx ends. The proxy is then in no endpoint list and, where it is a zone
// proxy, dialed by no zone, and every client of every instance and zone has acked that. Clients that disconnect
// meanwhile are not waited for.
func (h *Hub) Drained(ctx context.Context, key state.ProxyKey) error {
	revision, err := h.await(ctx, func(r *table.Reader) bool {
		serving, ok := h.state.ListenerStatus(r, key)
		return (!ok || serving.Spec.Draining) && !h.state.Told(r, key) && !h.state.Offered(r, key)
	})
	if err != nil {
		return err
	}
	waits := make(chan error, 2)
	go func() { waits <- h.callbacks.Replicas.WaitAcked(ctx, h.rowsOf(key)) }()
	go func() { waits <- h.drainedInOtherZones(ctx, key) }()
	_, err = h.callbacks.Waiter.WaitAcked(ctx, revision, nil)
	return errors.Join(err, <-waits, <-waits)
}

// rowsOf returns the rows from which the proxies of this zone learn the addresses of a proxy.
func (h *Hub) rowsOf(key state.ProxyKey) []resource.Key {
	r := h.reader()
	rows := []resource.Key{key.ListenerStatusRow()}
	if p := h.state.Proxy.Get(r, key); p != nil && len(p.Egresses) > 0 {
		rows = append(rows, h.state.EgressRows(r, key)...)
	}
	return rows
}

// drainedInOtherZones returns once no other zone dials an ingress, and at once where the proxy is none.
func (h *Hub) drainedInOtherZones(ctx context.Context, key state.ProxyKey) error {
	r := h.reader()
	if p := h.state.Proxy.Get(r, key); p == nil || len(p.Ingresses) == 0 {
		return nil
	}
	return h.confirmed(ctx, h.state.AddressRows(r, key))
}

// GroupSize is the number of a group's proxies that are in use.
type GroupSize struct {
	Group   graph.ProxyGroup
	Proxies int
}

// ProxyGroups returns the groups that have a proxy in use, in no order.
func (h *Hub) ProxyGroups() []GroupSize {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []GroupSize
	for key, c := range h.groups.open {
		all = append(all, GroupSize{key, c.members})
	}
	return all
}

// Draining returns the number of listeners that drain.
func (h *Hub) Draining() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	open := 0
	for _, listeners := range h.drains.open {
		open += len(listeners)
	}
	return open
}
