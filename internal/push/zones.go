package push

import (
	"context"
	"errors"
	"slices"

	"golang.org/x/sync/errgroup"

	"weft/internal/mirror"
	"weft/internal/replica"
	"weft/internal/state"
	"weft/internal/xds"
	"weft/kind"
	"weft/resource"
)

// AwaitIngresses returns once the zone ingresses that other zones dial for a mesh forward by the present state of rows:
// requests that are sent through them from then on arrive. Where no ingress is ready it returns at once, since no
// request arrives. The error is of a ctx that ended before. Callers bound ctx by [Bound], since an ingress that hangs
// must not delay other zones.
func (a *Acks) AwaitIngresses(ctx context.Context, mesh string, rows ...resource.Key) error {
	revision, err := a.catchUp(ctx, mirror.RowsOf(rows))
	if err != nil {
		return err
	}
	var waits errgroup.Group
	for _, key := range a.dialedIngresses(mesh) {
		waits.Go(func() error { return a.ingressAcked(ctx, key, revision, rows) })
	}
	return waits.Wait()
}

// ingressAcked waits for one zone ingress. The other instances are asked only where one of them has the ingress, since
// this is called for each change of a service.
func (a *Acks) ingressAcked(ctx context.Context, key state.ProxyKey, revision uint64, rows []resource.Key) error {
	row := key.Resource()
	clients := kind.AckClients{Wait: kind.IngressForwards, Proxy: &row}
	if a.proxies.streamOf(key) != nil || !a.atOtherInstance(key) {
		own := &localWait{Acks: a, clients: clients, revision: revision, rows: rows, report: func(kind.PendingAcks) {}}
		if err := own.run(ctx); !errors.Is(err, replica.ErrMoved) {
			return err
		}
	}
	return a.everywhere(ctx, clients, revision, rows, nil)
}

// ingressForwards returns once the zone ingress has acked the revision, is not dialed any more, or is at another
// instance, which waits for it. An ingress whose stream has ended forwards by its former configuration, so it is waited
// for.
func (w *localWait) ingressForwards(ctx context.Context) error {
	key, ok := state.ProxyOf(*w.clients.Proxy)
	if !ok {
		return nil
	}
	pending := func() []state.ProxyKey { return []state.ProxyKey{key} }
	return w.whileReporting(ctx, pending, func(ctx context.Context) error { return w.awaitIngress(ctx, key) })
}

func (w *localWait) awaitIngress(ctx context.Context, key state.ProxyKey) error {
	for waited := false; ; waited = true {
		next := w.NextCommit()
		if !w.state.ZoneProxies.IsAnnouncedIngress(w.reader(), key) {
			return nil
		}
		if stream := w.proxies.streamOf(key); stream != nil {
			if err := stream.WaitAcked(ctx, w.revision); !errors.Is(err, xds.ErrLost) {
				return err
			}
		} else if w.atOtherInstance(key) {
			return movedIf(waited)
		}
		select {
		case <-next:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// movedIf returns [replica.ErrMoved] for a client that this instance has waited for.
func movedIf(waited bool) error {
	if waited {
		return replica.ErrMoved
	}
	return nil
}

// dialedIngresses returns the zone ingresses that other zones dial for a mesh.
func (a *Acks) dialedIngresses(mesh string) []state.ProxyKey {
	r := a.reader()
	var keys []state.ProxyKey
	ingresses := a.state.ZoneProxies.IngressProxies
	for _, ingress := range slices.Concat(ingresses.Get(r, mesh), ingresses.Get(r, "")) {
		if a.state.ZoneProxies.IsAnnouncedIngress(r, ingress.Proxy) {
			keys = append(keys, ingress.Proxy)
		}
	}
	return keys
}
