package mirror_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weft/internal/admission"
	"weft/internal/bubble"
	"weft/internal/mirror"
	"weft/internal/store"
	"weft/internal/store/memory"
	"weft/kind"
	"weft/resource"
)

// slow shows the events of each stream after delays, as a busy machine may.
type slow struct {
	store.Store
	delay func(kind string) time.Duration
}

func (s *slow) Watch(ctx context.Context, kinds []string, from store.Cursor) (<-chan []store.Event, error) {
	events, err := s.Store.Watch(ctx, kinds, from)
	if err != nil {
		return nil, err
	}
	late := make(chan []store.Event)
	go func() {
		defer close(late)
		for e := range events {
			select {
			case <-time.After(s.delay(e[0].Row.Key.Kind)):
			case <-ctx.Done():
				return
			}
			select {
			case late <- e:
			case <-ctx.Done():
				return
			}
		}
	}()
	return late, nil
}

// batches are the names of the rows in each batch of a mirror of Meshes and Secrets.
type batches struct {
	store.Store
	t *testing.T

	mu  sync.Mutex
	all [][]string
}

func mirrorSlowly(t *testing.T, delay func(kind string) time.Duration) *batches {
	b := &batches{Store: memory.New(memory.Options{}), t: t}
	ctx, cancel := context.WithCancel(t.Context())
	wait, err := mirror.Start(ctx, mirror.Config{
		Store: &slow{b.Store, delay}, Kinds: mirroredKinds, Decode: admission.Decode,
		Apply: b.apply, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		wait()
	})
	return b
}

func (b *batches) apply(batch mirror.Batch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var names []string
	for _, o := range batch.Put {
		names = append(names, o.Envelope().Name)
	}
	if slices.Sort(names); len(names) > 0 {
		b.all = append(b.all, names)
	}
}

// applied are the batches so far.
func (b *batches) applied() [][]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.all)
}

func (b *batches) write(k resource.Key) {
	b.t.Helper()
	if _, err := b.Create(b.t.Context(), store.Row{Key: k, Body: []byte("{}")}); err != nil {
		b.t.Fatal(err)
	}
}

func (b *batches) mesh(name string)   { b.write(kind.Meshes.Key("", name)) }
func (b *batches) secret(name string) { b.write(kind.Secrets.Key("default", name)) }

// below returns random durations and numbers below a limit, for several goroutines.
func below(seed uint64) func(limit time.Duration) time.Duration {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 0))
	return func(limit time.Duration) time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return time.Duration(random.Int64N(int64(limit)))
	}
}

func TestABatchHasTheEarlierWritesOfOtherKinds(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := mirrorSlowly(t, func(of string) time.Duration {
			if of == kind.Meshes.Name {
				return time.Second
			}
			return 0
		})
		b.mesh("first")
		b.secret("second")
		synctest.Wait()
		b.mesh("third")
		waitUntilQuiet(t)
		if got := fmt.Sprint(b.applied()); got != "[[first second] [third]]" {
			t.Errorf("the batches are %s, want [[first second] [third]]", got)
		}
	})
}

func TestBatchesAreBeginningsOfTheHistory(t *testing.T) {
	for seed := range uint64(200) {
		bubble.Test(t, func(t *testing.T) {
			upTo := below(seed)
			b := mirrorSlowly(t, func(string) time.Duration { return upTo(20 * time.Millisecond) })
			const writes = 30
			for i := range writes {
				if name := fmt.Sprintf("w%02d", i); upTo(2) == 0 {
					b.mesh(name)
				} else {
					b.secret(name)
				}
				time.Sleep(upTo(10 * time.Millisecond))
			}
			waitUntilQuiet(t)
			applied := 0
			for _, batch := range b.applied() {
				for _, name := range batch {
					if want := fmt.Sprintf("w%02d", applied); name != want {
						t.Fatalf("seed %d: a batch has %s before %s", seed, name, want)
					}
					applied++
				}
			}
			if applied != writes {
				t.Errorf("seed %d: %d writes are applied, want %d", seed, applied, writes)
			}
		})
	}
}

// unread is a store some of whose Secrets cannot be read for a while: some of the events, and all rows while bad is
// set.
type unread struct {
	store.Store
	some  func() bool
	bad   atomic.Bool
	tries atomic.Int64 // of lists while bad is set
	alone atomic.Int64 // lists of Secrets by themselves
}

func (u *unread) List(ctx context.Context, kinds ...string) ([]store.Row, store.Cursor, error) {
	if u.bad.Load() && slices.Contains(kinds, kind.Secrets.Name) {
		u.tries.Add(1)
		return nil, "", &store.UnreadableError{Key: kind.Secrets.Key("default", "x"), Err: errors.New("no key")}
	}
	if len(kinds) == 1 && kinds[0] == kind.Secrets.Name {
		u.alone.Add(1)
	}
	return u.Store.List(ctx, kinds...)
}

func (u *unread) Watch(ctx context.Context, kinds []string, from store.Cursor) (<-chan []store.Event, error) {
	events, err := u.Store.Watch(ctx, kinds, from)
	if err != nil {
		return nil, err
	}
	out := make(chan []store.Event)
	go func() {
		defer close(out)
		for batch := range events {
			batch = slices.Clone(batch)
			for i, e := range batch {
				if e.Row.Key.Kind == kind.Secrets.Name && (u.bad.Load() || u.some()) {
					batch[i] = store.Event{Row: store.Row{Key: e.Row.Key}, Unreadable: true, Cursor: e.Cursor}
				}
			}
			select {
			case out <- batch:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out, nil
}

// states are those that a store has had, by position.
type states struct {
	store.Store
	mu     sync.Mutex
	before map[int64]map[resource.Key]string
}

// record records the state after a write. It is called after each one.
func (s *states) record(t *testing.T) {
	t.Helper()
	rows, at, err := s.List(t.Context(), mirroredKinds...)
	if err != nil {
		t.Fatal(err)
	}
	state := map[resource.Key]string{}
	for _, row := range rows {
		state[row.Key] = row.Version
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before[s.Position(at)] = state
}

func (s *states) check(position int64, versions map[resource.Key]string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state, ok := s.before[position]; !ok || !maps.Equal(state, versions) {
		return fmt.Errorf("a batch makes the state %v at %d, where the store had %v", versions, position, state)
	}
	return nil
}

// TestAnEventNeverReplacesALaterListedRow: watches end, and events cannot be read, while the stream lags. After each
// batch the mirror has a state that the store has had, the one of its position.
func TestAnEventNeverReplacesALaterListedRow(t *testing.T) {
	for seed := range uint64(200) {
		bubble.Test(t, func(t *testing.T) {
			upTo := below(seed)
			rows := &states{Store: memory.New(memory.Options{}), before: map[int64]map[resource.Key]string{}}
			t.Cleanup(func() { rows.Close() })
			rows.record(t)
			c := &copyOf{versions: map[resource.Key]string{}}
			c.check = func() error { return rows.check(c.position, c.versions) }
			delayed := &slow{rows, func(string) time.Duration { return upTo(20 * time.Millisecond) }}
			var followed store.Store = &unread{Store: delayed, some: func() bool { return upTo(3) == 0 }}
			if seed%2 == 0 {
				followed = &unreliable{Store: followed}
			}
			c.follow(t, followed)
			for range 60 {
				writeAny(t, rows, upTo)
				rows.record(t)
				time.Sleep(upTo(5 * time.Millisecond))
			}
			waitUntilQuiet(t)
			if err := cmp.Or(c.err, c.equals(rows)); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
		})
	}
}

// writeAny creates, updates or deletes one of three meshes and three secrets.
func writeAny(t *testing.T, rows store.Store, upTo func(time.Duration) time.Duration) {
	t.Helper()
	name := fmt.Sprint(int(upTo(3)))
	k := kind.Meshes.Key("", name)
	if upTo(2) == 0 {
		k = kind.Secrets.Key("default", name)
	}
	row, err := rows.Get(t.Context(), k)
	switch {
	case err != nil:
		_, err = rows.Create(t.Context(), store.Row{Key: k, Body: []byte("{}")})
	case upTo(4) == 0:
		err = rows.Delete(t.Context(), k, "")
	default:
		_, err = rows.Update(t.Context(), row)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestAKindThatCannotBeReadStopsNoOther: other kinds change, also after the watch has ended, and the kind is listed
// until it can be read.
func TestAKindThatCannotBeReadStopsNoOther(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		rows := memory.New(memory.Options{})
		t.Cleanup(func() { rows.Close() })
		u := &unread{Store: rows, some: func() bool { return false }}
		ending := &unreliable{Store: u}
		c := startMirror(t, ending)
		u.bad.Store(true)
		create := func(k resource.Key) {
			t.Helper()
			if _, err := rows.Create(t.Context(), store.Row{Key: k, Body: []byte("{}")}); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 12 {
			create(kind.Secrets.Key("default", fmt.Sprint(i)))
			create(kind.Meshes.Key("", fmt.Sprint(i)))
			waitUntilQuiet(t)
			if got := c.count(); got != i+1 {
				t.Fatalf("after %d meshes and watches %d, the mirror has %d rows", i+1, ending.watches.Load(), got)
			}
		}
		if tries := u.tries.Load(); tries < 30 || ending.watches.Load() < 5 {
			t.Errorf("the kind is listed %d times in a minute, and %d watches begin", tries, ending.watches.Load())
		}
		u.bad.Store(false)
		waitUntilQuiet(t)
		if err := c.equals(rows); err != nil {
			t.Error(err)
		}
	})
}

// TestEventsOfALaterListAreSkipped: events that cannot be read, and that a list follows, have their kind listed once.
// The mirror is at their position even where the list has no difference.
func TestEventsOfALaterListAreSkipped(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		rows := memory.New(memory.Options{})
		t.Cleanup(func() { rows.Close() })
		u := &unread{Store: &slow{rows, func(string) time.Duration { return time.Second }},
			some: func() bool { return true }}
		c := startMirror(t, u)
		for range 10 {
			k := kind.Secrets.Key("default", "short")
			if _, err := rows.Create(t.Context(), store.Row{Key: k, Body: []byte("{}")}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // so that the events come one by one
			if err := rows.Delete(t.Context(), k, ""); err != nil {
				t.Fatal(err)
			}
		}
		waitUntilQuiet(t)
		waitUntilQuiet(t)
		if lists := u.alone.Load(); lists != 1 {
			t.Errorf("20 events that cannot be read cost %d lists, want 1", lists)
		}
		_, at, err := rows.List(t.Context(), kind.Secrets.Name)
		if err != nil || c.position != rows.Position(at) {
			t.Errorf("the mirror is at %d, want %d: %v", c.position, rows.Position(at), err)
		}
	})
}

// restored is a store in whose place comes another one, as after a restoration of its database.
type restored struct{ store.Store }

// TestARestoredStoreIsFollowed: the positions of a restored store may be before those that were required.
func TestARestoredStoreIsFollowed(t *testing.T) {
	for range 20 {
		bubble.Test(t, func(t *testing.T) {
			former, next := memory.New(memory.Options{}), memory.New(memory.Options{})
			t.Cleanup(func() { next.Close() })
			rows := &restored{former}
			c := startMirror(t, &unread{Store: rows, some: func() bool { return rows.Store == former }})
			secret, mesh := kind.Secrets.Key("default", "a"), kind.Meshes.Key("", "a")
			for _, s := range []store.Store{former, next} {
				for _, k := range []resource.Key{secret, mesh} {
					if _, err := s.Create(t.Context(), store.Row{Key: k, Body: []byte("{}")}); err != nil {
						t.Fatal(err)
					}
				}
				waitUntilQuiet(t)
				if s == former {
					rows.Store = next
					former.Close()
				}
			}
			if err := next.Delete(t.Context(), secret, ""); err != nil {
				t.Fatal(err)
			}
			waitUntilQuiet(t)
			_, at, err := next.List(t.Context(), kind.Secrets.Name)
			if err = cmp.Or(err, c.equals(next)); err != nil || c.position != next.Position(at) {
				t.Errorf("the mirror is at %d, want %d: %v", c.position, next.Position(at), err)
			}
		})
	}
}

// TestNoReaderWaitsForAnother: a reader that takes nothing gets the last state of all rows once it does.
func TestNoReaderWaitsForAnother(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		rows := memory.New(memory.Options{})
		t.Cleanup(func() { rows.Close() })
		last, idle := mirror.NewQueue(kind.Meshes.Name), mirror.NewQueue(kind.Secrets.Name)
		c := &copyOf{versions: map[resource.Key]string{}}
		c.follow(t, rows, last, idle)
		if first, err := idle.Next(t.Context()); err != nil || len(first.Put) > 0 {
			t.Errorf("the first changes of an empty store are %v, %v", first, err)
		}
		want := map[string]string{}
		for i := range 30 {
			row := meshRow(t, fmt.Sprint(i%3))
			if stored, err := rows.Get(t.Context(), row.Key); err == nil {
				_, err = rows.Update(t.Context(), stored)
			} else if _, err = rows.Create(t.Context(), row); err != nil {
				t.Fatal(err)
			}
			waitUntilQuiet(t)
			if err := c.equals(rows); err != nil {
				t.Fatal(err)
			}
		}
		if err := rows.Delete(t.Context(), kind.Meshes.Key("", "1"), ""); err != nil {
			t.Fatal(err)
		}
		waitUntilQuiet(t)
		list, at, err := rows.List(t.Context(), kind.Meshes.Name)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range list {
			want[row.Key.Name] = row.Version
		}
		changes, err := last.Next(t.Context())
		if err != nil || changes.Position != rows.Position(at) ||
			!slices.Equal(changes.Removed, []resource.Key{kind.Meshes.Key("", "1")}) {
			t.Errorf("the changes are %v, %v", changes, err)
		}
		got := map[string]string{}
		for _, row := range changes.Put {
			got[row.Key.Name] = row.Version
		}
		if !maps.Equal(got, want) || len(changes.Put) != len(want) {
			t.Errorf("the last versions are %v, want %v, each once", got, want)
		}
	})
}
