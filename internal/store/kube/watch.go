package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"weft/internal/kube/api"
	"weft/internal/store"
	"weft/resource"
)

// retry is how long a watcher waits before it connects again after a failure.
const retry = time.Second

// Watch implements [store.Store]. The API server says only in the stream that it no longer has a version: the channel
// is then closed without an event.
func (s *Store) Watch(ctx context.Context, kinds []string, from store.Cursor) (<-chan []store.Event, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	version, ours := strings.CutPrefix(string(from), s.cluster+"/")
	if !ours {
		return nil, store.ErrTooOld
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, store.ErrUnavailable
	}
	ctx, stop := context.WithCancel(ctx)
	detach := context.AfterFunc(s.ctx, stop)
	w := &watcher{store: s, at: s.rowsOf(only(kinds)), version: version, known: map[string]shown{}, stop: stop,
		wake: make(chan struct{}, 1), call: s.options.Outage.Call()}
	out := make(chan []store.Event)
	s.running.Go(func() {
		defer stop()
		defer detach()
		w.read(ctx)
	})
	s.running.Go(func() {
		defer close(out)
		w.send(ctx, out)
	})
	return out, nil
}

// Position implements [store.Store]: the API server has no order of all kinds.
func (s *Store) Position(store.Cursor) int64 { return 0 }

// Newest implements [store.Store].
func (s *Store) Newest(context.Context, []string, int64) (int64, error) { return 0, nil }

// watcher follows the objects of a kind. One goroutine reads the stream into a queue, another sends the queue.
type watcher struct {
	store   *Store
	at      place
	version string           // of the last event or bookmark
	known   map[string]shown // the rows of the objects that the watch had, by UID
	stop    context.CancelFunc
	call    *api.Call

	mu    sync.Mutex
	queue []store.Event
	ended bool
	wake  chan struct{}
}

// shown is the last row of an object. An object without a row, such as a status that was never written, has no version.
type shown struct {
	key     resource.Key
	version string
}

// read follows the stream until ctx ends, the server no longer has the version, or an event cannot be decoded: the same
// event would come again. Between two streams the server may have been restored from a backup.
func (w *watcher) read(ctx context.Context) {
	defer w.end()
	defer w.call.NoteSuccess() // it is not tried any more
	connected, expired := true, false
	for ctx.Err() == nil {
		var err error
		if !connected {
			err = w.store.checkHistory(ctx, w.at.collection(), w.version)
			connected = err == nil
		}
		if connected && expired {
			return
		}
		if connected {
			err, connected = w.follow(ctx), false
		}
		switch {
		case errors.Is(err, errWentBack):
			if w.store.wentBack(err); w.store.options.WentBack != nil {
				<-ctx.Done() // readers would take what it has now for changes
			}
			return
		case errors.Is(err, errLags), errors.Is(err, errUnreadable):
			return
		case api.IsExpired(err):
			expired = true
			continue
		case errors.Is(err, io.EOF) || ctx.Err() != nil:
			continue // the server ends each stream after some minutes
		default:
			w.call.NoteFailure(err, "a watch failed; it is tried until it succeeds", "kind", w.at.kind.Name)
		}
		select {
		case <-time.After(retry):
		case <-ctx.Done():
		}
	}
}

// The reasons for which a watch ends and its reader lists the kind again.
var (
	errLags       = errors.New("kube: the watcher lags")
	errUnreadable = errors.New("kube: an event cannot be decoded")
)

// follow reads one stream.
func (w *watcher) follow(ctx context.Context) error {
	stream, err := w.store.api.Watch(ctx, w.at.collection(), w.version, w.at.selector())
	if err != nil {
		return err
	}
	defer stream.Close()
	w.call.NoteSuccess()
	for {
		e, err := stream.Next()
		if err != nil {
			return err
		}
		var o object
		if err := json.Unmarshal(e.Object, &o); err != nil {
			return fmt.Errorf("%w: %w", errUnreadable, err)
		}
		if e.Type != api.Bookmark {
			events, err := w.events(&o, e.Type)
			if err != nil {
				return fmt.Errorf("%w: %w", errUnreadable, err)
			}
			if err := w.add(events); err != nil {
				return err
			}
		}
		w.version = o.Metadata.ResourceVersion
	}
}

// events returns the events of a row for an event of its object. An object whose row did not change has none. The event
// of a status that was removed has the key alone.
func (w *watcher) events(o *object, change string) ([]store.Event, error) {
	row, exists, err := w.at.row(o)
	if err != nil {
		return nil, err
	}
	cursor := w.store.cursor(o.Metadata.ResourceVersion)
	before, known := w.known[o.Metadata.UID]
	if !known && change == api.Modified {
		// The row may have existed at the cursor, before this watch knew it.
		before = shown{key: row.Key, version: unknown}
	}
	after := shown{key: row.Key}
	if exists && change != api.Deleted {
		after.version = row.Version
	}
	if w.known[o.Metadata.UID] = after; change == api.Deleted {
		delete(w.known, o.Metadata.UID)
	}
	var events []store.Event
	switch {
	case exists && change == api.Deleted:
		events = append(events, store.Event{Row: row, Deleted: true, Cursor: cursor})
	case before.version != "" && (after.version == "" || before.key != after.key):
		events = append(events, store.Event{Row: store.Row{Key: before.key}, Deleted: true, Cursor: cursor})
	}
	if after.version != "" && before != after {
		events = append(events, store.Event{Row: row, Cursor: cursor})
	}
	return events, nil
}

// unknown stands for the version of a row that may have existed.
const unknown = "unknown"

// add puts events into the queue.
func (w *watcher) add(events []store.Event) error {
	if len(events) == 0 {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.queue = append(w.queue, events...); len(w.queue) > w.store.options.Backlog {
		return errLags
	}
	w.signal()
	return nil
}

func (w *watcher) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// end has the channel closed after the queue.
func (w *watcher) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	w.signal()
}

// send sends the queue until the stream has ended.
func (w *watcher) send(ctx context.Context, out chan<- []store.Event) {
	for {
		w.mu.Lock()
		events, ended := w.queue, w.ended
		w.queue = nil
		w.mu.Unlock()
		if len(events) > 0 {
			select {
			case out <- events:
				continue
			case <-ctx.Done():
				return
			}
		}
		if ended {
			return
		}
		<-w.wake
	}
}
