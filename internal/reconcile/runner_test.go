package reconcile

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"weft/kind"
	"weft/resource"
)

func newMirrored(t *testing.T) *mirrored {
	return follow(newWorld(t, "241.0.0.0/8"), false, slog.New(slog.DiscardHandler))
}

// The condition of retained endpoints follows their row, also where it changes under the same name.
func TestTheRetainedEndpointsAreCounted(t *testing.T) {
	m := newMirrored(t)
	retained := func(endpoints ...kind.RetainedEndpoint) resource.Any {
		return kind.RetainedEndpointsList.Make("default", "web-8080", kind.RetainedEndpoints{
			Service: "web", Port: 8080, Since: kind.Time{Time: m.now}, Endpoints: endpoints,
		})
	}
	blue, green := kind.RetainedEndpoint{Dataplane: "blue", Address: "10.0.0.1", Port: 8080},
		kind.RetainedEndpoint{Dataplane: "green", Address: "10.0.0.2", Port: 8080}
	m.user(kind.MeshServices.Make("default", "web", kind.MeshService{Ports: []kind.ServicePort{{Port: 8080}}}),
		m.dataplane("blue", "10.0.0.1", "x"), m.serves("blue", "10.0.0.1"), m.dataplane("green", "10.0.0.2", "x"),
		m.serves("green", "10.0.0.2"))
	for _, step := range []struct {
		row  resource.Any
		says string
	}{
		{retained(blue), "so 1 former ones stay"},
		{retained(blue, green), "so 2 former ones stay"},
	} {
		m.user(step.row)
		m.drain()
		_, status := m.service("web")
		if len(status.Conditions) != 1 || !strings.Contains(status.Conditions[0].Message, step.says) {
			t.Errorf("the conditions are %+v, want one that says %q", status.Conditions, step.says)
		}
	}
	m.removes(kind.RetainedEndpointsList.Key("default", "web-8080"))
	m.drain()
	if _, status := m.service("web"); len(status.Conditions) > 0 {
		t.Errorf("nothing is retained, and the conditions are %+v", status.Conditions)
	}
}

// A row is not deleted while the store has a source that the table does not have yet.
func TestNoRowOfAStoredSourceIsDeleted(t *testing.T) {
	m := newMirrored(t)
	m.lags = true
	retained := kind.ZoneEgressCertificatesList.Make("default", "out",
		kind.DataplaneCertificates{Certificates: []kind.WorkloadCertificate{{
			SpiffeIDs: kind.SpiffeIDsOf("spiffe://default/egress"), Root: "root",
			Until: kind.Time{Time: m.now.Add(time.Hour)},
		}}})
	m.user(retained, ownEgress("out"))
	m.deliver(1)
	for range 5 {
		m.now = m.now.Add(statusDelay)
		m.step()
	}
	if _, ok := m.rows[retained.Key()]; !ok {
		t.Fatal("the certificates of a stored ZoneEgress were removed before the table had it")
	}
	m.drain()
	m.removes(kind.ZoneEgresses.Key("", "out"))
	m.drain()
	if _, ok := m.rows[retained.Key()]; ok {
		t.Error("the certificates of a ZoneEgress stay that is gone")
	}
}

// A write that equals the stored row is not repeated, and neither is one that the table does not have yet.
func TestAWriteIsNotRepeated(t *testing.T) {
	m := newMirrored(t)
	m.user(services("web")[0])
	m.drain()
	m.written, m.alike = 0, true
	m.user(m.nackingProxy("a-1", "no", kind.Cause{Kind: "MeshService", Name: "web"}))
	m.drain()
	if m.written != 1 {
		t.Errorf("%d writes, and each comes to what is stored", m.written)
	}
	m.written, m.alike, m.lags = 0, false, true
	m.user(m.nackingProxy("a-1", "never", kind.Cause{Kind: "MeshService", Name: "web"}))
	m.deliver(1)
	for range 5 {
		m.now = m.now.Add(10 * statusDelay)
		m.step()
	}
	if m.written != 1 {
		t.Errorf("%d writes before the table has heard of the first", m.written)
	}
}

// A problem is logged once while it lasts. Another problem beside it or in its place is logged too, and so is one that
// returns.
func TestEachProblemIsLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	m := follow(newWorld(t, "241.0.0.0/8"), false, slog.New(slog.NewTextHandler(&log, nil)))
	of := func(problems ...string) (w Writes) {
		for _, problem := range problems {
			w.Notices = append(w.Notices, Notice{Message: problem})
		}
		return w
	}
	for _, step := range []struct {
		writes Writes
		logged string
	}{
		{of("one"), "one"}, {of("one"), ""}, {of("one", "two"), "two"}, {of("three"), "three"}, {of(), ""},
		{of("one"), "one"},
	} {
		log.Reset()
		m.rn.setWrites(Request{Kind: "test"}, step.writes, m.now)
		m.drain()
		if got := log.String(); strings.Count(got, "msg=") != len(strings.Fields(step.logged)) ||
			!strings.Contains(got, step.logged) {
			t.Errorf("of %v the log has %q, want %q", step.writes.Notices, got, step.logged)
		}
	}
}

// No entry of a deleted resource is kept.
func TestDeletedResourcesAreNotKept(t *testing.T) {
	m := newMirrored(t)
	rows := append(services("web"), m.dataplane("web-1", "10.0.0.1", "web"), m.serves("web-1", "10.0.0.1"),
		ownEgress("out"),
		kind.Meshes.Make("", "default", kind.Mesh{}), m.zoneIngress("in", "10.0.0.9"), m.stream("in", ""),
		m.passes("in", "10.0.0.9"))
	m.user(rows...)
	m.drain()
	for _, o := range rows {
		m.removes(o.Key())
	}
	m.drain()
	kept := 0
	for _, f := range m.plan.families {
		kept += f.Len()
	}
	if left := len(m.rn.jobs) + len(m.rn.unseen) + len(m.rn.reserved) + len(m.rn.making); left+kept > 0 {
		t.Errorf("%d writes wait and %d are kept, of nothing", left, kept)
	}
	for gone := range m.plan.absences.All(m.plan.State.Tables.DB.Snapshot()) {
		t.Errorf("%v is absent still", gone)
	}
}

// A renewed lease commits nothing, and a set of instances that differs does.
func TestOnlyAnotherSetOfInstancesIsCommitted(t *testing.T) {
	m := newMirrored(t)
	for _, step := range []struct {
		live    []string
		commits bool
	}{
		{[]string{"a"}, true}, {[]string{"a"}, false}, {[]string{"a", "b"}, true}, {[]string{"a", "b"}, false},
		{[]string{"b"}, true},
	} {
		before := m.plan.State.Tables.DB.Snapshot()
		m.rc.SetInstances(step.live)
		if commits := m.plan.State.Tables.DB.Snapshot() != before; commits != step.commits {
			t.Errorf("%v: committed %v, want %v", step.live, commits, step.commits)
		}
	}
}

// A row that the table never gets, such as one of a newer release, is compared with the store less and less often.
func TestARowThatTheTableLacksIsComparedLessAndLessOften(t *testing.T) {
	m := newMirrored(t)
	m.lags = true
	m.user(services("web")[0])
	m.deliver(1)
	reads := 0
	m.rn.writer = counting{m, &reads}
	for range 3600 {
		m.now = m.now.Add(time.Second)
		m.step()
	}
	if reads == 0 || reads > 150 {
		t.Errorf("it is read %d times within an hour, want once each minute", reads)
	}
}

// A row that is deleted before the table has it is written again.
func TestARowThatIsDeletedBeforeTheTableHasItIsWrittenAgain(t *testing.T) {
	m := newMirrored(t)
	m.user(kind.Meshes.Make("", "default", kind.Mesh{}), m.dataplane("a", "10.0.0.1", "web"), m.serves("a", "10.0.0.1"))
	m.lags = true
	m.now = m.now.Add(servingDelay)
	m.step()
	service := kind.MeshServices.Key("default", "web")
	if _, ok := m.rows[service]; !ok {
		t.Fatal("no service is generated")
	}
	m.removes(service)
	m.drain()
	if _, ok := m.rows[service]; !ok {
		t.Error("the generated service stays away though a proxy serves its tag")
	}
}

// counting counts the reads of versions.
type counting struct {
	*mirrored
	reads *int
}

func (c counting) Version(ctx context.Context, key resource.Key) (string, error) {
	*c.reads++
	return c.mirrored.Version(ctx, key)
}

// The store may execute a write after it has failed, so its virtual IP stays reserved: another service that is to get
// the same address waits until the row is read back, or until the store's longest transaction is over.
func TestTheAddressOfAFailedWriteStaysReserved(t *testing.T) {
	for name, stored := range map[string]bool{"it is executed": true, "it is never executed": false} {
		t.Run(name, func(t *testing.T) {
			m := follow(newWorld(t, "241.0.0.0/30"), false, slog.New(slog.DiscardHandler)) // two addresses
			m.user(services("a")[2])
			m.fails = true
			m.now = m.now.Add(statusDelay)
			m.step()
			m.fails = false
			var address string
			for ip := range m.rn.reserved {
				address = ip
			}
			if address == "" {
				t.Fatal("no address is reserved")
			}
			failed := m.now
			m.removes(services("a")[2].Key()) // what remains is the write that failed
			if stored {
				m.now = m.now.Add(5 * time.Second)
				m.mu.Lock()
				m.store(kind.MeshExternalServiceStatuses.Make("default", "a",
					kind.MeshExternalServiceStatus{VIP: &kind.VIP{IP: address}}))
				m.mu.Unlock()
			}
			for m.rn.reserved[address] != nil {
				m.now = m.now.Add(100 * time.Millisecond)
				m.step()
			}
			if reserved := m.now.Sub(failed); stored && reserved > 10*time.Second ||
				!stored && reserved < maxTransactionTime {
				t.Errorf("the address is reserved for %s", reserved)
			}
		})
	}
}

func TestARowHasOneWriter(t *testing.T) {
	m := newMirrored(t)
	defer func() {
		if recover() == nil {
			t.Error("a second writer of a kind must not go unnoticed")
		}
	}()
	m.plan.addFamily("another", nil, kind.MeshTrustStatuses.Name)
}
