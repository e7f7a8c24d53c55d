// Package memory is a store in memory only: for tests, and for a control plane without a data directory.
package memory

import (
	"bytes"
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"weft/internal/store"
	"weft/internal/store/follow"
	"weft/resource"
)

// DefaultHistory is how many events of each kind are kept where Options does not say.
const DefaultHistory = 100_000

// Options shape a store.
type Options struct {
	// History is how many events of each kind are kept for watchers at least; 0 means DefaultHistory.
	History int
}

// Store implements [store.Store].
type Store struct {
	history int
	hub     follow.Hub

	mu     sync.RWMutex
	closed bool
	// revision counts writes. It begins at random, so that a cursor of an earlier store is not taken
	// for one of this.
	start, revision int64
	kinds           map[string]*rows
	owned           map[resource.Key]map[resource.Key]bool // by owner
}

// rows are the rows of one kind.
type rows struct {
	byKey  map[resource.Key]store.Row
	events []event
	// horizon is the position of the newest event that was dropped.
	horizon int64
}

type event struct {
	position int64
	store.Event
}

var _ store.Store = (*Store)(nil)

// New returns an empty store.
func New(o Options) *Store {
	if o.History == 0 {
		o.History = DefaultHistory
	}
	start := 1 + rand.Int64N(1<<48)
	return &Store{
		history:  o.History,
		start:    start,
		revision: start,
		kinds:    map[string]*rows{},
		owned:    map[resource.Key]map[resource.Key]bool{},
	}
}

// Get implements [store.Store].
func (s *Store) Get(ctx context.Context, key resource.Key) (store.Row, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if err := s.usable(ctx); err != nil {
		return store.Row{}, err
	}
	row, ok := s.find(key)
	if !ok {
		return store.Row{}, store.ErrNotFound
	}
	return row, nil
}

// List implements [store.Store].
func (s *Store) List(ctx context.Context, kind string) ([]store.Row, store.Cursor, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if err := s.usable(ctx); err != nil {
		return nil, "", err
	}
	var list []store.Row
	if of := s.kinds[kind]; of != nil {
		for _, row := range of.byKey {
			list = append(list, row)
		}
	}
	slices.SortFunc(list, func(a, b store.Row) int {
		return cmp.Or(cmp.Compare(a.Key.Mesh, b.Key.Mesh), cmp.Compare(a.Key.Name, b.Key.Name))
	})
	return list, cursor(s.revision), nil
}

// Create implements [store.Store].
func (s *Store) Create(ctx context.Context, row store.Row) (store.Row, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return store.Row{}, err
	}
	if _, exists := s.find(row.Key); exists {
		return store.Row{}, store.ErrExists
	}
	if row.Owner != nil {
		if _, exists := s.find(*row.Owner); !exists {
			return store.Row{}, store.ErrNoOwner
		}
		owner := *row.Owner
		row.Owner = &owner
		if s.owned[owner] == nil {
			s.owned[owner] = map[resource.Key]bool{}
		}
		s.owned[owner][row.Key] = true
	}
	row.Created = time.Now().UTC().Round(0)
	return s.put(row, row.Created), nil
}

// Update implements [store.Store].
func (s *Store) Update(ctx context.Context, row store.Row) (store.Row, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return store.Row{}, err
	}
	old, ok := s.find(row.Key)
	switch {
	case !ok:
		return store.Row{}, store.ErrNotFound
	case old.Version != row.Version:
		return store.Row{}, store.ErrStale
	}
	row.Created, row.Owner = old.Created, old.Owner
	return s.put(row, time.Now().UTC().Round(0)), nil
}

// Delete implements [store.Store]. What the row owns goes at once.
func (s *Store) Delete(ctx context.Context, key resource.Key, version string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return err
	}
	old, ok := s.find(key)
	switch {
	case !ok:
		return store.ErrNotFound
	case version != "" && version != old.Version:
		return store.ErrStale
	}
	s.remove(old)
	return nil
}

// Watch implements [store.Store].
func (s *Store) Watch(ctx context.Context, kind string, from store.Cursor) (<-chan []store.Event, error) {
	after, err := strconv.ParseInt(string(from), 10, 64)
	if err != nil {
		return nil, store.ErrTooOld
	}
	if _, _, err := s.read(ctx, kind, after); err != nil {
		return nil, err
	}
	return s.hub.Watch(ctx, kind, after, s.read)
}

// Position implements [store.Store].
func (s *Store) Position(c store.Cursor) int64 {
	position, _ := strconv.ParseInt(string(c), 10, 64)
	return position
}

// Newest implements [store.Store].
func (s *Store) Newest(ctx context.Context, after, until int64) (map[string]int64, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	newest := map[string]int64{}
	for kind, of := range s.kinds {
		next, _ := slices.BinarySearchFunc(of.events, until+1, func(e event, position int64) int {
			return cmp.Compare(e.position, position)
		})
		if next > 0 && of.events[next-1].position > after {
			newest[kind] = of.events[next-1].position
		}
	}
	return newest, nil
}

// Close implements [store.Store].
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.hub.Close()
	return nil
}

func cursor(position int64) store.Cursor { return store.Cursor(strconv.FormatInt(position, 10)) }

func (s *Store) usable(ctx context.Context) error {
	if s.closed {
		return store.ErrUnavailable
	}
	return ctx.Err()
}

func (s *Store) find(key resource.Key) (store.Row, bool) {
	of := s.kinds[key.Kind]
	if of == nil {
		return store.Row{}, false
	}
	row, ok := of.byKey[key]
	return row, ok
}

func (s *Store) put(row store.Row, now time.Time) store.Row {
	row.Modified = now
	row.Body = bytes.Clone(row.Body)
	row.Version = strconv.FormatInt(s.revision+1, 10)
	s.record(row, false).byKey[row.Key] = row
	return row
}

func (s *Store) remove(row store.Row) {
	delete(s.record(row, true).byKey, row.Key)
	if row.Owner != nil {
		delete(s.owned[*row.Owner], row.Key)
	}
	owned := s.owned[row.Key]
	delete(s.owned, row.Key)
	for key := range owned {
		if row, ok := s.find(key); ok {
			s.remove(row)
		}
	}
}

// record takes the next revision and adds an event to the history of its kind. It drops the older
// half of a history that has twice its length.
func (s *Store) record(row store.Row, deleted bool) *rows {
	s.revision++
	of := s.kinds[row.Key.Kind]
	if of == nil {
		of = &rows{byKey: map[resource.Key]store.Row{}}
		s.kinds[row.Key.Kind] = of
	}
	of.events = append(of.events,
		event{s.revision, store.Event{Row: row, Deleted: deleted, Cursor: cursor(s.revision)}})
	if len(of.events) >= 2*s.history {
		of.horizon = of.events[s.history-1].position
		of.events = slices.Clone(of.events[s.history:])
	}
	s.hub.Notify(row.Key.Kind)
	return of
}

// read implements [follow.Read].
func (s *Store) read(ctx context.Context, kind string, after int64) ([]store.Event, int64, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if err := s.usable(ctx); err != nil {
		return nil, 0, err
	}
	of := s.kinds[kind]
	if after > s.revision || after < s.start || of != nil && after < of.horizon {
		return nil, 0, store.ErrTooOld
	}
	if of == nil {
		return nil, after, nil
	}
	first, _ := slices.BinarySearchFunc(of.events, after+1, func(e event, position int64) int {
		return cmp.Compare(e.position, position)
	})
	found := of.events[first:min(first+follow.Batch, len(of.events))]
	events := make([]store.Event, len(found))
	for i, e := range found {
		events[i], after = e.Event, e.position
	}
	return events, after, nil
}
