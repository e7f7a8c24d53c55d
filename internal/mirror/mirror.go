// Package mirror copies the store into memory. It lists and watches every kind, and passes changes on in batches.
// Batching happens here only.
//
// The batches add up to the store's content even when a watch fails: the mirror then lists the kind again and emits the
// difference from the versions already passed on, deletions included.
//
// Kinds are followed independently. Where the store has one order of all writes, batches keep it: a batch contains
// every write before its last one, so that no reader has a state that the store never had, such as a permission for new
// SPIFFE IDs without the MeshIdentity that was written before it.
package mirror

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
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
	// orderTimeout is the longest wait for the earlier writes of other kinds. They take milliseconds, unless a database
	// loses the notification of a write, which costs 5 s, or does not respond.
	orderTimeout = 15 * time.Second
)

// Config is the configuration of a mirror. All fields are required.
type Config struct {
	Store store.Store
	// Kinds are the names of the mirrored kinds.
	Kinds []string
	// Decode returns the object of a row. A row that fails to decode is logged, and the previous version stays in use.
	Decode func(store.Row) (resource.Any, error)
	// Apply receives each batch. The first batch has the store's whole content. Calls never overlap.
	Apply func(Batch)
	Log   *slog.Logger
}

// Mirror follows the content of a store.
type Mirror struct {
	Config
	reads chan read
	// failing is true while the store can't be read, so that the failure is logged once for all kinds.
	failing atomic.Bool
	// versions are those passed on, by kind. Each inner map belongs to the follow goroutine of its kind.
	versions map[string]map[resource.Key]string

	// reached is the position up to which each kind was read, and applied that of the last batch. They belong to the
	// goroutine that makes the batches.
	reached map[string]int64
	applied int64
}

// read is what was read of one kind: all events up to a position.
type read struct {
	kind    string
	events  []store.Event
	reached int64 // 0 in a store without an order of all writes
}

// Start lists every kind and applies the first batch before it returns; an error of the first list is returned. It then
// follows the store until ctx ends. The returned function blocks until the mirror has stopped.
func Start(ctx context.Context, c Config) (wait func(), err error) {
	m := &Mirror{Config: c, reads: make(chan read), versions: map[string]map[resource.Key]string{},
		reached: map[string]int64{}}
	cursors := map[string]store.Cursor{}
	var first []store.Event
	for _, kind := range c.Kinds {
		m.versions[kind] = map[resource.Key]string{}
		events, cursor, err := m.list(ctx, kind)
		if err != nil {
			return nil, fmt.Errorf("reading %s from the store: %w", kind, err)
		}
		first = append(first, events...)
		cursors[kind] = cursor
		m.reached[kind] = c.Store.Position(cursor)
	}
	for _, position := range m.reached {
		if m.applied == 0 || position < m.applied {
			m.applied = position
		}
	}
	c.Apply(m.batch(first))

	done := make(chan struct{})
	for _, kind := range c.Kinds {
		go m.follow(ctx, kind, cursors[kind])
	}
	go func() {
		defer close(done)
		m.collect(ctx)
	}()
	return func() { <-done }, nil
}

// list returns the difference between the store and the versions already passed on.
func (m *Mirror) list(ctx context.Context, kind string) ([]store.Event, store.Cursor, error) {
	rows, cursor, err := m.Store.List(ctx, kind)
	if err != nil {
		return nil, "", err
	}
	versions := m.versions[kind]
	present := make(map[resource.Key]bool, len(rows))
	var events []store.Event
	for _, row := range rows {
		present[row.Key] = true
		if versions[row.Key] != row.Version {
			events = append(events, store.Event{Row: row})
		}
	}
	for key := range versions {
		if !present[key] {
			events = append(events, store.Event{Row: store.Row{Key: key}, Deleted: true})
		}
	}
	m.recordVersions(kind, events)
	return events, cursor, nil
}

func (m *Mirror) recordVersions(kind string, events []store.Event) {
	versions := m.versions[kind]
	for _, e := range events {
		if e.Deleted {
			delete(versions, e.Row.Key)
		} else {
			versions[e.Row.Key] = e.Row.Version
		}
	}
}

// follow watches one kind, and lists it again whenever the watch ends.
func (m *Mirror) follow(ctx context.Context, kind string, cursor store.Cursor) {
	for {
		err := m.watch(ctx, kind, cursor)
		for ctx.Err() == nil {
			if err != nil && !errors.Is(err, store.ErrTooOld) {
				if !m.failing.Swap(true) {
					m.Log.Warn("reading the store failed; it is retried until it succeeds", "kind", kind, "error", err)
				}
				_ = wait.Sleep(ctx, retryInterval)
			}
			var events []store.Event
			if events, cursor, err = m.list(ctx, kind); err == nil {
				if m.failing.Swap(false) {
					m.Log.Info("reading the store succeeds again")
				}
				m.send(ctx, kind, events, cursor)
				break
			}
		}
		if ctx.Err() != nil {
			return
		}
	}
}

func (m *Mirror) watch(ctx context.Context, kind string, cursor store.Cursor) error {
	watch, err := m.Store.Watch(ctx, kind, cursor)
	if err != nil {
		return err
	}
	for events := range watch {
		m.recordVersions(kind, events)
		if len(events) > 0 {
			m.send(ctx, kind, events, events[len(events)-1].Cursor)
		}
	}
	return nil
}

func (m *Mirror) send(ctx context.Context, kind string, events []store.Event, until store.Cursor) {
	select {
	case m.reads <- read{kind, events, m.Store.Position(until)}:
	case <-ctx.Done():
	}
}

// add appends what was read to the events that no batch has yet.
func (m *Mirror) add(pending []store.Event, r read) []store.Event {
	m.reached[r.kind] = r.reached
	return append(pending, r.events...)
}

// collect merges the changes of a few milliseconds into one batch.
func (m *Mirror) collect(ctx context.Context) {
	var pending []store.Event
	for {
		for len(pending) == 0 {
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
		var next, later []store.Event
		if next, later = m.complete(ctx, pending); ctx.Err() != nil {
			return
		}
		m.Apply(m.batch(next))
		pending = later
	}
}

// complete returns the events of the next batch, with all earlier writes of other kinds, and those that are later than
// the last of pending.
func (m *Mirror) complete(ctx context.Context, pending []store.Event) (next, later []store.Event) {
	until := int64(0)
	for _, e := range pending {
		until = max(until, m.Store.Position(e.Cursor))
	}
	if until <= m.applied {
		return pending, nil // rows of a list, or a store without an order
	}
	ctx, cancel := context.WithTimeoutCause(ctx, orderTimeout, errOrder)
	defer cancel()
	newest := m.newest(ctx, until)
	for lacking := m.lacking(newest); len(lacking) > 0; lacking = m.lacking(newest) {
		select {
		case r := <-m.reads:
			pending = m.add(pending, r)
			continue
		case <-ctx.Done():
		}
		if context.Cause(ctx) == errOrder {
			m.Log.Warn("the store does not show earlier writes of some kinds, so later ones take effect before them",
				"kinds", lacking)
		}
		break
	}
	m.applied = until
	if slices.ContainsFunc(pending, func(e store.Event) bool { return e.Cursor == "" }) {
		return pending, nil // rows of a list are newer than earlier events of their kind, and must follow them
	}
	for _, e := range pending {
		if m.Store.Position(e.Cursor) <= until {
			next = append(next, e)
		} else {
			later = append(later, e)
		}
	}
	return next, later
}

var errOrder = errors.New("mirror: the store does not show earlier writes")

// newest returns, for each kind, the position of its last event since the last batch, at most until.
func (m *Mirror) newest(ctx context.Context, until int64) map[string]int64 {
	for {
		newest, err := m.Store.Newest(ctx, m.applied, until)
		if err == nil || wait.Sleep(ctx, retryInterval) != nil {
			return newest
		}
	}
}

// lacking returns the mirrored kinds that were not read up to these positions, sorted.
func (m *Mirror) lacking(newest map[string]int64) (kinds []string) {
	for kind, position := range newest {
		if reached, mirrored := m.reached[kind]; mirrored && reached < position {
			kinds = append(kinds, kind)
		}
	}
	slices.Sort(kinds)
	return kinds
}

// batch returns the last event of each key.
func (m *Mirror) batch(events []store.Event) Batch {
	last := make(map[resource.Key]int, len(events))
	for i, e := range events {
		last[e.Row.Key] = i
	}
	b := Batch{Position: m.applied}
	for i, e := range events {
		if last[e.Row.Key] != i {
			continue
		}
		if e.Deleted {
			b.Removed = append(b.Removed, e.Row.Key)
			continue
		}
		object, err := m.Decode(e.Row)
		if err != nil {
			m.Log.Error("a stored resource failed to decode; its previous version stays in use",
				"resource", e.Row.Key, "error", err)
			continue
		}
		b.Put = append(b.Put, object)
	}
	return b
}
