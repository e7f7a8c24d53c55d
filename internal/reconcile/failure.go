package reconcile

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// FailureAge is how long a write fails before it is reported. A conflict, or a restart of the store, is shorter.
const FailureAge = time.Minute

// maxFailureText bounds the reason of a failed write, in runes. It is shown in conditions and findings.
const maxFailureText = 500

// failure is the first write of a Request that fails since a while. It is a local row of the leader's run: a new leader
// finds out for itself.
type failure struct {
	Request Request
	Write   resource.Key
	Since   time.Time
	Error   string
}

// failureText returns the text of an error in one line, cut at maxFailureText.
func failureText(err error) string {
	text := []rune(resource.Line(err))
	if len(text) > maxFailureText {
		return string(text[:maxFailureText-1]) + "…"
	}
	return string(text)
}

// isReported reports whether a write fails for [FailureAge].
func (f *failure) isReported(now time.Time) bool { return f != nil && now.Sub(f.Since) >= FailureAge }

// row returns the failure as it is stored. The requests for the mtls of a mesh are those of its Mesh.
func (f *failure) row() kind.FailedWrite {
	of := resource.Key(f.Request)
	if of == kind.MeshIdentities.Key(of.Mesh, kind.MTLSIdentity) {
		of = kind.Meshes.Key("", of.Mesh)
	}
	return kind.FailedWrite{Of: of, Write: f.Write, Since: kind.Time{Time: f.Since}, Error: f.Error}
}

// failedWrites writes the row of all failures.
func (p *Plan) failedWrites(r *table.Reader, _ Request) (w Writes) {
	var failures []kind.FailedWrite
	for _, f := range p.allFailures.List(r, "") {
		failures = append(failures, f.row())
	}
	slices.SortFunc(failures, func(a, b kind.FailedWrite) int { return strings.Compare(a.Of.String(), b.Of.String()) })
	stored, ok := p.State.Tables.FailedWrites.Find(r, "", kind.TheFailedWrites)
	switch {
	case len(failures) > 0:
		putIfDifferent(&w, statusDelay, stored, kind.FailedWritesList.Make("", kind.TheFailedWrites, kind.FailedWrites{
			Writes: failures[:min(len(failures), kind.MaxFailedWrites)], Total: len(failures)}))
	case ok:
		w.addWrite(statusDelay, Write{Delete: stored})
	}
	return w
}

// reconciled returns the condition Reconciled=False of a resource from which a write follows that fails; none
// otherwise.
func (p *Plan) reconciled(r *table.Reader, u Request) []kind.Condition {
	f, ok := p.failures.Get(r, u.String())
	if !ok {
		return nil
	}
	return []kind.Condition{{Type: "Reconciled", Status: "False", Reason: "WriteFailed", Message: fmt.Sprintf(
		"the control plane cannot write %s since %s, and repeats it: %s", f.Write, formatTime(f.Since), f.Error)}}
}
