package publish

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"weft/internal/graph"
	"weft/internal/mirror"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// Bound is how long a listener that is withdrawn waits for clients that are slow, lost or refuse.
const Bound = 30 * time.Second

// Settler waits for streams.
type Settler interface {
	// WaitSettled returns once every attached stream has settled all revisions up to one, and how many
	// it lost meanwhile.
	WaitSettled(ctx context.Context, revision uint64) (lost int, err error)
}

// Keep stores rows that the table has already.
type Keep func(ctx context.Context, rows []resource.Any) error

// Forget takes listeners, by "address:port", out of what a Dataplane serves.
type Forget func(ctx context.Context, key graph.ProxyKey, listeners []string) error

// withdrawals are the listeners that wait to go. The record that survives a restart is the serving row
// itself: what it names and the Dataplane has no more is being withdrawn, and waits anew.
type withdrawals struct {
	mu     sync.Mutex
	open   map[withdrawal]bool
	pinned map[graph.ProxyKey]bool // belongs to the table's writer
}

type withdrawal struct {
	proxy    graph.ProxyKey
	listener string
}

func newWithdrawals() withdrawals {
	return withdrawals{open: map[withdrawal]bool{}, pinned: map[graph.ProxyKey]bool{}}
}

// begin answers the listeners whose withdrawal is not open yet, and opens it.
func (w *withdrawals) begin(key graph.ProxyKey, listeners []string) (fresh []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range listeners {
		if id := (withdrawal{key, l}); !w.open[id] {
			w.open[id] = true
			fresh = append(fresh, l)
		}
	}
	return fresh
}

func (w *withdrawals) end(key graph.ProxyKey, listeners []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range listeners {
		delete(w.open, withdrawal{key, l})
	}
}

// Withdraw runs withdrawals and holds with a settler and writers until ctx ends. It is called once,
// before the first batch.
func (h *Hub) Withdraw(ctx context.Context, s Settler, forget Forget, keep Keep) {
	h.ctx, h.settler, h.forget, h.keep = ctx, s, forget, keep
}

// hold answers the rows that keep former endpoints where a change of membership alone emptied a list,
// and stores them beside: the table does not wait for the store.
func (h *Hub) hold(changes *table.Changes, now time.Time) []resource.Any {
	var rows []resource.Any
	for t := range h.state.Endpoints.Transitions(changes) {
		if len(t.Old.Endpoints) == 0 || len(t.New.Endpoints) > 0 {
			continue
		}
		if row := h.state.Hold(h.reader(), t.Key, t.Old.Endpoints, now); row != nil {
			h.log.Info("former endpoints are held until new ones serve", "destination", t.Key, "endpoints", len(row.Spec.Endpoints))
			rows = append(rows, row)
		}
	}
	if len(rows) > 0 {
		go func() {
			if err := h.keep(h.ctx, rows); err != nil && h.ctx.Err() == nil {
				h.log.Warn("endpoints that are held would not be after a restart", "error", err)
			}
		}()
	}
	return rows
}

// followServings keeps an eye on every Dataplane that serves something.
func (h *Hub) followServings(b mirror.Batch, commits ...*table.Changes) {
	for _, changes := range commits {
		for key, listeners := range h.state.Withdrawing.Changed(changes) {
			h.withdraw(key, listeners)
		}
	}
	for _, o := range b.Put {
		serving, ok := o.(*resource.Object[kind.DataplaneServing])
		if !ok {
			continue
		}
		if key := (graph.ProxyKey{Mesh: serving.Mesh, Name: serving.Name}); !h.withdrawals.pinned[key] {
			h.withdrawals.pinned[key] = true
			h.withdraw(key, h.state.Withdrawing.Pin(key))
		}
	}
	for _, removed := range b.Removed {
		key := graph.ProxyKey{Mesh: removed.Mesh, Name: removed.Name}
		if removed.Kind == kind.DataplaneServings.Name && h.withdrawals.pinned[key] {
			delete(h.withdrawals.pinned, key)
			h.state.Withdrawing.Unpin(key)
		}
	}
}

// withdraw lets listeners go once no client can be on its way to them. They left the endpoint lists
// with the commit that published the newest revision.
func (h *Hub) withdraw(key graph.ProxyKey, listeners []string) {
	listeners = h.withdrawals.begin(key, listeners)
	if len(listeners) == 0 {
		return
	}
	revision := h.catalog.Revision()
	go func() {
		defer h.withdrawals.end(key, listeners)
		started := time.Now()
		h.settle(revision)
		wanted := h.state.Withdrawing.Get(h.reader(), key)
		listeners := slices.DeleteFunc(slices.Clone(listeners), func(l string) bool { return !slices.Contains(wanted, l) })
		if len(listeners) == 0 || h.ctx.Err() != nil {
			return
		}
		if err := h.forget(h.ctx, key, listeners); err != nil {
			h.log.Warn("withdrawn listeners stay until the next start", "proxy", key, "listeners", listeners, "error", err)
			return
		}
		h.log.Info("listeners withdrawn", "proxy", key, "listeners", listeners, "after", time.Since(started).Round(time.Millisecond))
	}()
}

// settle waits until every stream is past a revision; a stream that is lost may still send by what it
// had, so it counts until the bound.
func (h *Hub) settle(revision uint64) {
	ctx, cancel := context.WithTimeout(h.ctx, Bound)
	defer cancel()
	lost, err := h.settler.WaitSettled(ctx, revision)
	if err == nil && lost > 0 {
		<-ctx.Done()
		err = ctx.Err()
	}
	if errors.Is(err, context.DeadlineExceeded) {
		h.log.Warn("a withdrawal did not hear from every client in time", "bound", Bound, "lost", lost)
	}
}
