package mirror

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"

	"weft/internal/store"
	"weft/resource"
)

// Changes are the rows that changed. Each key occurs once.
type Changes struct {
	Put     []store.Row
	Removed []resource.Key
	// Position is that of a [Batch].
	Position int64
}

// Queue has the changes of some kinds that one reader has not taken yet, each row in its last state. A slow reader gets
// more at once, and with a change all earlier ones.
type Queue struct {
	kinds map[string]bool

	mu       sync.Mutex
	begun    bool
	number   uint64 // of the changes so far
	changes  map[resource.Key]change
	position int64
	ready    chan struct{} // has a signal while there is something to take
}

// change is the last state of a row, and the number of its change.
type change struct {
	store.Event
	number uint64
}

// NewQueue returns the queue of a reader of kinds.
func NewQueue(kinds ...string) *Queue {
	q := &Queue{kinds: map[string]bool{}, changes: map[resource.Key]change{}, ready: make(chan struct{}, 1)}
	for _, kind := range kinds {
		q.kinds[kind] = true
	}
	return q
}

// Next waits for changes. The first ones have the store's whole content.
func (q *Queue) Next(ctx context.Context) (Changes, error) {
	select {
	case <-q.ready:
		return q.take(), nil
	case <-ctx.Done():
		return Changes{}, ctx.Err()
	}
}

// add adds events up to a position. A position without events is news too.
func (q *Queue) add(events []store.Event, position int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	news := !q.begun || len(events) == 0
	for _, e := range events {
		if q.kinds[e.Row.Key.Kind] {
			q.number++
			q.changes[e.Row.Key] = change{e, q.number}
			news = true
		}
	}
	q.begun, q.position = true, position
	if news {
		select {
		case q.ready <- struct{}{}:
		default:
		}
	}
}

// take returns the changes in the order of the last one of each row.
func (q *Queue) take() Changes {
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case <-q.ready:
	default:
	}
	taken := Changes{Position: q.position}
	inOrder := slices.SortedFunc(maps.Values(q.changes), func(a, b change) int {
		return cmp.Compare(a.number, b.number)
	})
	for _, c := range inOrder {
		if c.Deleted {
			taken.Removed = append(taken.Removed, c.Row.Key)
		} else {
			taken.Put = append(taken.Put, c.Row)
		}
	}
	q.changes = map[resource.Key]change{} // the first changes are many
	return taken
}
