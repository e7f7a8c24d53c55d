package reconcile

import (
	"strings"
	"testing"
	"time"

	"weft/kind"
)

// TestAFailedWriteIsReported: a write that fails for a minute is a condition of the resource from which it follows, and
// an entry of the row that `weft check` reads. Both end with its success.
func TestAFailedWriteIsReported(t *testing.T) {
	m := newMirrored(t)
	m.rejects = kind.MeshTrusts.Name
	m.user(meshWith("builtin", "builtin"))
	conditions := func() string {
		var all []string
		row, ok := m.plan.State.Tables.MeshStatuses.Find(m.reader(), "", "default")
		if !ok {
			return ""
		}
		for _, c := range row.Spec.Conditions {
			if c.Type == "Reconciled" {
				all = append(all, c.Status+" "+c.Reason+": "+c.Message)
			}
		}
		return strings.Join(all, ", ")
	}
	failed := func() (writes []kind.FailedWrite) {
		if row, ok := m.plan.State.Tables.FailedWrites.Find(m.reader(), "", kind.TheFailedWrites); ok {
			return row.Spec.Writes
		}
		return nil
	}
	m.pass(FailureAge - 10*time.Second)
	if len(failed()) > 0 || conditions() != "" {
		t.Errorf("before a minute %v is reported, and the Mesh has %q", failed(), conditions())
	}
	m.pass(2 * time.Minute)
	of, write, reason := kind.Meshes.Key("", "default"), kind.MeshTrusts.Key("default", kind.MTLSIdentity),
		"name: is rejected"
	if got := failed(); len(got) != 1 || got[0].Of != of || got[0].Write != write ||
		!strings.Contains(got[0].Error, reason) || strings.Contains(got[0].Error, "\n") {
		t.Errorf("%+v is reported, want %s for %s, in one line with %q", got, write, of, reason)
	}
	if got := conditions(); !strings.HasPrefix(got, "False WriteFailed: ") || !strings.Contains(got, reason) {
		t.Errorf("the Mesh has the conditions %q", got)
	}
	m.rejects = ""
	m.pass(2 * time.Minute)
	if len(failed()) > 0 || conditions() != "" {
		t.Errorf("after the write %v is reported, and the Mesh has %q", failed(), conditions())
	}
}
