package push

import (
	"context"
	"log/slog"
	"time"

	"weft/internal/graph"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// retention makes the rows by which clients and zone proxies keep what a commit would take from them before its
// replacement is ready, or before clients have acked the removal: former endpoints, SNI routes, external services and
// ingresses, and the next SPIFFE IDs of proxies. The hub puts the rows into the table in the commit that makes them
// necessary, and goroutines store them: the table does not wait for the store. The lock of the table's writer guards
// it.
type retention struct {
	state     *graph.State
	log       *slog.Logger
	callbacks *Callbacks
	former    formerEndpoints
}

// rows returns the rows that follow from a commit at once, computed from the table before and after it. put are the
// rows of the store in the commit.
func (k *retention) rows(before *table.Reader, changes *table.Changes, put []resource.Any,
	now time.Time) []resource.Any {
	after := table.Eval(k.state.Tables.DB.Snapshot())
	var own []resource.Any
	own = joinRows(own, k.endpoints(before, after, changes, now))
	own = joinRows(own, k.sniRoutes(before, after, changes, now))
	own = joinRows(own, k.externalServices(before, after, changes, now))
	own = joinRows(own, k.spiffeIDs(after, changes, now))
	return joinRows(own, k.ingresses(before, after, put))
}

func joinRows[S any](all []resource.Any, rows []*resource.Object[S]) []resource.Any {
	for _, row := range rows {
		all = append(all, row)
	}
	return all
}

// storeRows stores rows in a goroutine, and logs the message where that fails.
func storeRows[S any](k *retention, rows []*resource.Object[S],
	store func(context.Context, []*resource.Object[S]) error, failed string) {
	go func() {
		if err := store(k.callbacks.ctx, rows); err != nil && k.callbacks.ctx.Err() == nil {
			k.log.Warn(failed, "rows", len(rows), "error", err)
		}
	}()
}

// endpoints returns rows with the former endpoints of lists that changes of membership alone have emptied.
func (k *retention) endpoints(before, after *table.Reader, changes *table.Changes,
	now time.Time) []*resource.Object[kind.RetainedEndpoints] {
	var rows []*resource.Object[kind.RetainedEndpoints]
	for t := range table.Transitions(k.state.Services.Endpoints, changes) {
		former := k.former.follow(k.state, before, after, t.Key, t.Old, t.New)
		if len(former) == 0 {
			continue
		}
		if row := k.state.Services.RetainEndpoints(after, t.Key, former, now); row != nil {
			k.log.Info("former endpoints are retained until new ones are ready", "destination", t.Key, "endpoints",
				len(row.Spec.Endpoints))
			rows = append(rows, row)
		}
	}
	if len(rows) > 0 {
		storeRows(k, rows, k.callbacks.Keep, "retained endpoints are not stored and would be lost by a restart")
	}
	return rows
}

// sniRoutes returns rows that retain the SNI routes that were removed from services, with their backends, until other
// zones have removed them.
func (k *retention) sniRoutes(before, after *table.Reader, changes *table.Changes,
	now time.Time) []*resource.Object[kind.RetainedSNIRoute] {
	var rows []*resource.Object[kind.RetainedSNIRoute]
	for t := range table.Transitions(k.state.ZoneProxies.SNIRoutes, changes) {
		rows = append(rows, k.state.ZoneProxies.RetainSNIRoutes(before, after, t.Old, t.New, now)...)
	}
	if len(rows) > 0 {
		k.log.Info("SNI routes are retained until other zones have removed them", "ports", len(rows))
		storeRows(
			k,
			rows,
			k.callbacks.RetainSNIRoutes,
			"retained SNI routes are not stored and would be lost by a restart",
		)
	}
	return rows
}

// externalServices returns rows that retain the external services that were removed, until their clients have acked the
// removal.
func (k *retention) externalServices(before, after *table.Reader, changes *table.Changes,
	now time.Time) []*resource.Object[kind.RetainedExternalService] {
	var rows []*resource.Object[kind.RetainedExternalService]
	for t := range table.Transitions(k.state.ZoneProxies.EgressServices, changes) {
		rows = append(rows, k.state.ZoneProxies.RetainExternalServices(before, after, t.Old, now)...)
	}
	if len(rows) > 0 {
		k.log.Info("removed external services are retained until their clients have acked the removal", "ports",
			len(rows))
		storeRows(k, rows, k.callbacks.RetainExternalServices,
			"retained external services are not stored and would be lost by a restart")
	}
	return rows
}

// spiffeIDs returns the rows with the next SPIFFE IDs of proxies. From the commit that changes a SPIFFE ID on, clients
// accept the proxy under both.
func (k *retention) spiffeIDs(after *table.Reader, changes *table.Changes,
	now time.Time) []*resource.Object[kind.DataplaneCertificates] {
	var rows []*resource.Object[kind.DataplaneCertificates]
	for t := range table.Transitions(k.state.Identity.NextIDs, changes) {
		if row := k.state.Identity.WithNextIDs(after, t.Key, now); row != nil && t.New.SpiffeID != "" {
			rows = append(rows, row)
		}
	}
	if len(rows) > 0 {
		k.log.Info("proxies are accepted under new SPIFFE IDs too", "proxies", len(rows))
		storeRows(k, rows, k.callbacks.Announce, "new SPIFFE IDs of proxies are not stored")
	}
	return rows
}

// ingresses returns the rows by which clients dial the former ingresses of other zones until the host names that these
// zones now advertise are resolved.
func (k *retention) ingresses(before, after *table.Reader,
	put []resource.Any) []*resource.Object[kind.ResolvedName] {
	var rows []*resource.Object[kind.ResolvedName]
	for _, o := range put {
		if o, ok := o.(*resource.Object[kind.MeshZoneAddress]); ok && len(k.state.Tables.HostNames(o)) > 0 {
			rows = append(rows, k.state.Routes.KeepIngresses(before, after, o.Mesh, k.state.Tables.ZoneOf(&o.Meta))...)
		}
	}
	if len(rows) > 0 {
		k.log.Info("former zone ingresses are dialed until the host names are resolved", "names", len(rows))
		storeRows(
			k,
			rows,
			k.callbacks.KeepIngresses,
			"former zone ingresses are not stored and would be lost by a restart",
		)
	}
	return rows
}
