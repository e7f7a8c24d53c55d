package reconcile

import (
	"slices"
	"time"

	"weft/internal/barrier"
	"weft/internal/state"
	"weft/internal/table"
	"weft/internal/wait"
	"weft/kind"
	"weft/resource"
)

// PlaintextKind is the kind of requests for the proxies of a mesh that change from plaintext to mutual TLS.
const PlaintextKind = "plaintext"

// plaintextTimeout is the longest time, in addition to the drain time, for which a proxy accepts plaintext beside
// mutual TLS.
const plaintextTimeout = 30 * time.Second

func plaintextWaitName(mesh string) string { return "mutual TLS of proxies of the mesh " + mesh }

// waitForTLS states that every client must ack that the changing proxies of a mesh serve mutual TLS.
func (p *Plan) waitForTLS(r *table.Reader, u Request) (w Writes) {
	rows := p.State.Tables.ListenerStatusesChanging.List(r, state.MeshKey(u.Mesh))
	if len(rows) == 0 {
		return w
	}
	w.Wait = &barrier.Condition{Name: plaintextWaitName(u.Mesh), Mesh: u.Mesh, AllProxies: true, Rows: newestRows(rows)}
	for _, row := range rows {
		w.Wait.States = append(w.Wait.States, rowState(row))
	}
	return w
}

// endPlaintext stops plaintext at a changing proxy once every client has acked that it serves mutual TLS, and after
// plaintextTimeout at the latest.
func (p *Plan) endPlaintext(r *table.Reader, u Request) (w Writes) {
	row, ok := p.State.Tables.ListenerStatuses.Find(r, u.Mesh, u.Name)
	if !ok || !row.Spec.IsChanging() {
		return w
	}
	changed, end := p.withoutPlaintext(row)
	if p.Acks.IsAcked(r, plaintextWaitName(u.Mesh), rowState(row)) || r.Past(end) {
		w.addWrite(0, Write{Put: changed})
	}
	return w
}

// withoutPlaintext returns a copy of the row that accepts mutual TLS only, and the deadline of that change.
func (p *Plan) withoutPlaintext(row *resource.Object[kind.DataplaneListenerStatus]) (
	changed *resource.Object[kind.DataplaneListenerStatus], end time.Time) {
	copied := *row
	copied.Spec.Inbounds = slices.Clone(row.Spec.Inbounds)
	for i := range copied.Spec.Inbounds {
		in := &copied.Spec.Inbounds[i]
		if !in.AlsoPlaintext.IsZero() {
			end = wait.Earliest(end, in.AlsoPlaintext.Add(plaintextTimeout+p.DrainTime))
			in.AlsoPlaintext = kind.Time{}
		}
	}
	return &copied, end
}
