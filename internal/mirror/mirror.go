// Package mirror brings what is in the store into memory: it lists every kind, watches it from there,
// and hands over what changed in batches. It is the one place where changes wait for each other.
//
// Whatever happens to a watch, the batches add up to the store's content: a watch that ends is followed
// by a new list and by the difference to what was handed over before, deletions too.
package mirror

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"weft/internal/store"
	"weft/internal/wait"
	"weft/resource"
)

// Batch is what changed together. A key stands in it once. What came and went within one batch is among
// the removed, though it was never handed over.
type Batch struct {
	Put     []resource.Any
	Removed []resource.Key
}

// How long a change waits for others.
const (
	quiet   = time.Millisecond     // after the last one
	longest = 5 * time.Millisecond // after the first one
	retry   = time.Second          // after a failure of the store
)

// Config says what is mirrored, and whereto.
type Config struct {
	Store store.Store
	// Kinds by name.
	Kinds []string
	// Decode makes an object of a row. A row that can't be read is logged and left as it was.
	Decode func(store.Row) (resource.Any, error)
	// Apply takes a batch. The first one holds everything that the store had; calls never overlap.
	Apply func(Batch)
	Log   *slog.Logger
}

// Mirror follows a store.
type Mirror struct {
	Config
	events chan []store.Event
	// failing is set while the store can't be read, so that this is said once for all kinds.
	failing atomic.Bool
	known   map[string]map[resource.Key]string // versions handed over, by kind; owned by each kind's follower
}

// Start lists every kind and applies the first batch before it returns; then it follows the store until
// ctx ends. Wait answers once it has stopped.
func Start(ctx context.Context, c Config) (wait func(), err error) {
	m := &Mirror{Config: c, events: make(chan []store.Event), known: map[string]map[resource.Key]string{}}
	cursors := map[string]store.Cursor{}
	var first []store.Event
	for _, kind := range c.Kinds {
		m.known[kind] = map[resource.Key]string{}
		events, cursor, err := m.list(ctx, kind)
		if err != nil {
			return nil, fmt.Errorf("reading %s from the store: %w", kind, err)
		}
		first = append(first, events...)
		cursors[kind] = cursor
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

// list answers the difference between the store and what was handed over.
func (m *Mirror) list(ctx context.Context, kind string) ([]store.Event, store.Cursor, error) {
	rows, cursor, err := m.Store.List(ctx, kind)
	if err != nil {
		return nil, "", err
	}
	known := m.known[kind]
	present := make(map[resource.Key]bool, len(rows))
	var events []store.Event
	for _, row := range rows {
		present[row.Key] = true
		if known[row.Key] != row.Version {
			events = append(events, store.Event{Row: row})
		}
	}
	for key := range known {
		if !present[key] {
			events = append(events, store.Event{Row: store.Row{Key: key}, Deleted: true})
		}
	}
	m.note(kind, events)
	return events, cursor, nil
}

func (m *Mirror) note(kind string, events []store.Event) {
	known := m.known[kind]
	for _, e := range events {
		if e.Deleted {
			delete(known, e.Row.Key)
		} else {
			known[e.Row.Key] = e.Row.Version
		}
	}
}

// follow watches one kind, and lists it anew whenever the watch ends.
func (m *Mirror) follow(ctx context.Context, kind string, cursor store.Cursor) {
	for {
		err := m.watch(ctx, kind, cursor)
		for ctx.Err() == nil {
			if err != nil && !errors.Is(err, store.ErrTooOld) {
				if !m.failing.Swap(true) {
					m.Log.Warn("reading the store failed, trying again until it is back", "kind", kind, "error", err)
				}
				_ = wait.Sleep(ctx, retry)
			}
			var events []store.Event
			if events, cursor, err = m.list(ctx, kind); err == nil {
				if m.failing.Swap(false) {
					m.Log.Info("the store is read again")
				}
				m.send(ctx, events)
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
		m.note(kind, events)
		m.send(ctx, events)
	}
	return nil
}

func (m *Mirror) send(ctx context.Context, events []store.Event) {
	if len(events) == 0 {
		return
	}
	select {
	case m.events <- events:
	case <-ctx.Done():
	}
}

// collect puts together what arrives within a few milliseconds.
func (m *Mirror) collect(ctx context.Context) {
	for {
		var pending []store.Event
		select {
		case pending = <-m.events:
		case <-ctx.Done():
			return
		}
		deadline := time.NewTimer(longest)
	gather:
		for {
			still := time.NewTimer(quiet)
			select {
			case more := <-m.events:
				pending = append(pending, more...)
			case <-still.C:
				break gather
			case <-deadline.C:
				break gather
			case <-ctx.Done():
				return
			}
		}
		m.Apply(m.batch(pending))
	}
}

// batch keeps the last event of each key.
func (m *Mirror) batch(events []store.Event) Batch {
	last := make(map[resource.Key]int, len(events))
	for i, e := range events {
		last[e.Row.Key] = i
	}
	var b Batch
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
			m.Log.Error("a stored resource can't be read and keeps its last form", "resource", e.Row.Key, "error", err)
			continue
		}
		b.Put = append(b.Put, object)
	}
	return b
}
