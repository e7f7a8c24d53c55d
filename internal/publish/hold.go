package publish

import (
	"context"
	"time"

	"weft/internal/graph"
	"weft/internal/mirror"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// Keep stores endpoints that are held, which the table has already. Where another instance was first to
// store the same endpoints, its row stays.
type Keep func(ctx context.Context, held []*resource.Object[kind.RetainedEndpoints]) error

// Announce stores the next names of proxies, which the table has already. One whose leaves have changed
// meanwhile is left as it is.
type Announce func(ctx context.Context, moving []*resource.Object[kind.DataplaneCertificates]) error

// RetainSNIRoutes stores what zone ingresses pass on still, which the table has already.
type RetainSNIRoutes func(ctx context.Context, held []*resource.Object[kind.RetainedSNIRoute]) error

// holdPassages answers the rows that keep server names which have gone from services, and the servers behind them,
// until other zones have heard of it; and stores them beside.
func (h *Hub) holdPassages(before *table.Reader, changes *table.Changes, now time.Time) []*resource.Object[kind.RetainedSNIRoute] {
	var rows []*resource.Object[kind.RetainedSNIRoute]
	for t := range h.state.SNIRoutes.Transitions(changes) {
		rows = append(rows, h.state.RetainSNIRoutes(before, h.reader(), t.Old, t.New, now)...)
	}
	if len(rows) > 0 {
		h.log.Info("server names are passed on until other zones have heard that they are gone", "ports", len(rows))
		go func() {
			if err := h.outside.RetainSNIRoutes(h.ctx, rows); err != nil && h.ctx.Err() == nil {
				h.log.Warn("server names that are passed on still would not be after a restart", "error", err)
			}
		}()
	}
	return rows
}

// announce answers the rows that say which proxies are to have another name, and stores them beside: from
// the very commit that changes a name on, whoever is sent something takes the proxy under both.
func (h *Hub) announce(changes *table.Changes, now time.Time) []*resource.Object[kind.DataplaneCertificates] {
	var rows []*resource.Object[kind.DataplaneCertificates]
	for t := range h.state.Moving.Transitions(changes) {
		if row := h.state.Announce(h.reader(), t.Key, now); row != nil && t.New.SpiffeID != "" {
			rows = append(rows, row)
		}
	}
	if len(rows) > 0 {
		h.log.Info("proxies are taken under new names too", "proxies", len(rows))
		go func() {
			if err := h.outside.Announce(h.ctx, rows); err != nil && h.ctx.Err() == nil {
				h.log.Warn("new names of proxies are not stored yet", "proxies", len(rows), "error", err)
			}
		}()
	}
	return rows
}

// followLists keeps the endpoint lists of this zone's services up to date, whether or not anybody here reads them. One
// that is emptied while its clients are at another instance, or are not back yet after a restart, is held for them.
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

// hold answers the rows that keep former endpoints where a change of membership alone emptied a list,
// and stores them beside: the table does not wait for the store.
func (h *Hub) hold(changes *table.Changes, now time.Time) []*resource.Object[kind.RetainedEndpoints] {
	var rows []*resource.Object[kind.RetainedEndpoints]
	for t := range h.state.Endpoints.Transitions(changes) {
		if t.Old == nil || len(t.Old.Endpoints) == 0 || len(t.New.Endpoints) > 0 {
			continue
		}
		if row := h.state.RetainEndpoints(h.reader(), t.Key, t.Old.Endpoints, now); row != nil {
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
