package reconcile

import (
	"context"
	"time"

	"weft/internal/table"
	"weft/internal/wait"
	"weft/kind"
	"weft/resource"
)

// sniRouteTimeout is how long removed SNIs of a service stay forwarded for zones that do not confirm the removal. It
// starts again on a new leader.
const sniRouteTimeout = 30 * time.Second

// reconcileSNIRoute deletes a retained SNI route once no other zone sends to it. Global owns a MeshMultiZoneService, so
// other zones confirm nothing to this zone: its routes stay for a fixed time.
func (p *Plan) reconcileSNIRoute(r *table.Reader, mesh, name string, now time.Time) (steps []Step, requeue time.Time) {
	row, ok := p.State.RetainedSNIRoutes.Find(r, mesh, name)
	switch {
	case !ok:
		return nil, time.Time{}
	case row.Spec.Kind == kind.MeshServices.Name:
		service := kind.MeshServices.Key(mesh, row.Spec.Service)
		return []Step{{ConfirmedDelete: &ConfirmedDelete{Row: row, Rows: []resource.Key{service},
			Timeout: sniRouteTimeout}}}, time.Time{}
	}
	if end := row.Spec.Since.Add(sniRouteTimeout + p.DrainTime); now.Before(end) {
		return nil, end
	}
	gone := row.Key()
	return []Step{{Delete: &gone}}, time.Time{}
}

// startConfirmedDelete starts a goroutine that waits for the other zones and then deletes the row. It does nothing
// while such a goroutine runs for the request.
func (rc *Reconciler) startConfirmedDelete(ctx context.Context, u Request, l *ConfirmedDelete) {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	if rc.confirming[u] {
		return
	}
	rc.confirming[u] = true
	go func() {
		err := rc.deleteOnceConfirmed(ctx, l)
		rc.mu.Lock()
		delete(rc.confirming, u)
		rc.mu.Unlock()
		if err != nil && ctx.Err() == nil {
			rc.log.Warn("deleting a retained SNI route failed", "request", u, "retryAfter", minRetryDelay, "error", err)
		}
		rc.enqueue(u, time.Now().Add(minRetryDelay))
	}()
}

func (rc *Reconciler) deleteOnceConfirmed(ctx context.Context, l *ConfirmedDelete) error {
	bounded, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	if rc.Zones != nil {
		if err := rc.Zones.Confirmed(bounded, l.Rows...); err != nil && ctx.Err() == nil {
			rc.log.Warn("not every zone has confirmed the removal of SNIs in time", "row", l.Row.Key(), "waited",
				l.Timeout, "error", err)
		}
	}
	_ = wait.Sleep(ctx, rc.plan.DrainTime)
	now, ok := rc.plan.State.RetainedSNIRoutes.Find(table.Eval(rc.plan.State.DB.Snapshot()), l.Row.Mesh, l.Row.Name)
	if ctx.Err() != nil || !ok || !now.Spec.Since.Equal(l.Row.Spec.Since.Time) {
		return ctx.Err()
	}
	return rc.writer.Delete(ctx, l.Row.Key(), "")
}
