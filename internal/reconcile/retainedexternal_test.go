package reconcile

import (
	"slices"
	"testing"
	"time"

	"weft/kind"
	"weft/resource"
)

// removedService stores a retained external service, and returns the time when its write is due again.
func (w *world) removedService() (row *resource.Object[kind.RetainedExternalService], due time.Time) {
	row = kind.RetainedExternalServices.Make("default", "api-443", kind.RetainedExternalService{
		Zone: "east", Service: "api", Port: 443, Since: kind.Time{Time: w.now}})
	w.put(row)
	w.reconcile("RetainedExternalService", row.Name)
	return row, w.reconcile("RetainedExternalService", row.Name)
}

func (w *world) hasRetained(row *resource.Object[kind.RetainedExternalService]) bool {
	w.reconcile("RetainedExternalService", row.Name)
	_, ok := w.plan.State.Tables.RetainedExternalServices.Find(w.reader(), row.Mesh, row.Name)
	return ok
}

// The barrier adds the drain time to the acks.
func TestARemovedExternalServiceStaysUntilItsClientsHaveAcked(t *testing.T) {
	w := newWorld(t, "241.0.0.0/8")
	row, _ := w.removedService()
	wait := w.waits["removal of RetainedExternalService default/api-443"]
	if wait == nil || wait.ZonesOnly || wait.ZoneRows != nil ||
		!slices.Equal(wait.Rows, []resource.Key{kind.MeshExternalServices.Key("default", "api")}) {
		t.Fatalf("it waits for %+v", wait)
	}
	w.now = w.now.Add(time.Second)
	if !w.hasRetained(row) {
		t.Fatal("it ends before its clients have acked")
	}
	w.barrier.Finish(wait)
	w.beginWaits()
	if w.hasRetained(row) {
		t.Error("it stays, and its clients have acked")
	}
}

func TestAClientThatAcksNothingDelaysTheEndOfARemovedExternalServiceForAWhile(t *testing.T) {
	w := newWorld(t, "241.0.0.0/8")
	w.plan.DrainTime = 5 * time.Second
	row, due := w.removedService()
	if want := w.now.Add(retainTimeout + 5*time.Second); !due.Equal(want) {
		t.Fatalf("it is looked at again at %s, want %s", due, want)
	}
	w.now = due.Add(-time.Millisecond)
	if !w.hasRetained(row) {
		t.Fatal("it ends too early")
	}
	w.now = due
	if w.hasRetained(row) {
		t.Error("it stays")
	}
}

// A service that returned and was removed again needs new acks.
func TestASecondRemovalOfAnExternalServiceIsAckedAgain(t *testing.T) {
	w := newWorld(t, "241.0.0.0/8")
	row, _ := w.removedService()
	wait := w.waits["removal of RetainedExternalService default/api-443"]
	w.now = w.now.Add(time.Second)
	row, _ = w.removedService()
	w.barrier.Finish(wait)
	w.beginWaits()
	if !w.hasRetained(row) {
		t.Error("it ends with the acks of the first removal")
	}
}
