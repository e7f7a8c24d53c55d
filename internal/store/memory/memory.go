// Package memory is a store in memory only: for tests, and for a control plane without a data directory.
package memory

import (
	"bytes"
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"weft/internal/store"
	"weft/internal/store/follow"
	"weft/resource"
)

// DefaultHistory is how many events are kept where Options does not say.
const DefaultHistory = 100_000

// Options shape a store.
type Options struct {
	// History is how many events, of all kinds, are kept for watchers at least; 0 means DefaultHistory.
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
	rows            map[string]map[resource.Key]store.Row  // by kind
	owned           map[resource.Key]map[resource.Key]bool // by owner
	events          []event
	horizon         map[string]int64 // the position of the newest event of each kind that was dropped
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
		rows:     map[string]map[resource.Key]store.Row{},
		owned:    map[resource.Key]map[resource.Key]bool{},
		horizon:  map[string]int64{},
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
func (s *Store) List(ctx context.Context, kinds ...string) ([]store.Row, store.Cursor, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if err := s.usable(ctx); err != nil {
		return nil, "", err
	}
	var list []store.Row
	for _, kind := range kinds {
		list = slices.AppendSeq(list, maps.Values(s.rows[kind]))
	}
	slices.SortFunc(list, func(a, b store.Row) int { return a.Key.Compare(b.Key) })
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

// Streams implements [store.Store].
func (s *Store) Streams(kinds []string) [][]string { return [][]string{kinds} }

// Watch implements [store.Store].
func (s *Store) Watch(ctx context.Context, kinds []string, from store.Cursor) (<-chan []store.Event, error) {
	after, err := strconv.ParseInt(string(from), 10, 64)
	if err != nil {
		return nil, store.ErrTooOld
	}
	if _, _, err := s.read(ctx, kinds, after); err != nil {
		return nil, err
	}
	return s.hub.Watch(ctx, kinds, after, s.read)
}

// Position implements [store.Store].
func (s *Store) Position(c store.Cursor) int64 {
	position, _ := strconv.ParseInt(string(c), 10, 64)
	return position
}

// Newest implements [store.Store].
func (s *Store) Newest(ctx context.Context, kinds []string, after int64) (int64, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if err := s.usable(ctx); err != nil {
		return 0, err
	}
	for _, e := range slices.Backward(s.events[s.firstAfter(after):]) {
		if slices.Contains(kinds, e.Row.Key.Kind) {
			return e.position, nil
		}
	}
	return after, nil
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
	row, ok := s.rows[key.Kind][key]
	return row, ok
}

func (s *Store) put(row store.Row, now time.Time) store.Row {
	row.Modified = now
	row.Body = bytes.Clone(row.Body)
	row.Version = strconv.FormatInt(s.revision+1, 10)
	if s.rows[row.Key.Kind] == nil {
		s.rows[row.Key.Kind] = map[resource.Key]store.Row{}
	}
	s.rows[row.Key.Kind][row.Key] = row
	s.record(row, false)
	return row
}

func (s *Store) remove(row store.Row) {
	delete(s.rows[row.Key.Kind], row.Key)
	s.record(row, true)
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

// record takes the next revision and adds an event to the history. It drops the older half of a history that has twice
// its length.
func (s *Store) record(row store.Row, deleted bool) {
	s.revision++
	s.events = append(s.events, event{s.revision, store.Event{Row: row, Deleted: deleted, Cursor: cursor(s.revision)}})
	if len(s.events) >= 2*s.history {
		for _, e := range s.events[:s.history] {
			s.horizon[e.Row.Key.Kind] = e.position
		}
		s.events = slices.Clone(s.events[s.history:])
	}
	s.hub.Notify(row.Key.Kind)
}

// firstAfter returns the index of the first event after a position.
func (s *Store) firstAfter(position int64) int {
	i, _ := slices.BinarySearchFunc(s.events, position+1, func(e event, position int64) int {
		return int(e.position - position)
	})
	return i
}

// read implements [follow.Read].
func (s *Store) read(ctx context.Context, kinds []string, after int64) (events []store.Event, last int64, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if err := s.usable(ctx); err != nil {
		return nil, 0, err
	}
	if after > s.revision || after < s.start ||
		slices.ContainsFunc(kinds, func(kind string) bool { return after < s.horizon[kind] }) {
		return nil, 0, store.ErrTooOld
	}
	last = after
	for _, e := range s.events[s.firstAfter(after):] {
		if !slices.Contains(kinds, e.Row.Key.Kind) {
			continue
		}
		events, last = append(events, e.Event), e.position
		if len(events) == follow.Batch {
			break
		}
	}
	return events, last, nil
}
