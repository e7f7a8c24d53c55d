package reconcile

import (
	"log/slog"
	"time"

	"weft/internal/barrier"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// sniRouteTimeout is how long removed SNIs of a service stay forwarded for zones that do not confirm the removal. It
// starts again on a new leader.
const sniRouteTimeout = 30 * time.Second

// retainSNIRoute deletes a retained SNI route once no other zone sends to it. Global owns a MeshMultiZoneService, so
// other zones confirm nothing to this zone: its routes stay for a fixed time.
func (p *Plan) retainSNIRoute(r *table.Reader, u Request) (w Writes) {
	row, ok := p.State.Tables.RetainedSNIRoutes.Find(r, u.Mesh, u.Name)
	if !ok {
		return w
	}
	since, acked := row.Spec.Since.Time, false
	if row.Spec.Kind == kind.MeshServices.Name {
		service := []resource.Key{kind.MeshServices.Key(u.Mesh, row.Spec.Service)}
		// A port that returned and was removed again is another state.
		w.Wait = &barrier.Condition{Name: "removal of " + u.String(), Mesh: u.Mesh, ZonesOnly: true, Rows: service,
			ZoneRows: service, States: []string{row.Spec.Since.UTC().Format(time.RFC3339Nano)}}
		acked = p.Acks.Acked(r, w.Wait.Name, w.Wait.States[0])
		if since, ok = p.Acks.Began(r, w.Wait.Name, w.Wait.States[0]); !ok && !acked {
			return w
		}
	}
	switch {
	case acked:
	case !r.Past(since.Add(sniRouteTimeout + p.DrainTime)):
		return w
	case w.Wait != nil:
		w.Notices = []Notice{{slog.LevelWarn, "not every zone has confirmed the removal of SNIs in time",
			[]any{"row", row.Key(), "waited", sniRouteTimeout}}}
	}
	w.addWrite(0, Write{Delete: row})
	return w
}
