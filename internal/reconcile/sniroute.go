package reconcile

import (
	"time"

	"weft/internal/barrier"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// retainSNIRoute deletes a retained SNI route once no other zone sends to it. Global owns a MeshMultiZoneService, so
// other zones confirm nothing to this zone: its routes stay for a fixed time.
func (p *Plan) retainSNIRoute(r *table.Reader, u Request) (w Writes) {
	row, ok := p.State.Tables.RetainedSNIRoutes.Find(r, u.Mesh, u.Name)
	if !ok {
		return w
	}
	if row.Spec.Kind != kind.MeshServices.Name {
		if r.Past(row.Spec.Since.Add(retainTimeout + p.DrainTime)) {
			w.addWrite(0, Write{Delete: row})
		}
		return w
	}
	service := []resource.Key{kind.MeshServices.Key(u.Mesh, row.Spec.Service)}
	// A port that returned and was removed again is another state.
	w.Wait = &barrier.Condition{Name: "removal of " + u.String(), Mesh: u.Mesh, ZonesOnly: true, Rows: service,
		ZoneRows: service, States: []string{row.Spec.Since.UTC().Format(time.RFC3339Nano)}}
	p.deleteOnceAcked(r, &w, row, "not every zone has confirmed the removal of SNIs in time")
	return w
}
