package instances

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

	"weft/internal/admit"
	"weft/internal/store"
	"weft/internal/store/memory"
	"weft/kind"
	"weft/resource"
)

// world is a store with its instances. Time is that of the test's bubble.
type world struct {
	t      *testing.T
	rows   store.Store
	strays map[string]*atomic.Bool // whether clients of an instance are nowhere else
}

// cut is a store that an instance reaches or does not. Every write begins with a Get or is a Delete.
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

// Watch holds events back while the store is not reached.
func (c *cut) Watch(ctx context.Context, kind string, from store.Cursor) (<-chan []store.Event, error) {
	below, err := c.Store.Watch(ctx, kind, from)
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

// instance is one of the world's.
type instance struct {
	*Member
	link *cut
	stop func() // in order
	ask  chan []resource.Key
	mute chan struct{} // closed: answers
}

func (w *world) join(id string) *instance {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	i := &instance{link: &cut{Store: w.rows}, ask: make(chan []resource.Key, 10), mute: make(chan struct{})}
	member, err := Join(ctx, Config{
		ID: id, Store: i.link, Writer: admit.New(i.link, admit.Options{}), Lost: 30 * time.Second,
		Log:            slog.New(slog.DiscardHandler),
		HasLostClients: func(instance string) bool { return w.strays[instance].Load() },
		LocalAcked: func(ctx context.Context, rows []resource.Key) error {
			i.ask <- rows
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

// crash makes an instance stop as if it had been killed: nothing that it writes arrives any more.
func (i *instance) crash() { i.link.set(true); i.stop() }

func inWorld(t *testing.T, test func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t, memory.New(memory.Options{}), map[string]*atomic.Bool{"a": {}, "b": {}, "c": {}}}
		t.Cleanup(func() { w.rows.Close() })
		test(t, w)
	})
}

// leaders names those that lead.
func leaders(all ...*instance) string {
	names := ""
	for _, i := range all {
		if i.Leads() {
			names += i.ID()
		}
	}
	return names
}

func settle(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestOneLeadsAndAnotherFollowsAtOnceWhenItStops(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.join("a")
		settle(time.Second)
		b := w.join("b")
		settle(time.Minute)
		if got := leaders(a, b); got != "a" {
			t.Fatalf("%q lead, want a alone for as long as it lives", got)
		}
		a.stop()
		settle(100 * time.Millisecond)
		if got := leaders(a, b); got != "b" {
			t.Errorf("%q lead after a was stopped, want b at once", got)
		}
		if _, ended := b.Expired("a"); !ended {
			t.Error("a was stopped, and b takes it for live")
		}
	})
}

func TestACrashedLeaderIsFollowedWithinTwentySeconds(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b, c := w.join("a"), w.join("b"), w.join("c")
		settle(time.Minute)
		a.crash()
		settle(20 * time.Second)
		if got := leaders(b, c); len(got) != 1 {
			t.Errorf("%q lead, want one of the two that live", got)
		}
		if last, ended := b.Expired("a"); !ended || time.Since(last) > 25*time.Second {
			t.Errorf("a: ended %t, heard of last %s ago", ended, time.Since(last))
		}
	})
}

func TestALeaderThatLosesTheStoreStandsDownBeforeAnotherLeads(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.join("a")
		settle(time.Second)
		b := w.join("b")
		settle(time.Minute)
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
		settle(20 * time.Second)
		a.link.set(false)
		settle(20 * time.Second)
		if got := leaders(a, b); got != "b" {
			t.Errorf("%q lead, want b, which took over", got)
		}
		if _, ended := b.Expired("a"); ended {
			t.Error("a is back, and b does not take it for live")
		}
	})
}

func TestAskReturnsWhenEveryOtherHasAnswered(t *testing.T) {
	rows := []resource.Key{kind.Dataplanes.Key("default", "web-1")}
	ask := func(t *testing.T, i *instance) chan error {
		asked := make(chan error, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		t.Cleanup(cancel)
		go func() { asked <- i.WaitAcked(ctx, rows) }()
		settle(time.Second)
		return asked
	}
	pending := func(t *testing.T, asked chan error, when string) {
		t.Helper()
		synctest.Wait()
		select {
		case err := <-asked:
			t.Fatalf("returned %v %s", err, when)
		default:
		}
	}
	t.Run("all answer", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			a, b, c := w.join("a"), w.join("b"), w.join("c")
			settle(time.Second)
			asked := ask(t, a)
			if got := fmt.Sprint(<-b.ask); got != fmt.Sprint(rows) {
				t.Errorf("b was asked about %s, want %s", got, rows)
			}
			close(b.mute)
			settle(time.Second)
			pending(t, asked, "without c's answer")
			close(c.mute)
			if err := <-asked; err != nil {
				t.Error(err)
			}
			settle(time.Second)
			if left, _, _ := w.rows.List(t.Context(), kind.AckRequests.Name); len(left) > 0 {
				t.Errorf("%d ack requests are left", len(left))
			}
		})
	})
	t.Run("one that dies is waited for until its clients are elsewhere", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			a, b := w.join("a"), w.join("b")
			settle(time.Second)
			w.strays["b"].Store(true)
			b.stop()
			asked := ask(t, a)
			pending(t, asked, "while clients of b are nowhere else")
			w.strays["b"].Store(false)
			if err := <-asked; err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("one that dies with clients that stay away is waited for until the bound", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			a, b := w.join("a"), w.join("b")
			w.strays["b"].Store(true)
			settle(time.Second)
			began := time.Now()
			asked := ask(t, a)
			b.crash()
			if err := <-asked; !errors.Is(err, context.DeadlineExceeded) || time.Since(began) < 30*time.Second {
				t.Errorf("%v after %s, want the deadline's error at the deadline", err, time.Since(began))
			}
		})
	})
	t.Run("one that joins is asked too", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			a, b := w.join("a"), w.join("b")
			settle(time.Second)
			asked := ask(t, a)
			c := w.join("c")
			settle(time.Second)
			close(b.mute)
			settle(time.Second)
			pending(t, asked, "without the answer of one that joined meanwhile")
			close(c.mute)
			if err := <-asked; err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("what a dead one asked is cleared away", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			a, b := w.join("a"), w.join("b")
			settle(time.Second)
			ask(t, a)
			a.crash()
			close(b.mute)
			settle(time.Minute)
			if left, _, _ := w.rows.List(t.Context(), kind.AckRequests.Name); len(left) > 0 {
				t.Errorf("%d ack requests are left", len(left))
			}
		})
	})
}

func TestAloneNothingIsWrittenAndNobodyIsAsked(t *testing.T) {
	m := Alone(Config{ID: "a"})
	led := make(chan struct{})
	go m.Lead(t.Context(), func(context.Context) { close(led) })
	<-led
	if err := m.WaitAcked(t.Context(), []resource.Key{kind.Dataplanes.Key("default", "web-1")}); err != nil ||
		!m.Leads() {
		t.Errorf("leads %t, asking: %v", m.Leads(), err)
	}
	if _, ended := m.Expired("an earlier run"); !ended {
		t.Error("an earlier run is taken for live")
	}
}

// TestAloneClientsOfAnEarlierRunAreWaitedFor: what they run with nobody knows before they are back, or their
// time is over.
func TestAloneClientsOfAnEarlierRunAreWaitedFor(t *testing.T) {
	for name, test := range map[string]struct{ back, want time.Duration }{
		"they come back": {5 * time.Second, 5 * time.Second},
		"they do not":    {time.Hour, 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				m := Alone(Config{ID: "a", Lost: 30 * time.Second, HasLostClients: func(string) bool {
					return time.Since(began) < test.back
				}})
				bounded, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				if err := m.WaitAcked(bounded, nil); err == nil {
					t.Error("nobody waits for them")
				}
				if err := m.WaitAcked(t.Context(), nil); err != nil {
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
		settle(time.Second)
		versions := map[string]bool{}
		for range 60 {
			settle(time.Second)
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

// Whatever the store does to them, no two instances lead at once, and one leads when it is back.
func TestNoTwoLeadAtOnce(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				random := rand.New(rand.NewPCG(seed, 0))
				all := []*instance{w.join("a"), w.join("b"), w.join("c")}
				for range 3000 { // five minutes
					settle(100 * time.Millisecond)
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
				settle(30 * time.Second)
				if got := leaders(all...); len(got) != 1 {
					t.Errorf("%q lead once the store is back for all, want one", got)
				}
			})
		})
	}
}
