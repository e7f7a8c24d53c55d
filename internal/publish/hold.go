package publish

import (
	"context"
	"time"

	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// Keep stores endpoints that are held, which the table has already. Where another instance was first to
// store the same endpoints, its row stays.
type Keep func(ctx context.Context, held []*resource.Object[kind.HeldEndpoints]) error

// hold answers the rows that keep former endpoints where a change of membership alone emptied a list,
// and stores them beside: the table does not wait for the store.
func (h *Hub) hold(changes *table.Changes, now time.Time) []*resource.Object[kind.HeldEndpoints] {
	var rows []*resource.Object[kind.HeldEndpoints]
	for t := range h.state.Endpoints.Transitions(changes) {
		if t.Old == nil || len(t.Old.Endpoints) == 0 || len(t.New.Endpoints) > 0 {
			continue
		}
		if row := h.state.Hold(h.reader(), t.Key, t.Old.Endpoints, now); row != nil {
			h.log.Info("former endpoints are held until new ones serve", "destination", t.Key, "endpoints", len(row.Spec.Endpoints))
			rows = append(rows, row)
		}
	}
	if len(rows) > 0 {
		go func() {
			if err := h.outside.Keep(h.ctx, rows); err != nil && h.ctx.Err() == nil {
				h.log.Warn("endpoints that are held would not be after a restart", "error", err)
			}
		}()
	}
	return rows
}
