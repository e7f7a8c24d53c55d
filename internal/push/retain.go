package push

import (
	"context"
	"time"

	"weft/internal/graph"
	"weft/internal/mirror"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// Keep stores retained endpoints that the table already has. Where another instance was first to store the same
// endpoints, its row stays.
type Keep func(ctx context.Context, rows []*resource.Object[kind.RetainedEndpoints]) error

// Announce stores the next SPIFFE IDs of proxies, which the table already has. A row whose certificates have changed
// meanwhile is left as it is.
type Announce func(ctx context.Context, moving []*resource.Object[kind.DataplaneCertificates]) error

// RetainSNIRoutes stores retained SNI routes that the table already has.
type RetainSNIRoutes func(ctx context.Context, rows []*resource.Object[kind.RetainedSNIRoute]) error

// retainSNIRoutes returns rows that retain the SNI routes that were removed from services, with their backends, until
// other zones have removed them. A goroutine stores the rows.
func (h *Hub) retainSNIRoutes(before *table.Reader, changes *table.Changes,
	now time.Time) []*resource.Object[kind.RetainedSNIRoute] {
	var rows []*resource.Object[kind.RetainedSNIRoute]
	for t := range h.state.SNIRoutes.Transitions(changes) {
		rows = append(rows, h.state.RetainSNIRoutes(before, h.reader(), t.Old, t.New, now)...)
	}
	if len(rows) > 0 {
		h.log.Info("SNI routes are retained until other zones have removed them", "ports", len(rows))
		go func() {
			if err := h.callbacks.RetainSNIRoutes(h.ctx, rows); err != nil && h.ctx.Err() == nil {
				h.log.Warn("retained SNI routes are not stored and would be lost by a restart", "error", err)
			}
		}()
	}
	return rows
}

// announce returns the rows with the next SPIFFE IDs of proxies. A goroutine stores them. From the commit that changes
// a SPIFFE ID on, clients accept the proxy under both.
func (h *Hub) announce(changes *table.Changes, now time.Time) []*resource.Object[kind.DataplaneCertificates] {
	var rows []*resource.Object[kind.DataplaneCertificates]
	for t := range h.state.Moving.Transitions(changes) {
		if row := h.state.Announce(h.reader(), t.Key, now); row != nil && t.New.SpiffeID != "" {
			rows = append(rows, row)
		}
	}
	if len(rows) > 0 {
		h.log.Info("proxies are accepted under new SPIFFE IDs too", "proxies", len(rows))
		go func() {
			if err := h.callbacks.Announce(h.ctx, rows); err != nil && h.ctx.Err() == nil {
				h.log.Warn("new SPIFFE IDs of proxies are not stored", "proxies", len(rows), "error", err)
			}
		}()
	}
	return rows
}

// followLists keeps the endpoint lists of this zone's services derived, even where no proxy of this instance uses them.
// A list that becomes empty while its clients are at another instance, or have not reconnected after a restart, is
// retained for them.
func (h *Hub) followLists(b mirror.Batch) {
	for _, o := range b.Put {
		if service, ok := o.(*resource.Object[kind.MeshService]); ok {
			h.followListsOf(o.Key(), h.state.ListsOf(service))
		}
	}
	for _, key := range b.Removed {
		if key.Kind == kind.MeshServices.Name {
			h.followListsOf(key, nil)
		}
	}
}

func (h *Hub) followListsOf(service resource.Key, lists []graph.DestinationKey) {
	for _, key := range lists {
		h.state.Endpoints.Pin(key)
	}
	for _, key := range h.lists[service] {
		h.state.Endpoints.Unpin(key)
	}
	h.lists[service] = lists
	if len(lists) == 0 {
		delete(h.lists, service)
	}
}

// retainEndpoints returns rows with the former endpoints of lists that a change of membership alone has emptied. A
// goroutine stores the rows: the table does not wait for the store.
func (h *Hub) retainEndpoints(changes *table.Changes, now time.Time) []*resource.Object[kind.RetainedEndpoints] {
	var rows []*resource.Object[kind.RetainedEndpoints]
	for t := range h.state.Endpoints.Transitions(changes) {
		if t.Old == nil || len(t.Old.Endpoints) == 0 || len(t.New.Endpoints) > 0 {
			continue
		}
		if row := h.state.RetainEndpoints(h.reader(), t.Key, t.Old.Endpoints, now); row != nil {
			h.log.Info("former endpoints are retained until new ones are ready", "destination", t.Key, "endpoints",
				len(row.Spec.Endpoints))
			rows = append(rows, row)
		}
	}
	if len(rows) > 0 {
		go func() {
			if err := h.callbacks.Keep(h.ctx, rows); err != nil && h.ctx.Err() == nil {
				h.log.Warn("retained endpoints are not stored and would be lost by a restart", "error", err)
			}
		}()
	}
	return rows
}
