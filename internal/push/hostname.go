package push

import (
	"context"

	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// KeepIngresses stores the former ingresses of host names, which the table already has.
type KeepIngresses func(ctx context.Context, rows []*resource.Object[kind.ResolvedName]) error

// keepIngresses returns the rows by which clients dial the former ingresses of other zones until the host names that
// these zones now advertise are resolved. A goroutine stores the rows.
func (h *Hub) keepIngresses(before *table.Reader, put []resource.Any) []resource.Any {
	var rows []*resource.Object[kind.ResolvedName]
	var own []resource.Any
	for _, o := range put {
		if o, ok := o.(*resource.Object[kind.MeshZoneAddress]); ok && len(h.state.HostNames(o)) > 0 {
			for _, row := range h.state.KeepIngresses(before, h.reader(), o.Mesh, h.state.ZoneOf(&o.Meta)) {
				rows, own = append(rows, row), append(own, row)
			}
		}
	}
	if len(rows) > 0 {
		h.log.Info("former zone ingresses are dialed until the host names are resolved", "names", len(rows))
		go func() {
			if err := h.callbacks.KeepIngresses(h.ctx, rows); err != nil && h.ctx.Err() == nil {
				h.log.Warn("former zone ingresses are not stored and would be lost by a restart", "error", err)
			}
		}()
	}
	return own
}

// LookedUp waits until every host name in rows has been looked up and no former ingress is dialed in its place, or ctx
// ends. It returns the rows of the names.
func (h *Hub) LookedUp(ctx context.Context, rows []resource.Key) (names []resource.Key) {
	_, _ = h.await(ctx, func(r *table.Reader) (all bool) { // the caller goes on without the names that take too long
		names, all = h.state.LookedUp(r, rows)
		return all
	})
	return names
}
