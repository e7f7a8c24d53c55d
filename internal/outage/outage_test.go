package outage

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"weft/internal/bubble"
	"weft/internal/store"
	"weft/internal/store/memory"
	"weft/internal/store/storetest"
	"weft/kind"
	"weft/resource"
)

const day = 24 * time.Hour

// machine is a control plane with a disk.
type machine struct {
	*Outage
	t        *testing.T
	disk     *storetest.Outage
	rows     store.Store
	recorded []time.Time
	hasMark  bool
	markErr  error
}

// run starts a machine in the bubble of a test.
func run(t *testing.T, c Config) *machine {
	m := &machine{t: t, disk: &storetest.Outage{Store: memory.New(memory.Options{})}, hasMark: c.Marked}
	if c.Life == nil {
		c.Life = func() time.Duration { return day }
	}
	c.Timeout, c.Log = NoticeAfter, slog.New(slog.DiscardHandler)
	c.Record = func(_ context.Context, until time.Time) error {
		if err := m.write("recorded" + until.String()); err != nil {
			return err
		}
		m.recorded = append(m.recorded, until)
		return nil
	}
	c.Mark = func() error { m.hasMark = m.hasMark || m.markErr == nil; return m.markErr }
	c.Unmark = func() error { m.hasMark = false; return nil }
	m.Outage = New(c)
	m.rows = m.ObserveStore(m.disk)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { m.Run(ctx); close(ended) }()
	t.Cleanup(func() { cancel(); <-ended })
	return m
}

func (m *machine) write(name string) error {
	_, err := m.rows.Create(m.t.Context(), store.Row{Key: resource.Key{Kind: "Thing", Name: name}})
	return err
}

func (m *machine) wantFull(name string) {
	m.t.Helper()
	if err := m.write(name); !errors.Is(err, store.ErrFull) {
		m.t.Fatalf("a write on a full disk: %v", err)
	}
}

// advance lets simulated time pass.
func advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// last returns the expiry that was recorded last.
func (m *machine) last() time.Time { return m.recorded[len(m.recorded)-1] }

// tableHas has the table bring the row that was recorded last.
func (m *machine) tableHas(until time.Time) {
	m.Observe([]resource.Any{kind.UnrecordedCertificatesList.Make("", kind.TheUnrecordedCertificates,
		kind.UnrecordedCertificates{Until: kind.Time{Time: until}})}, nil, nil, time.Now())
}

// TestAfterAnOutageUnrecordedCertificatesCountFirst: no write of the reconciler happens while the store takes none, and
// afterwards until the table has the expiry of the last certificate that was renewed meanwhile.
func TestAfterAnOutageUnrecordedCertificatesCountFirst(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m := run(t, Config{})
		if !m.HasEnded() {
			t.Fatal("a store that takes writes is not taken as such")
		}
		m.disk.Fail(store.ErrFull)
		m.wantFull("first")
		if _, _, is := m.Now(); is || m.RenewsUnrecorded() {
			t.Error("one failed write is an outage")
		}
		advance(NoticeAfter)
		since, why, is := m.Now()
		if !is || time.Since(since) != NoticeAfter || why != store.Why(store.ErrFull) {
			t.Errorf("the outage began at %v: %q, %v", since, why, is)
		}
		if m.HasEnded() || m.hasMark {
			t.Errorf("ended: %v, marked: %v", m.HasEnded(), m.hasMark)
		}
		if !m.RenewsUnrecorded() || !m.hasMark {
			t.Error("no certificate is renewed, or none after a mark")
		}
		advance(day)
		if m.HasEnded() || len(m.recorded) != 0 {
			t.Errorf("during the outage: ended %v, recorded %v", m.HasEnded(), m.recorded)
		}
		m.disk.Fail(nil)
		advance(quiet + attemptPeriod)
		if len(m.recorded) == 0 || m.last().Before(time.Now().Add(day)) {
			t.Fatalf("recorded: %v, want a lifetime from now", m.recorded)
		}
		if _, _, is := m.Now(); is || m.hasMark || m.RenewsUnrecorded() {
			t.Error("the outage goes on after a write")
		}
		if m.HasEnded() {
			t.Error("it has ended before the table has what was recorded")
		}
		m.tableHas(m.last())
		if m.HasEnded() {
			t.Error("it has ended at once: a write may be of an earlier table")
		}
		advance(openDelay)
		if !m.HasEnded() {
			t.Error("it has not ended once the table has what was recorded")
		}
	})
}

// TestAMarkOfAnEarlierRun: a control plane that was stopped in an outage, and starts after it, records first.
func TestAMarkOfAnEarlierRun(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m := run(t, Config{Marked: true})
		synctest.Wait()
		if len(m.recorded) != 1 || m.hasMark || m.HasEnded() {
			t.Errorf("recorded %v, marked %v, ended %v", m.recorded, m.hasMark, m.HasEnded())
		}
	})
}

// TestNoCertificateIsRenewedWithoutAMark: a later run would not know of it.
func TestNoCertificateIsRenewedWithoutAMark(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m := run(t, Config{})
		m.markErr = errors.New("the file system is read-only")
		m.disk.Fail(store.ErrFull)
		m.wantFull("first")
		advance(time.Hour)
		if m.RenewsUnrecorded() {
			t.Error("certificates are renewed without a mark")
		}
	})
}

// TestAReplicaThatIsCutOffEndsToRenew: the others record for how long a lost replica may sign.
func TestAReplicaThatIsCutOffEndsToRenew(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m := run(t, Config{Shared: true})
		m.disk.Fail(store.ErrFull)
		m.wantFull("first")
		began := time.Now()
		advance(MaxUnrecorded)
		if !m.RenewsUnrecorded() {
			t.Error("no certificate is renewed")
		}
		advance(time.Second)
		if m.RenewsUnrecorded() {
			t.Error("certificates are renewed for ever")
		}
		other := run(t, Config{Shared: true})
		if err := other.RecordLost(t.Context()); err != nil || other.HasEnded() {
			t.Errorf("recording a lost replica: %v, ended %v", err, other.HasEnded())
		}
		if last := began.Add(MaxUnrecorded + day); other.recorded[0].Before(last) {
			t.Errorf("certificates count as valid until %v, want %v", other.recorded[0], last)
		}
	})
}

// TestADiskThatIsAlmostFull: small writes that succeed do not end an outage while others fail.
func TestADiskThatIsAlmostFull(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m := run(t, Config{})
		for n := range 20 {
			m.disk.Fail(store.ErrFull)
			m.wantFull("large")
			m.disk.Fail(nil)
			if err := m.write("small" + string(rune('a'+n))); err != nil {
				t.Fatal(err)
			}
			advance(2 * time.Second)
		}
		if _, _, is := m.Now(); !is || m.HasEnded() || !m.RenewsUnrecorded() {
			t.Error("the outage has ended")
		}
		advance(time.Minute)
		if _, _, is := m.Now(); is || !slices.IsSortedFunc(m.recorded, time.Time.Compare) {
			t.Error("the outage has not ended")
		}
	})
}

// TestASharedStoreThatDeniesOneWrite: other writes show that it takes writes.
func TestASharedStoreThatDeniesOneWrite(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m := run(t, Config{Shared: true})
		for n := range 20 {
			m.disk.Fail(store.ErrFull)
			m.wantFull("denied")
			m.disk.Fail(nil)
			advance(time.Second)
			if err := m.write("lease" + string(rune('a'+n))); err != nil {
				t.Fatal(err)
			}
			advance(time.Second)
		}
		if _, _, is := m.Now(); is || !m.HasEnded() || len(m.recorded) != 0 {
			t.Errorf("an outage: %v, ended: %v, recorded: %v", is, m.HasEnded(), m.recorded)
		}
	})
}
