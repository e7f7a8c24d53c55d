package reconcile

import (
	"context"
	"time"

	"weft/internal/table"
	"weft/internal/wait"
	"weft/kind"
	"weft/resource"
)

// passAtMost is how long server names that have gone from a service are passed on for zones that don't say that
// they have heard of it. It begins anew where another instance takes over.
const passAtMost = 30 * time.Second

// passage ends what is passed on though its service has it no more, once no other zone sends there. A
// MeshMultiZoneService is global's, to whom other zones confirm what becomes of it: it has its time.
func (p *Plan) passage(r *table.Reader, mesh, name string, now time.Time) (steps []Step, again time.Time) {
	row, ok := p.State.RetainedSNIRoutes.Find(r, mesh, name)
	switch {
	case !ok:
		return nil, time.Time{}
	case row.Spec.Kind == kind.MeshServices.Name:
		service := kind.MeshServices.Key(mesh, row.Spec.Service)
		return []Step{{Leave: &Leave{Row: row, Rows: []resource.Key{service}, Within: passAtMost}}}, time.Time{}
	}
	if end := row.Spec.Since.Add(passAtMost + p.DrainTime); now.Before(end) {
		return nil, end
	}
	gone := row.Key()
	return []Step{{Delete: &gone}}, time.Time{}
}

// leave begins to wait for other zones, unless it does already, and then deletes.
func (rc *Reconciler) leave(ctx context.Context, u Unit, l *Leave) {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	if rc.leaving[u] {
		return
	}
	rc.leaving[u] = true
	go func() {
		err := rc.deleteOnceConfirmed(ctx, l)
		rc.mu.Lock()
		delete(rc.leaving, u)
		rc.mu.Unlock()
		if err != nil && ctx.Err() == nil {
			rc.log.Warn("what other zones have heard of could not be stored", "unit", u, "again", retry, "error", err)
		}
		rc.ask(u, time.Now().Add(retry))
	}()
}

func (rc *Reconciler) deleteOnceConfirmed(ctx context.Context, l *Leave) error {
	bounded, cancel := context.WithTimeout(ctx, l.Within)
	defer cancel()
	if rc.Zones != nil {
		if err := rc.Zones.Confirmed(bounded, l.Rows...); err != nil && ctx.Err() == nil {
			rc.log.Warn("not every zone has heard in time that server names are gone", "row", l.Row.Key(), "waited", l.Within, "error", err)
		}
	}
	_ = wait.Sleep(ctx, rc.plan.DrainTime)
	now, ok := rc.plan.State.RetainedSNIRoutes.Find(table.Eval(rc.plan.State.DB.Snapshot()), l.Row.Mesh, l.Row.Name)
	if ctx.Err() != nil || !ok || !now.Spec.Since.Equal(l.Row.Spec.Since.Time) {
		return ctx.Err()
	}
	return rc.writer.Delete(ctx, l.Row.Key(), "")
}
