package push

import (
	"context"
	"errors"
	"slices"

	"golang.org/x/sync/errgroup"

	"weft/internal/state"
	"weft/internal/xds"
	"weft/resource"
)

// Zones are the other zones of the mesh.
type Zones interface {
	// Confirmed returns once every other zone applies the present state of rows of this one, or their absence, or when
	// ctx ends. The error then names the zones that have not confirmed.
	Confirmed(ctx context.Context, rows ...resource.Key) error
}

func (h *Hub) confirmed(ctx context.Context, rows []resource.Key) error {
	if h.callbacks.Zones == nil {
		return nil
	}
	return h.callbacks.Zones.Confirmed(ctx, rows...)
}

// Passed returns once the zone ingresses that other zones dial for a mesh forward by the present state of rows:
// requests that are sent through them from then on arrive. Where no ingress is ready it returns at once, since no
// request arrives. The error is of a ctx that ended before. Callers bound ctx by [Bound], since an ingress that hangs
// must not delay other zones.
func (h *Hub) Passed(ctx context.Context, mesh string, rows ...resource.Key) error {
	revision, err := h.catchUp(ctx, rows)
	if err != nil {
		return err
	}
	var waits errgroup.Group
	for _, key := range h.dialedIngresses(mesh) {
		waits.Go(func() error { return h.ingressAcked(ctx, key, revision, rows) })
	}
	return waits.Wait()
}

// ingressAcked returns once a zone ingress has acked a revision, or is not dialed any more, or ctx ends. An ingress
// whose stream has ended forwards by its former configuration, so it is waited for.
func (h *Hub) ingressAcked(ctx context.Context, key state.ProxyKey, revision uint64, rows []resource.Key) error {
	for {
		h.mu.Lock()
		next := h.changed.Next()
		h.mu.Unlock()
		r := h.reader()
		if !h.state.Told(r, key) {
			return nil
		}
		if stream := h.streamOf(key); stream != nil {
			if err := stream.WaitAcked(ctx, revision); !errors.Is(err, xds.ErrLost) {
				return err
			}
		} else if h.atOtherInstance(r, key) {
			return h.callbacks.Replicas.WaitAcked(ctx, rows)
		}
		select {
		case <-next:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// dialedIngresses returns the zone ingresses that other zones dial for a mesh.
func (h *Hub) dialedIngresses(mesh string) []state.ProxyKey {
	r := h.reader()
	var keys []state.ProxyKey
	for _, ingress := range slices.Concat(h.state.IngressProxies.Get(r, mesh), h.state.IngressProxies.Get(r, "")) {
		if h.state.Told(r, ingress.Proxy) {
			keys = append(keys, ingress.Proxy)
		}
	}
	return keys
}

// streamOf returns the stream of a proxy at this instance, or nil where it has none.
func (h *Hub) streamOf(key state.ProxyKey) *xds.Stream {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.proxies[key]; p != nil {
		for s := range p.streams {
			return s
		}
	}
	return nil
}
