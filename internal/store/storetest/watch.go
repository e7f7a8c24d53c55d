package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"

	"weft/internal/store"
	"weft/internal/testwait"
	"weft/resource"
)

// receive returns the next batch of events. It fails the test if the channel is closed or no batch comes in time.
func receive(t *testing.T, events <-chan []store.Event) []store.Event {
	t.Helper()
	batch := testwait.Receive(t, "the watch has events", events)
	if len(batch) == 0 {
		t.Fatal("the watch was closed")
	}
	return batch
}

// collect returns the next n events.
func collect(t *testing.T, events <-chan []store.Event, n int) []store.Event {
	t.Helper()
	var all []store.Event
	for len(all) < n {
		all = append(all, receive(t, events)...)
	}
	if len(all) > n {
		t.Fatalf("%d events came, want %d", len(all), n)
	}
	return all
}

func watch(t *testing.T, s store.Store, kind string, from store.Cursor) <-chan []store.Event {
	t.Helper()
	return watchAll(t, s, from, kind)
}

func watchAll(t *testing.T, s store.Store, from store.Cursor, kinds ...string) <-chan []store.Event {
	t.Helper()
	events, err := s.Watch(t.Context(), kinds, from)
	if err != nil {
		t.Fatalf("Watch %v: %v", kinds, err)
	}
	return events
}

// history writes rows that produce four events of the kind Thing, and one of another kind between them. It returns the
// four.
func history(t *testing.T, s store.Store) []store.Event {
	t.Helper()
	first := create(t, s, key("a"), "one")
	create(t, s, resource.Key{Kind: "Other", Name: "x"}, "")
	second := update(t, s, first, "two")
	third := create(t, s, key("b"), "")
	remove(t, s, key("a"))
	return []store.Event{{Row: first}, {Row: second}, {Row: third}, {Row: second, Deleted: true}}
}

// ordered returns whether the store has one order of the writes of all kinds.
func ordered(s store.Store) bool { return len(s.Streams([]string{"Thing", "Other"})) == 1 }

// testOrder does nothing for a store without an order of all writes.
func testOrder(t *testing.T, s store.Store) {
	create(t, s, key("before"), "")
	_, at := list(t, s, "Thing")
	after := s.Position(at)
	if ordered(s) == (after == 0) {
		t.Fatalf("the position of a cursor is %d, and the store has one order: %v", after, ordered(s))
	}
	if !ordered(s) {
		return
	}
	things := history(t, s)
	got := collect(t, watchAll(t, s, at, "Thing", "Other"), 5)
	other := got[1]
	wantEvents(t, append(got[:1:1], got[2:]...), things)
	if other.Row.Key.Kind != "Other" || other.Deleted {
		t.Errorf("the second event of both kinds is of %s, deleted %v, want Other", other.Row.Key, other.Deleted)
	}
	positions := []int64{after}
	for _, e := range got {
		positions = append(positions, s.Position(e.Cursor))
	}
	if !slices.IsSorted(positions) || len(slices.Compact(slices.Clone(positions))) != 6 {
		t.Errorf("the positions of a list and five writes after it are %v", positions)
	}
	rest := collect(t, watchAll(t, s, other.Cursor, "Thing", "Other"), 3)
	wantEvents(t, rest, things[1:])
	for _, c := range []struct {
		kinds []string
		after int64
		want  int64
	}{
		{[]string{"Thing"}, after, positions[5]},
		{[]string{"Other"}, after, positions[2]},
		{[]string{"Thing", "Other"}, after, positions[5]},
		{[]string{"Other"}, positions[2], positions[2]},
		{[]string{"Missing"}, after, after},
	} {
		got, err := s.Newest(t.Context(), c.kinds, c.after)
		if err != nil || got != c.want {
			t.Errorf("the newest event of %v after %d is at %d, %v, want %d", c.kinds, c.after, got, err, c.want)
		}
	}
}

// testSnapshot writes a number into a row of each of two kinds, one after the other, while others list both kinds: they
// see the numbers equal, or the first one ahead by 1, and the watch continues after exactly these.
func testSnapshot(t *testing.T, s store.Store) {
	if !ordered(s) {
		return
	}
	const writes = 100
	thing := create(t, s, key("a"), "0")
	second := resource.Key{Kind: "Other", Name: "a"}
	other := create(t, s, second, "0")
	var writing sync.WaitGroup
	writing.Go(func() { // it alone uses the rows from here on
		for n := range writes {
			for _, row := range []*store.Row{&thing, &other} {
				row.Body = []byte(strconv.Itoa(n + 1))
				var err error
				if *row, err = s.Update(t.Context(), *row); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	for last := 0; last < 2*writes && !t.Failed(); {
		rows, at, err := s.List(t.Context(), "Thing", "Other")
		if err != nil || len(rows) != 2 || rows[0].Key != second {
			t.Fatalf("both kinds have the rows %v, %v", rows, err)
		}
		last = number(t, rows[0]) + number(t, rows[1])
		if ahead := number(t, rows[1]) - number(t, rows[0]); ahead != 0 && ahead != 1 {
			t.Fatalf("a list has %s of the row that is written first and %s of the other", rows[1].Body, rows[0].Body)
		}
		wantNext(t, s, at, last, min(last+10, 2*writes))
	}
	writing.Wait()
}

// wantNext watches the writes of [testSnapshot] after a list until there are a number of them.
func wantNext(t *testing.T, s store.Store, at store.Cursor, written, until int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	events, err := s.Watch(ctx, []string{"Thing", "Other"}, at)
	if err != nil {
		t.Fatal(err)
	}
	for written < until {
		for _, e := range receive(t, events) {
			if written++; number(t, e.Row) != (written+1)/2 || (e.Row.Key.Kind == "Thing") != (written%2 == 1) {
				t.Fatalf("%s is %s in the write number %d", e.Row.Key, e.Row.Body, written)
			}
		}
	}
}

func number(t *testing.T, row store.Row) int {
	t.Helper()
	n, err := strconv.Atoi(string(row.Body))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func wantEvents(t *testing.T, got, want []store.Event) {
	t.Helper()
	for i, e := range got {
		wantRow(t, fmt.Sprintf("event %d", i), e.Row, want[i].Row)
		if e.Deleted != want[i].Deleted || e.Cursor == "" {
			t.Errorf("event %d: deleted %v, want %v; cursor %q", i, e.Deleted, want[i].Deleted, e.Cursor)
		}
	}
}

func testWatch(t *testing.T, s store.Store) {
	create(t, s, key("before"), "")
	_, at := list(t, s, "Thing")
	live := watch(t, s, "Thing", at)
	want := history(t, s)
	wantEvents(t, collect(t, live, len(want)), want)
	late := watch(t, s, "Thing", at)
	wantEvents(t, collect(t, late, len(want)), want)
}

func testResume(t *testing.T, s store.Store) {
	_, at := list(t, s, "Thing")
	want := history(t, s)
	all := collect(t, watch(t, s, "Thing", at), len(want))
	for i, e := range all[:len(all)-1] {
		rest := collect(t, watch(t, s, "Thing", e.Cursor), len(all)-1-i)
		wantEvents(t, rest, want[i+1:])
	}
	_, end := list(t, s, "Thing")
	afterList, afterEvent := watch(t, s, "Thing", end), watch(t, s, "Thing", all[len(all)-1].Cursor)
	next := []store.Event{{Row: create(t, s, key("next"), "")}}
	wantEvents(t, collect(t, afterList, 1), next)
	wantEvents(t, collect(t, afterEvent, 1), next)
}

func testWatchEnds(t *testing.T, s store.Store) {
	_, at := list(t, s, "Thing")
	for _, pending := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		events, err := s.Watch(ctx, []string{"Thing"}, at)
		if err != nil {
			t.Fatal(err)
		}
		if pending {
			create(t, s, key("a"), "")
		}
		cancel()
		testwait.UntilTrue(t, "the channel is closed", func() bool {
			_, open := <-events
			return !open
		})
	}
}

func testWatchOwner(t *testing.T, s store.Store) {
	create(t, s, key("root"), "")
	owner := key("root")
	if _, err := s.Create(t.Context(), store.Row{Key: resource.Key{Kind: "Owned", Name: "x"}, Owner: &owner,
		Body: []byte("last")}); err != nil {
		t.Fatal(err)
	}
	_, at := list(t, s, "Owned")
	events := watch(t, s, "Owned", at)
	remove(t, s, key("root"))
	e := collect(t, events, 1)[0]
	if !e.Deleted || string(e.Row.Body) != "last" {
		t.Errorf("the event is of %q, deleted %v", e.Row.Body, e.Deleted)
	}
}

func testTooOld(t *testing.T, s store.Store) {
	_, old := list(t, s, "Thing")
	row := create(t, s, key("a"), "")
	for range 250 {
		row = update(t, s, row, "x")
	}
	if c, compacts := s.(Compacter); compacts {
		c.Compact(t)
	}
	stale, err := s.Watch(t.Context(), []string{"Thing"}, old)
	if err != nil {
		wantError(t, "Watch from a cursor 250 events back, with a history of 10", err, store.ErrTooOld)
	} else if batch, open := <-stale; open {
		t.Errorf("a watch from a cursor 250 events back, with a history of 10, receives %v", batch)
	}
	_, at := list(t, s, "Thing")
	events := watch(t, s, "Thing", at)
	update(t, s, row, "y")
	collect(t, events, 1)
}

func testCursorOfAnotherStore(t *testing.T, s store.Store) {
	create(t, s, key("a"), "")
	for _, from := range []store.Cursor{"", "x", "-1", "9223372036854775807", "99999999999999999999"} {
		_, err := s.Watch(t.Context(), []string{"Thing"}, from)
		wantError(t, fmt.Sprintf("Watch from %q", from), err, store.ErrTooOld)
	}
}

func testLaggingWatcher(t *testing.T, s store.Store) {
	_, at := list(t, s, "Thing")
	events := watch(t, s, "Thing", at)
	row := create(t, s, key("a"), "0")
	for i := 1; i <= 500; i++ {
		row = update(t, s, row, fmt.Sprint(i))
	}
	// The events that the watcher received before it lagged have no gap.
	next := 0
	for batch := range events {
		for _, e := range batch {
			if got := string(e.Row.Body); got != fmt.Sprint(next) {
				t.Fatalf("event %d is %s", next, got)
			}
			next++
		}
		if next == 501 {
			t.Fatal("500 events waited for the watcher, with a history of 10")
		}
	}
}

func testQuiet(t *testing.T, s store.Store) {
	quiet := resource.Key{Kind: "Quiet", Name: "x"}
	create(t, s, quiet, "")
	_, at := list(t, s, "Quiet")
	live := watch(t, s, "Quiet", at)
	row := create(t, s, key("busy"), "")
	for range 250 {
		row = update(t, s, row, "x")
	}
	if ordered(s) {
		_, err := s.Watch(t.Context(), []string{"Quiet", "Thing"}, at)
		wantError(t, "Watch of a kind whose events are gone, and of another one", err, store.ErrTooOld)
	}
	late := watch(t, s, "Quiet", at)
	remove(t, s, quiet)
	for _, events := range []<-chan []store.Event{live, late} {
		if e := collect(t, events, 1)[0]; !e.Deleted {
			t.Error("want the deletion")
		}
	}
}

// testReplicas starts watchers at different moments. Each one builds a copy of the store from events. At the end, the
// copies equal the store.
func testReplicas(t *testing.T, s store.Store) {
	const writers, writes, watchers = 6, 60, 4
	var writing, watching sync.WaitGroup
	half := make(chan struct{}, writers)
	for w := range writers {
		writing.Go(func() { scribble(t, s, w, writes, half) })
	}
	last := key("last")
	replicas := make([]map[resource.Key]store.Row, watchers)
	for i := range watchers {
		if i == watchers/2 {
			<-half // the later watchers start in the middle
		}
		watching.Go(func() { replicas[i] = replicate(t, s, last) })
	}
	writing.Wait()
	create(t, s, last, "")
	watching.Wait()
	rows, _ := list(t, s, "Thing")
	for i, replica := range replicas {
		wantReplica(t, i, replica, rows)
	}
}

func wantReplica(t *testing.T, i int, replica map[resource.Key]store.Row, rows []store.Row) {
	t.Helper()
	if len(replica) != len(rows) {
		t.Errorf("replica %d has %d rows, the store %d", i, len(replica), len(rows))
	}
	for _, row := range rows {
		wantRow(t, fmt.Sprintf("replica %d", i), replica[row.Key], row)
	}
}

// scribble creates, updates and deletes rows of one writer, and signals on half after half of its writes.
func scribble(t *testing.T, s store.Store, writer, writes int, half chan<- struct{}) {
	ctx, random := t.Context(), rand.New(rand.NewPCG(uint64(writer), 1))
	for n := range writes {
		if n == writes/2 {
			half <- struct{}{}
		}
		k := key(fmt.Sprintf("w%d-%d", writer, random.IntN(5)))
		row, err := s.Get(ctx, k)
		switch {
		case err != nil:
			_, err = s.Create(ctx, store.Row{Key: k, Body: []byte("created")})
		case random.IntN(3) == 0:
			err = s.Delete(ctx, k, row.Version)
		default:
			row.Body = fmt.Appendf(nil, "%d", n)
			_, err = s.Update(ctx, row)
		}
		if err != nil {
			t.Errorf("%s: %v", k, err)
		}
	}
}

// replicate lists the rows and then applies events until it receives the last row. It returns the rows by key.
func replicate(t *testing.T, s store.Store, last resource.Key) map[resource.Key]store.Row {
	replica := map[resource.Key]store.Row{}
	ctx, cancel := context.WithCancel(testwait.Context(t))
	defer cancel()
	rows, at, err := s.List(ctx, last.Kind)
	if err != nil {
		t.Error(err)
		return nil
	}
	for _, row := range rows {
		replica[row.Key] = row
	}
	if _, there := replica[last]; there {
		return replica
	}
	events, err := s.Watch(ctx, []string{last.Kind}, at)
	if err != nil {
		t.Error(err)
		return nil
	}
	for batch := range events {
		for _, e := range batch {
			if e.Deleted {
				delete(replica, e.Row.Key)
				continue
			}
			replica[e.Row.Key] = e.Row
			if e.Row.Key == last {
				return replica
			}
		}
	}
	t.Error("the watch ended before the last row")
	return nil
}
