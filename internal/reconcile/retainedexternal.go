package reconcile

import (
	"log/slog"
	"time"

	"weft/internal/barrier"
	"weft/internal/table"
	"weft/internal/zoneproxy"
	"weft/kind"
	"weft/resource"
)

// retainTimeout is how long zone proxies serve what was removed for clients or zones that do not ack the removal. The
// drain time comes on top. It starts again on a new leader.
const retainTimeout = 30 * time.Second

// deleteOnceAcked deletes a retained row once the state of the condition w.Wait is acked, or after [retainTimeout] and
// the drain time. The notice then has the message late.
func (p *Plan) deleteOnceAcked(r *table.Reader, w *Writes, row resource.Any, late string) {
	name, state := w.Wait.Name, w.Wait.States[0]
	if !p.Acks.IsAcked(r, name, state) {
		since, began := p.Acks.Began(r, name, state)
		if !began || !r.Past(since.Add(retainTimeout+p.DrainTime)) {
			return
		}
		w.Notices = []Notice{{slog.LevelWarn, late, []any{"row", row.Key(), "waited", retainTimeout}}}
	}
	w.addWrite(0, Write{Delete: row})
}

// retainExternalService deletes a retained external service once no client sends to it: every proxy of the mesh in this
// zone has acked the removal. Its clients are in this zone, as the egresses are.
func (p *Plan) retainExternalService(r *table.Reader, u Request) (w Writes) {
	row, ok := p.State.Tables.RetainedExternalServices.Find(r, u.Mesh, u.Name)
	if !ok {
		return w
	}
	removed := resource.Key{Kind: kind.MeshExternalServices.Name, Mesh: u.Mesh,
		Name: p.State.Services.Row(zoneproxy.RetainedExternalKey(row)).Name}
	w.Wait = &barrier.Condition{Name: "removal of " + u.String(), Mesh: u.Mesh, Rows: []resource.Key{removed},
		States: []string{row.Spec.Since.UTC().Format(time.RFC3339Nano)}}
	p.deleteOnceAcked(r, &w, row, "not every client has acked the removal of an external service in time")
	return w
}
