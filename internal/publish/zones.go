package publish

import (
	"context"
	"errors"
	"slices"

	"golang.org/x/sync/errgroup"

	"weft/internal/graph"
	"weft/internal/xds"
	"weft/resource"
)

// Zones are the other zones of the mesh.
type Zones interface {
	// Confirmed returns once every other zone runs with what rows of this one say now, or with their absence, or
	// when ctx ends, upon which the error names the zones that have not said so.
	Confirmed(ctx context.Context, rows ...resource.Key) error
}

func (h *Hub) confirmed(ctx context.Context, rows []resource.Key) error {
	if h.outside.Zones == nil {
		return nil
	}
	return h.outside.Zones.Confirmed(ctx, rows...)
}

// Passed returns once the zone ingresses that other zones dial for a mesh pass on what rows say now: what is sent
// through them from then on arrives. Where none is well, and so nothing arrives anyway, it returns at once. The
// error is of a context that ended before; [Bound] is how long one should last, since an ingress that hangs must
// not keep news from other zones.
func (h *Hub) Passed(ctx context.Context, mesh string, rows ...resource.Key) error {
	revision, err := h.catchUp(ctx, rows)
	if err != nil {
		return err
	}
	var waits errgroup.Group
	for _, key := range h.dialled(mesh) {
		waits.Go(func() error { return h.passes(ctx, key, revision, rows) })
	}
	return waits.Wait()
}

// passes returns once a zone ingress is past a revision, or is not dialled any more, or ctx ends. One whose stream
// is lost passes on by what it had, so it is waited for.
func (h *Hub) passes(ctx context.Context, key graph.ProxyKey, revision uint64, rows []resource.Key) error {
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
		} else if h.elsewhere(r, key) {
			return h.outside.Replicas.WaitAcked(ctx, rows)
		}
		select {
		case <-next:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// dialled are the zone ingresses that other zones are told to dial for a mesh.
func (h *Hub) dialled(mesh string) []graph.ProxyKey {
	r := h.reader()
	var keys []graph.ProxyKey
	for _, door := range slices.Concat(h.state.IngressProxies.Get(r, mesh), h.state.IngressProxies.Get(r, "")) {
		if h.state.Told(r, door.Proxy) {
			keys = append(keys, door.Proxy)
		}
	}
	return keys
}

// streamOf is a proxy's stream at this instance; nil where it has none here.
func (h *Hub) streamOf(key graph.ProxyKey) *xds.Stream {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.proxies[key]; p != nil {
		for s := range p.streams {
			return s
		}
	}
	return nil
}
