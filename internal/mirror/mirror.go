// Package mirror copies the store into memory. It lists and watches every kind, and passes changes on in batches.
// Batching happens here only.
//
// The batches add up to the store's content even when a watch fails: the mirror then lists the kind again and emits the
// difference from the versions already passed on, deletions included.
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

// Batch is a set of changes that are applied together. Each key occurs once. A resource that was created and deleted
// within one batch occurs in Removed, although no batch has put it.
type Batch struct {
	Put     []resource.Any
	Removed []resource.Key
}

const (
	quietPeriod   = time.Millisecond     // delay after the last change
	maxBatchDelay = 5 * time.Millisecond // longest delay after the first change
	retryInterval = time.Second          // delay after a failure of the store
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
	events chan []store.Event
	// failing is true while the store can't be read, so that the failure is logged once for all kinds.
	failing atomic.Bool
	// versions are those passed on, by kind. Each inner map belongs to the follow goroutine of its kind.
	versions map[string]map[resource.Key]string
}

// Start lists every kind and applies the first batch before it returns; an error of the first list is returned. It then
// follows the store until ctx ends. The returned function blocks until the mirror has stopped.
func Start(ctx context.Context, c Config) (wait func(), err error) {
	m := &Mirror{Config: c, events: make(chan []store.Event), versions: map[string]map[resource.Key]string{}}
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
		m.recordVersions(kind, events)
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

// collect merges the changes of a few milliseconds into one batch.
func (m *Mirror) collect(ctx context.Context) {
	for {
		var pending []store.Event
		select {
		case pending = <-m.events:
		case <-ctx.Done():
			return
		}
		deadline := time.NewTimer(maxBatchDelay)
	gather:
		for {
			quietTimer := time.NewTimer(quietPeriod)
			select {
			case more := <-m.events:
				pending = append(pending, more...)
			case <-quietTimer.C:
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

// batch returns the last event of each key.
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
			m.Log.Error("a stored resource failed to decode; its previous version stays in use",
				"resource", e.Row.Key, "error", err)
			continue
		}
		b.Put = append(b.Put, object)
	}
	return b
}
