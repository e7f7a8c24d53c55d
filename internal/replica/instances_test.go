package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weft/internal/admission"
	"weft/internal/bubble"
	"weft/internal/store"
	"weft/internal/store/memory"
	"weft/internal/store/storetest"
	"weft/kind"
	"weft/resource"
)

// world is a store with its replicas. Time is that of the test's bubble.
type world struct {
	t           *testing.T
	rows        store.Store
	lostClients map[string]*atomic.Bool // by ID of a replica, whether it left clients without a replica
}

// cut is a replica's connection to the store, which can be interrupted. Every write begins with a Get or is a Delete.
type cut struct {
	store.Store
	mu  sync.Mutex
	off bool
}

func (c *cut) set(off bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.off = off
}

func (c *cut) err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.off {
		return store.ErrUnavailable
	}
	return nil
}

func (c *cut) Get(ctx context.Context, key resource.Key) (store.Row, error) {
	if err := c.err(); err != nil {
		return store.Row{}, err
	}
	return c.Store.Get(ctx, key)
}

func (c *cut) Delete(ctx context.Context, key resource.Key, version string) error {
	if err := c.err(); err != nil {
		return err
	}
	return c.Store.Delete(ctx, key, version)
}

// Watch delays events while the store is disconnected.
func (c *cut) Watch(ctx context.Context, kinds []string, from store.Cursor) (<-chan []store.Event, error) {
	below, err := c.Store.Watch(ctx, kinds, from)
	if err != nil {
		return nil, err
	}
	events := make(chan []store.Event)
	go func() {
		defer close(events)
		for next := range below {
			for c.err() != nil && ctx.Err() == nil {
				time.Sleep(50 * time.Millisecond)
			}
			select {
			case events <- next:
			case <-ctx.Done():
			}
		}
	}()
	return events, nil
}

// instance is a replica of the world.
type instance struct {
	*Member
	link     *cut
	stop     func() // in order
	requests chan []resource.Key
	mute     chan struct{} // closed: responds
	lost     atomic.Bool   // it has recorded that another one is lost
	stays    atomic.Bool   // it has certificates without a record
}

func (w *world) join(id string) *instance {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	i := &instance{link: &cut{Store: w.rows}, requests: make(chan []resource.Key, 10), mute: make(chan struct{})}
	member, err := Join(ctx, Config{
		ID: id, Store: i.link, Writer: admission.New(i.link, admission.Options{}), Lost: 30 * time.Second,
		Log:            slog.New(slog.DiscardHandler),
		HasLostClients: func(instance string) bool { return w.lostClients[instance].Load() },
		RecordLost:     func(context.Context) error { i.lost.Store(true); return nil },
		MayLeave:       func() bool { return !i.stays.Load() },
		LocalAcked: func(ctx context.Context, _ kind.AckClients, rows []resource.Key, _ func(kind.PendingAcks)) error {
			i.requests <- rows
			select {
			case <-i.mute:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	i.Member = member
	done := make(chan struct{})
	go func() { defer close(done); member.Run(ctx) }()
	i.stop = func() { cancel(); <-done }
	w.t.Cleanup(i.stop)
	return i
}

// crash stops a replica as a kill does: its later writes do not arrive.
func (i *instance) crash() { i.link.set(true); i.stop() }

func inWorld(t *testing.T, test func(t *testing.T, w *world)) {
	bubble.Test(t, func(t *testing.T) {
		w := &world{t, memory.New(memory.Options{}), map[string]*atomic.Bool{"a": {}, "b": {}, "c": {}}}
		t.Cleanup(func() { w.rows.Close() })
		test(t, w)
	})
}

// leaders returns the names of the leading replicas.
func leaders(all ...*instance) string {
	names := ""
	for _, i := range all {
		if i.Leads() {
			names += i.ID()
		}
	}
	return names
}

func advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestOneLeadsAndAnotherFollowsAtOnceWhenItStops(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.join("a")
		advance(time.Second)
		b := w.join("b")
		advance(time.Minute)
		if got := leaders(a, b); got != "a" {
			t.Fatalf("%q lead, want a alone for as long as it lives", got)
		}
		a.stop()
		advance(100 * time.Millisecond)
		if got := leaders(a, b); got != "b" {
			t.Errorf("%q lead after a was stopped, want b at once", got)
		}
		if _, ended := b.HasExpired("a"); !ended {
			t.Error("a was stopped, and b takes it for live")
		}
	})
}

func TestACrashedLeaderIsFollowedWithinTwentySeconds(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b, c := w.join("a"), w.join("b"), w.join("c")
		advance(time.Minute)
		a.crash()
		advance(20 * time.Second)
		if got := leaders(b, c); len(got) != 1 {
			t.Errorf("%q lead, want one of the two that live", got)
		}
		if last, ended := b.HasExpired("a"); !ended || time.Since(last) > 25*time.Second {
			t.Errorf("a: ended %t, heard of last %s ago", ended, time.Since(last))
		}
	})
}

// TestAReplicaThatMayHaveUnrecordedCertificates: the others record what one may have signed that was killed, or that
// stopped before it has recorded everything. One that gives its lease back has recorded it.
func TestAReplicaThatMayHaveUnrecordedCertificates(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b, c := w.join("a"), w.join("b"), w.join("c")
		advance(20 * time.Second)
		a.stop()
		advance(20 * time.Second)
		if c.lost.Load() || b.lost.Load() || c.Replicas() != 1 {
			t.Errorf("a replica that has given its lease back is lost; %d others are left", c.Replicas())
		}
		b.stays.Store(true)
		b.stop()
		advance(20 * time.Second)
		if !c.lost.Swap(false) || c.Replicas() != 0 {
			t.Errorf("the one that stopped with unrecorded certificates is not lost; %d others are left", c.Replicas())
		}
		a = w.join("a")
		advance(20 * time.Second)
		a.crash()
		advance(20 * time.Second)
		if !c.lost.Load() {
			t.Error("the one that was killed is not lost")
		}
	})
}

// TestAReplicaJoinsAStoreThatTakesNoWrites: it has a lease, and may lead, once the store takes writes.
func TestAReplicaJoinsAStoreThatTakesNoWrites(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		full := &storetest.Outage{Store: w.rows}
		full.Fail(store.ErrReadOnly)
		w.rows = full
		a := w.join("a")
		advance(20 * time.Second)
		if a.Leads() || a.CheckStored() == nil {
			t.Error("it leads without a lease")
		}
		full.Fail(nil)
		advance(20 * time.Second)
		if !a.Leads() || a.CheckStored() != nil {
			t.Errorf("it leads: %v; its lease: %v", a.Leads(), a.CheckStored())
		}
	})
}

func TestALeaderThatLosesTheStoreStandsDownBeforeAnotherLeads(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.join("a")
		advance(time.Second)
		b := w.join("b")
		advance(time.Minute)
		led := make(chan error, 2)
		go a.Lead(t.Context(), func(ctx context.Context) {
			<-ctx.Done()
			if b.Leads() {
				led <- errors.New("b leads while what a leads has not stopped")
			} else {
				led <- nil
			}
		})
		synctest.Wait()
		a.link.set(true)
		if err := <-led; err != nil {
			t.Error(err)
		}
		advance(20 * time.Second)
		a.link.set(false)
		advance(20 * time.Second)
		if got := leaders(a, b); got != "b" {
			t.Errorf("%q lead, want b, which took over", got)
		}
		if _, ended := b.HasExpired("a"); ended {
			t.Error("a is back, and b does not take it for live")
		}
	})
}

func TestWaitAckedReturnsWhenEveryOtherHasResponded(t *testing.T) {
	rows := []resource.Key{kind.Dataplanes.Key("default", "web-1")}
	request := func(t *testing.T, i *instance) chan error {
		result := make(chan error, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		t.Cleanup(cancel)
		go func() {
			_, err := i.WaitAcked(ctx, kind.AckClients{}, rows, nil)
			result <- err
		}()
		advance(time.Second)
		return result
	}
	pending := func(t *testing.T, result chan error, when string) {
		t.Helper()
		synctest.Wait()
		select {
		case err := <-result:
			t.Fatalf("returned %v %s", err, when)
		default:
		}
	}
	t.Run("all answer", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			a, b, c := w.join("a"), w.join("b"), w.join("c")
			advance(time.Second)
			result := request(t, a)
			if got := fmt.Sprint(<-b.requests); got != fmt.Sprint(rows) {
				t.Errorf("b was asked about %s, want %s", got, rows)
			}
			close(b.mute)
			advance(time.Second)
			pending(t, result, "without c's answer")
			close(c.mute)
			if err := <-result; err != nil {
				t.Error(err)
			}
			advance(time.Second)
			if left, _, _ := w.rows.List(t.Context(), kind.AckRequests.Name); len(left) > 0 {
				t.Errorf("%d ack requests are left", len(left))
			}
		})
	})
	t.Run("a replica that dies is waited for until its clients are connected to others", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			a, b := w.join("a"), w.join("b")
			advance(time.Second)
			w.lostClients["b"].Store(true)
			b.stop()
			result := request(t, a)
			pending(t, result, "while clients of b are nowhere else")
			w.lostClients["b"].Store(false)
			if err := <-result; err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("one that dies with clients that stay away is waited for until the bound", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			a, b := w.join("a"), w.join("b")
			w.lostClients["b"].Store(true)
			advance(time.Second)
			began := time.Now()
			result := request(t, a)
			b.crash()
			if err := <-result; !errors.Is(err, context.DeadlineExceeded) || time.Since(began) < 30*time.Second {
				t.Errorf("%v after %s, want the deadline's error at the deadline", err, time.Since(began))
			}
		})
	})
	t.Run("one that joins is asked too", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			a, b := w.join("a"), w.join("b")
			advance(time.Second)
			result := request(t, a)
			c := w.join("c")
			advance(time.Second)
			close(b.mute)
			advance(time.Second)
			pending(t, result, "without the answer of one that joined meanwhile")
			close(c.mute)
			if err := <-result; err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("what a dead one asked is cleared away", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			a, b := w.join("a"), w.join("b")
			advance(time.Second)
			request(t, a)
			a.crash()
			close(b.mute)
			advance(time.Minute)
			if left, _, _ := w.rows.List(t.Context(), kind.AckRequests.Name); len(left) > 0 {
				t.Errorf("%d ack requests are left", len(left))
			}
		})
	})
}

func TestAloneNothingIsWrittenAndNoReplicaIsWaitedFor(t *testing.T) {
	m := NewSingle(Config{ID: "a"})
	led := make(chan struct{})
	go m.Lead(t.Context(), func(context.Context) { close(led) })
	<-led
	rows := []resource.Key{kind.Dataplanes.Key("default", "web-1")}
	if _, err := m.WaitAcked(t.Context(), kind.AckClients{}, rows, nil); err != nil || !m.Leads() {
		t.Errorf("leads %t, asking: %v", m.Leads(), err)
	}
	if _, ended := m.HasExpired("an earlier run"); !ended {
		t.Error("an earlier run is taken for live")
	}
}

// TestAloneClientsOfAnEarlierRunAreWaitedFor: their configuration is unknown until they are back, or until their time
// is over.
func TestAloneClientsOfAnEarlierRunAreWaitedFor(t *testing.T) {
	for name, test := range map[string]struct{ back, want time.Duration }{
		"they come back": {5 * time.Second, 5 * time.Second},
		"they do not":    {time.Hour, 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				began := time.Now()
				m := NewSingle(Config{ID: "a", Lost: 30 * time.Second, HasLostClients: func(string) bool {
					return time.Since(began) < test.back
				}})
				bounded, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				if _, err := m.WaitAcked(bounded, kind.AckClients{}, nil, nil); err == nil {
					t.Error("they have no waiting caller")
				}
				if _, err := m.WaitAcked(t.Context(), kind.AckClients{}, nil, nil); err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took < test.want || took > test.want+2*time.Second {
					t.Errorf("they were waited for for %s, want %s", took, test.want)
				}
			})
		})
	}
}

func TestPresenceCostsOneWriteEachFiveSeconds(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.join("a")
		w.join("b")
		advance(time.Second)
		versions := map[string]bool{}
		for range 60 {
			advance(time.Second)
			for _, k := range []string{kind.Instances.Name, kind.Leaderships.Name, kind.AckRequests.Name} {
				rows, _, err := w.rows.List(t.Context(), k)
				if err != nil {
					t.Fatal(err)
				}
				for _, row := range rows {
					versions[row.Version] = true
				}
			}
		}
		if n := len(versions); n < 24 || n > 28 {
			t.Errorf("%d versions were written within a minute, want one each 5 s of each of the two", n)
		}
	})
}

// For any faults of the store, no two replicas lead at once, and one leads when the store is back.
func TestNoTwoLeadAtOnce(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				random := rand.New(rand.NewPCG(seed, 0))
				all := []*instance{w.join("a"), w.join("b"), w.join("c")}
				for range 3000 { // five minutes
					advance(100 * time.Millisecond)
					if got := leaders(all...); len(got) > 1 {
						t.Fatalf("%q lead at once", got)
					}
					if i := all[random.IntN(len(all))]; random.IntN(50) == 0 {
						i.link.set(random.IntN(2) == 0)
					}
				}
				for _, i := range all {
					i.link.set(false)
				}
				advance(30 * time.Second)
				if got := leaders(all...); len(got) != 1 {
					t.Errorf("%q lead once the store is back for all, want one", got)
				}
			})
		})
	}
}
