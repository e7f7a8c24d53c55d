package push

import (
	"context"
	"errors"
	"slices"

	"golang.org/x/sync/errgroup"

	"weft/internal/mirror"
	"weft/internal/state"
	"weft/internal/xds"
	"weft/resource"
)

// Passed returns once the zone ingresses that other zones dial for a mesh forward by the present state of rows:
// requests that are sent through them from then on arrive. Where no ingress is ready it returns at once, since no
// request arrives. The error is of a ctx that ended before. Callers bound ctx by [Bound], since an ingress that hangs
// must not delay other zones.
func (a *Acks) Passed(ctx context.Context, mesh string, rows ...resource.Key) error {
	revision, err := a.catchUp(ctx, mirror.Stored(rows))
	if err != nil {
		return err
	}
	var waits errgroup.Group
	for _, key := range a.dialedIngresses(mesh) {
		waits.Go(func() error { return a.ingressAcked(ctx, key, revision, rows) })
	}
	return waits.Wait()
}

// ingressAcked returns once a zone ingress has acked a revision, or is not dialed any more, or ctx ends. An ingress
// whose stream has ended forwards by its former configuration, so it is waited for.
func (a *Acks) ingressAcked(ctx context.Context, key state.ProxyKey, revision uint64, rows []resource.Key) error {
	for {
		next := a.next()
		r := a.reader()
		if !a.state.ZoneProxies.Told(r, key) {
			return nil
		}
		if stream := a.proxies.streamOf(key); stream != nil {
			if err := stream.WaitAcked(ctx, revision); !errors.Is(err, xds.ErrLost) {
				return err
			}
		} else if a.atOtherInstance(r, key) {
			return a.callbacks.Replicas.WaitAcked(ctx, rows)
		}
		select {
		case <-next:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// dialedIngresses returns the zone ingresses that other zones dial for a mesh.
func (a *Acks) dialedIngresses(mesh string) []state.ProxyKey {
	r := a.reader()
	var keys []state.ProxyKey
	ingresses := a.state.ZoneProxies.IngressProxies
	for _, ingress := range slices.Concat(ingresses.Get(r, mesh), ingresses.Get(r, "")) {
		if a.state.ZoneProxies.Told(r, ingress.Proxy) {
			keys = append(keys, ingress.Proxy)
		}
	}
	return keys
}
