// Package follow is the part of a store's Watch that does not depend on how the store keeps its history: the watchers,
// and their positions in the history.
//
// A watcher has a position and no queue, so a slow watcher uses no memory; the length of the history is its bound. A
// watcher at the end of the history sleeps until one of its kinds changes.
package follow

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"weft/internal/store"
)

// Batch is how many events are read, and sent, at once at most.
const Batch = 1000

// Read returns the events of kinds after a position, in order, at most [Batch], and the position of the last. It
// returns [store.ErrTooOld] if the history of one of them does not reach back to the position.
type Read func(ctx context.Context, kinds []string, after int64) (events []store.Event, last int64, err error)

// retry is how long a watcher waits after a read that failed, unless it is woken.
const retry = time.Second

// Hub wakes watchers. Its zero value is ready.
type Hub struct {
	mu       sync.Mutex
	watchers map[*watcher]bool
	closed   bool
	running  sync.WaitGroup
}

type watcher struct {
	kinds []string
	wake  chan struct{} // holds one signal: more say nothing more
	stop  context.CancelFunc
}

// Notify wakes the watchers of these kinds.
func (h *Hub) Notify(kinds ...string) {
	h.wake(func(w *watcher) bool {
		return slices.ContainsFunc(kinds, func(kind string) bool { return slices.Contains(w.kinds, kind) })
	})
}

// ChangedAll wakes all watchers.
func (h *Hub) ChangedAll() { h.wake(func(*watcher) bool { return true }) }

func (h *Hub) wake(concerned func(*watcher) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for w := range h.watchers {
		if !concerned(w) {
			continue
		}
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// Watch sends the events of kinds after a position until ctx ends, the hub is closed or the position is too old. A read
// with another error is tried again.
func (h *Hub) Watch(ctx context.Context, kinds []string, after int64, read Read) (<-chan []store.Event, error) {
	ctx, stop := context.WithCancel(ctx)
	w := &watcher{kinds: kinds, wake: make(chan struct{}, 1), stop: stop}
	if !h.add(w) {
		stop()
		return nil, store.ErrUnavailable
	}
	events := make(chan []store.Event)
	go func() {
		defer h.running.Done()
		defer close(events)
		defer h.remove(w)
		w.run(ctx, after, read, events)
	}()
	return events, nil
}

func (w *watcher) run(ctx context.Context, after int64, read Read, out chan<- []store.Event) {
	for {
		events, last, err := read(ctx, w.kinds, after)
		if errors.Is(err, store.ErrTooOld) {
			return
		}
		if len(events) > 0 && err == nil {
			select {
			case out <- events:
				after = last
			case <-ctx.Done():
				return
			}
		}
		if len(events) == Batch && err == nil {
			continue
		}
		if !w.wait(ctx, err != nil) {
			return
		}
	}
}

// wait returns once there may be something to read: when the watcher is woken, and a while after a failed read. It
// returns false when ctx has ended.
func (w *watcher) wait(ctx context.Context, failed bool) bool {
	var again <-chan time.Time
	if failed {
		again = time.After(retry)
	}
	select {
	case <-w.wake:
	case <-again:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

func (h *Hub) add(w *watcher) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	if h.watchers == nil {
		h.watchers = map[*watcher]bool{}
	}
	h.watchers[w] = true
	h.running.Add(1)
	return true
}

func (h *Hub) remove(w *watcher) {
	w.stop()
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.watchers, w)
}

// Close ends every watcher and waits until none reads any more.
func (h *Hub) Close() {
	h.mu.Lock()
	h.closed = true
	for w := range h.watchers {
		w.stop()
	}
	h.mu.Unlock()
	h.running.Wait()
}
