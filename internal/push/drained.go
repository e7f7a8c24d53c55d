package push

import (
	"context"
	"errors"

	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// AwaitDrain returns once a drain is complete, or ctx ends. The proxy is then in no endpoint list and, where it is a
// zone proxy, dialed by no zone, and every client of every instance and zone has acked that. Clients that disconnect
// meanwhile are not waited for.
func (a *Acks) AwaitDrain(ctx context.Context, key state.ProxyKey) error {
	revision, err := a.await(ctx, func(r *table.Reader) bool {
		serving, ok := a.state.Tables.ListenerStatus(r, key)
		return (!ok || serving.Spec.Draining) && !a.state.ZoneProxies.IsAnnouncedIngress(r, key) &&
			!a.state.ZoneProxies.IsAnnouncedEgress(r, key)
	})
	if err != nil {
		return err
	}
	zones := make(chan error, 1)
	go func() { zones <- a.drainedInOtherZones(ctx, key) }()
	clients := kind.AckClients{Wait: kind.ProxyDrained, Mesh: key.Mesh}
	return errors.Join(a.everywhere(ctx, clients, revision, a.rowsOf(key), nil), <-zones)
}

// rowsOf returns the rows from which the proxies of this zone learn the addresses of a proxy.
func (a *Acks) rowsOf(key state.ProxyKey) []resource.Key {
	r := a.reader()
	rows := []resource.Key{key.ListenerStatusRow()}
	if p := a.state.Proxies.Proxy.Get(r, key); p != nil && len(p.Egresses) > 0 {
		rows = append(rows, a.state.ZoneProxies.EgressRows(r, key)...)
	}
	return rows
}

// drainedInOtherZones returns once no other zone dials an ingress, and at once where the proxy is none.
func (a *Acks) drainedInOtherZones(ctx context.Context, key state.ProxyKey) error {
	r := a.reader()
	if p := a.state.Proxies.Proxy.Get(r, key); p == nil || len(p.Ingresses) == 0 {
		return nil
	}
	return a.confirmed(ctx, a.state.ZoneProxies.AddressRows(r, key))
}
