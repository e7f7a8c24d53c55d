// Package mirror copies the store into memory. It lists and watches the kinds of each stream of the store, and passes
// changes on in batches, as stored rows. Each reader takes them from a queue of its own, so that no reader waits for
// another one. Batching happens here only.
//
// The batches add up to the store's content even when a watch fails: the mirror then lists the kinds of the stream
// again and emits the difference from the versions already passed on, deletions included. A kind with a change that
// cannot be read is listed again by itself, while its stream continues.
//
// A store with one order of all writes has one stream. The batches are beginnings of its history: a batch contains
// every write before its last one, so that no reader has a state that the store never had, such as a permission for new
// SPIFFE IDs without the MeshIdentity that was written before it. Streams of other stores are followed independently.
package mirror

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"weft/internal/store"
	"weft/internal/wait"
	"weft/resource"
)

// Batch is a set of changes that are applied together. Each key occurs once. A resource that was created and deleted
// within one batch occurs in Removed, although no batch has put it.
type Batch struct {
	Put     []resource.Any
	Removed []resource.Key
	// Position is the position in the store up to which the batches have all writes; 0 in a store without an order of
	// all writes.
	Position int64
}

const (
	quietPeriod   = time.Millisecond     // delay after the last change
	maxBatchDelay = 5 * time.Millisecond // longest delay after the first change
	retryInterval = time.Second          // delay after a failure of the store
)

// Config is the configuration of a mirror.
type Config struct {
	Store store.Store
	// Kinds are the names of the kinds that Apply receives.
	Kinds []string
	// Decode returns the object of a row. A row that fails to decode is logged, and the previous version stays in use.
	Decode func(store.Row) (resource.Any, error)
	// Apply receives each batch. The first batch has the store's whole content. Calls never overlap.
	Apply func(Batch)
	// Queues are those of further readers.
	Queues []*Queue
	// Health gets what cannot be read. Optional.
	Health *Health
	Log    *slog.Logger
}

// Mirror follows the content of a store.
type Mirror struct {
	Config
	reads  chan read
	queues []*Queue // with that of Apply, which is the last
	// failing is true while the store can't be read, so that the failure is logged once for all streams.
	failing atomic.Bool

	// reached is the position up to which the stream of a store with one order was read, and required the position up
	// to which it must be read before the next batch. They belong to the goroutine that makes the batches.
	reached, required int64
	passed            int64 // the position of the last batch
}

// read is what was read of a stream.
type read struct {
	events  []store.Event
	reached int64 // all events of the stream up to here were read; 0 in a store without an order of all writes
	// required is the position of other kinds' writes that a list of one kind may follow; 0 after an event.
	required int64
	// whole is true for a list of the whole stream, whose position may be before that of earlier reads: the store may
	// have been restored.
	whole bool
}

// Start lists every kind and applies the first batch before it returns; an error of the first list is returned. It then
// follows the store until ctx ends. The returned function blocks until the mirror has stopped.
func Start(ctx context.Context, c Config) (stopped func(), err error) {
	own := NewQueue(c.Kinds...)
	m := &Mirror{Config: c, reads: make(chan read), queues: append(slices.Clone(c.Queues), own)}
	mirrored := map[string]bool{}
	for _, q := range m.queues {
		maps.Copy(mirrored, q.kinds)
	}
	var streams []*stream
	var first []store.Event
	for _, kinds := range c.Store.Streams(slices.Sorted(maps.Keys(mirrored))) {
		s := newStream(m, kinds)
		rows, cursor, err := c.Store.List(ctx, kinds...)
		if err != nil {
			return nil, fmt.Errorf("reading %s from the store: %w", describe(kinds), err)
		}
		first = append(first, s.difference(kinds, rows)...)
		s.begin(cursor)
		m.reached = s.reached
		streams = append(streams, s)
	}
	m.pass(first)
	m.apply(own.take())

	var running sync.WaitGroup
	for _, s := range streams {
		running.Go(func() { s.follow(ctx) })
	}
	running.Go(func() { m.collect(ctx) })
	running.Go(func() {
		for {
			changes, err := own.Next(ctx)
			if err != nil {
				return
			}
			m.apply(changes)
		}
	})
	return running.Wait, nil
}

// describe returns the kinds of a stream for messages.
func describe(kinds []string) string {
	if len(kinds) == 1 {
		return kinds[0]
	}
	return fmt.Sprintf("%d kinds", len(kinds))
}

// collect merges the changes of a few milliseconds into one batch.
func (m *Mirror) collect(ctx context.Context) {
	var pending []store.Event
	for {
		for !m.due(pending) {
			select {
			case r := <-m.reads:
				pending = m.add(pending, r)
			case <-ctx.Done():
				return
			}
		}
		deadline := time.NewTimer(maxBatchDelay)
	gather:
		for {
			quietTimer := time.NewTimer(quietPeriod)
			select {
			case r := <-m.reads:
				pending = m.add(pending, r)
			case <-quietTimer.C:
				break gather
			case <-deadline.C:
				break gather
			case <-ctx.Done():
				return
			}
		}
		if m.due(pending) { // else a list came, whose earlier writes of other kinds are to be read first
			m.pass(pending)
			pending = nil
		}
	}
}

// due reports whether the pending events, or a new position alone, can be a batch.
func (m *Mirror) due(pending []store.Event) bool {
	return (len(pending) > 0 || m.reached > m.passed) && m.reached >= m.required
}

// add appends what was read to the events that no batch has yet.
func (m *Mirror) add(pending []store.Event, r read) []store.Event {
	if r.whole {
		m.reached, m.required = r.reached, 0
	}
	m.reached, m.required = max(m.reached, r.reached), max(m.required, r.required)
	return append(pending, r.events...)
}

// pass gives a batch to all readers.
func (m *Mirror) pass(events []store.Event) {
	m.passed = m.reached
	for _, q := range m.queues {
		q.add(events, m.reached)
	}
}

// apply decodes a batch and applies it.
func (m *Mirror) apply(c Changes) {
	b := Batch{Removed: c.Removed, Position: c.Position}
	for _, row := range c.Put {
		object, err := m.Decode(row)
		if err != nil {
			m.Log.Error("a stored resource failed to decode; its previous version stays in use",
				"resource", row.Key, "error", err)
			m.Health.note(row.Key, Unread{Key: row.Key, Reason: err.Error()})
			continue
		}
		m.Health.noteSuccess(row.Key)
		b.Put = append(b.Put, object)
	}
	for _, key := range c.Removed {
		m.Health.noteSuccess(key)
	}
	m.Apply(b)
}

// stream follows the kinds of one stream of the store. Its methods are called by one goroutine at a time.
type stream struct {
	*Mirror
	kinds []string
	// cursor is that of the last list of all kinds, and reached the position up to which the stream was read.
	cursor  store.Cursor
	reached int64
	// versions are those passed on, by kind.
	versions map[string]map[resource.Key]string
	// listed has the position of the list of a kind that was listed by itself. The stream has its earlier events too.
	listed map[string]int64
	// unread has the kinds that are to be listed by themselves, and again is when they are.
	unread map[string]bool
	again  <-chan time.Time
}

func newStream(m *Mirror, kinds []string) *stream {
	s := &stream{Mirror: m, kinds: kinds, versions: map[string]map[resource.Key]string{}, listed: map[string]int64{},
		unread: map[string]bool{}}
	for _, kind := range kinds {
		s.versions[kind] = map[resource.Key]string{}
	}
	return s
}

// begin has the stream continue after a list of all its kinds.
func (s *stream) begin(at store.Cursor) {
	s.cursor, s.reached = at, s.Store.Position(at)
	clear(s.listed)
}

// difference returns the changes from the versions of kinds already passed on to the listed rows.
func (s *stream) difference(kinds []string, rows []store.Row) []store.Event {
	present := make(map[resource.Key]bool, len(rows))
	var events []store.Event
	for _, row := range rows {
		present[row.Key] = true
		if s.versions[row.Key.Kind][row.Key] != row.Version {
			events = append(events, store.Event{Row: row})
		}
	}
	for _, kind := range kinds {
		for key := range s.versions[kind] {
			if !present[key] {
				events = append(events, store.Event{Row: store.Row{Key: key}, Deleted: true})
			}
		}
	}
	s.recordVersions(events)
	return events
}

func (s *stream) recordVersions(events []store.Event) {
	for _, e := range events {
		if versions := s.versions[e.Row.Key.Kind]; e.Deleted {
			delete(versions, e.Row.Key)
		} else {
			versions[e.Row.Key] = e.Row.Version
		}
	}
}

// follow watches the stream, and lists its kinds again whenever the watch ends.
func (s *stream) follow(ctx context.Context) {
	for {
		err := s.watch(ctx)
		for ctx.Err() == nil {
			if err != nil && !errors.Is(err, store.ErrTooOld) {
				s.noteFailure(err)
				_ = wait.Sleep(ctx, retryInterval)
			}
			if err = s.relist(ctx); err == nil {
				break
			}
		}
		if ctx.Err() != nil {
			return
		}
	}
}

func (s *stream) noteFailure(err error) {
	s.Health.noteFailure(s, err)
	if !s.failing.Swap(true) {
		s.Log.Warn("reading the store failed; it is retried until it succeeds", "of", describe(s.kinds), "error", err)
	}
}

// relist lists all kinds of the stream again. A kind with a row that cannot be read is left for later.
func (s *stream) relist(ctx context.Context) error {
	kinds, unread := s.kinds, map[string]bool{}
	for {
		rows, cursor, err := s.Store.List(ctx, kinds...)
		if unreadable, ok := errors.AsType[*store.UnreadableError](err); ok && len(kinds) > 1 {
			s.noteFailure(err)
			unread[unreadable.Key.Kind] = true
			kinds = slices.DeleteFunc(slices.Clone(kinds), func(kind string) bool { return unread[kind] })
			continue
		}
		if err != nil {
			return err
		}
		s.begin(cursor)
		s.unread = unread
		for _, kind := range kinds {
			s.Health.noteSuccess(kind)
		}
		s.listLater()
		s.send(ctx, read{events: s.difference(kinds, rows), reached: s.reached, whole: true})
		return nil
	}
}

// listLater has the kinds that could not be read listed after a pause.
func (s *stream) listLater() {
	s.again = nil
	if len(s.unread) > 0 {
		s.again = time.After(retryInterval)
	} else if s.failing.Swap(false) {
		s.Log.Info("reading the store succeeds again")
	}
}

// watch passes on the events of the stream until it ends.
func (s *stream) watch(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	watch, err := s.Store.Watch(ctx, s.kinds, s.cursor)
	if err != nil {
		return err
	}
	s.Health.noteSuccess(s) // its kinds were listed before
	for {
		select {
		case events, open := <-watch:
			if !open {
				return nil
			}
			s.take(ctx, events)
		case <-s.again:
			s.listUnread(ctx)
		}
	}
}

// take passes on events. Those of a kind that was listed later are skipped. A kind with an event that cannot be read is
// listed before later events are passed on; where that fails, they do not wait for it.
func (s *stream) take(ctx context.Context, events []store.Event) {
	var fresh []store.Event
	pass := func() {
		s.recordVersions(fresh)
		s.send(ctx, read{events: fresh, reached: s.reached})
		fresh = nil
	}
	for _, e := range events {
		position := s.Store.Position(e.Cursor)
		switch {
		case position != 0 && position <= s.listed[e.Row.Key.Kind]:
		case e.Unreadable:
			if pass(); !s.unread[e.Row.Key.Kind] { // else its next list is due
				s.unread[e.Row.Key.Kind] = true
				s.listUnread(ctx)
			}
		default:
			fresh = append(fresh, e)
		}
		s.reached = max(s.reached, position)
	}
	pass()
}

// listUnread lists each kind by itself that has a row which could not be read. A list may follow writes of other kinds
// that the stream has not shown yet: no batch has its rows without them.
func (s *stream) listUnread(ctx context.Context) {
	for _, kind := range slices.Sorted(maps.Keys(s.unread)) {
		if err := s.listAlone(ctx, kind); err != nil {
			s.noteFailure(err)
			continue
		}
		delete(s.unread, kind)
		s.Health.noteSuccess(kind)
	}
	s.listLater()
}

func (s *stream) listAlone(ctx context.Context, kind string) error {
	rows, cursor, err := s.Store.List(ctx, kind)
	if err != nil {
		return err
	}
	required, err := s.Store.Newest(ctx, s.kinds, s.reached)
	if err != nil {
		return err
	}
	s.listed[kind] = s.Store.Position(cursor)
	s.send(ctx, read{events: s.difference([]string{kind}, rows), reached: s.reached, required: required})
	return nil
}

func (s *stream) send(ctx context.Context, r read) {
	select {
	case s.reads <- r:
	case <-ctx.Done():
	}
}
