package publish

import (
	"context"
	"maps"
	"slices"
	"time"

	"weft/internal/graph"
	"weft/internal/mirror"
	"weft/internal/table"
	"weft/internal/wait"
	"weft/kind"
	"weft/resource"
)

// RemoveListeners takes listeners, by "address:port", out of what a Dataplane serves.
type RemoveListeners func(ctx context.Context, key graph.ProxyKey, listeners []string) error

// withdrawals are the listeners that wait to go. The record that survives a restart is the serving row
// itself: what it names and the Dataplane has no more is being withdrawn, and waits anew. One instance
// runs them, since what it waits for is every instance.
type withdrawals struct {
	ctx    context.Context                      // of the run; nil: another instance runs them
	open   map[graph.ProxyKey]map[string]uint64 // the revision that clients must be past, by listener
	pinned map[graph.ProxyKey]bool              // followed
}

// begin takes note of the listeners that wait now, and answers those that did not. One that no longer
// waits is wanted again: should it go later, clients must be past a later revision.
func (w *withdrawals) begin(key graph.ProxyKey, listeners []string, revision uint64) (fresh []string) {
	if len(listeners) == 0 {
		delete(w.open, key)
		return nil
	}
	maps.DeleteFunc(w.open[key], func(l string, _ uint64) bool { return !slices.Contains(listeners, l) })
	for _, l := range listeners {
		if _, waits := w.open[key][l]; waits {
			continue
		}
		if w.open[key] == nil {
			w.open[key] = map[string]uint64{}
		}
		w.open[key][l] = revision
		fresh = append(fresh, l)
	}
	return fresh
}

// still answers those of the listeners that have waited since a revision.
func (w *withdrawals) still(key graph.ProxyKey, listeners []string, revision uint64) []string {
	return slices.DeleteFunc(slices.Clone(listeners), func(l string) bool {
		since, waits := w.open[key][l]
		return !waits || since != revision
	})
}

// RunDrains runs withdrawals until ctx ends: those that wait already, and every further one.
func (h *Hub) RunDrains(ctx context.Context) {
	h.mu.Lock()
	h.withdrawals.ctx, h.withdrawals.open = ctx, map[graph.ProxyKey]map[string]uint64{}
	for key := range h.withdrawals.pinned {
		if listeners, _ := h.state.Draining.Value(key); len(listeners) > 0 {
			h.withdraw(key, listeners)
		}
	}
	h.mu.Unlock()
	<-ctx.Done()
	h.mu.Lock()
	h.withdrawals.ctx, h.withdrawals.open = nil, nil
	h.mu.Unlock()
}

// followServings keeps an eye on every Dataplane that serves something.
func (h *Hub) followServings(b mirror.Batch, commits ...*table.Changes) {
	for _, changes := range commits {
		for key, listeners := range h.state.Draining.Changed(changes) {
			h.withdraw(key, listeners)
		}
	}
	for _, o := range b.Put {
		serving, ok := o.(*resource.Object[kind.DataplaneListenerStatus])
		if !ok {
			continue
		}
		if key, _ := graph.ProxyOf(serving.Key()); !h.withdrawals.pinned[key] {
			h.withdrawals.pinned[key] = true
			h.withdraw(key, h.state.Draining.Pin(key))
		}
	}
	for _, removed := range b.Removed {
		key, ok := graph.ProxyOf(removed)
		if ok && removed == key.ListenerStatusRow() && h.withdrawals.pinned[key] {
			delete(h.withdrawals.pinned, key)
			delete(h.withdrawals.open, key)
			h.state.Draining.Unpin(key)
		}
	}
}

// tellUnserved has the sessions of proxies look again whose new listener status lacks what their Dataplane has. An inbound
// that is wanted again in the moment in which its drain ends changes no listener, so that nothing else would have its
// agent's report read anew.
func (h *Hub) tellUnserved(b mirror.Batch) {
	r := h.reader()
	for _, o := range b.Put {
		key, ok := graph.ProxyOf(o.Key())
		p := h.proxies[key]
		if !ok || p == nil || len(p.watchers) == 0 || o.Key() != key.ListenerStatusRow() || !h.state.Unserved(r, key) {
			continue
		}
		if own, _ := h.config.own.Value(key); own != nil {
			h.tell(p, own.Proxy)
		}
	}
}

// withdraw lets listeners go once no client can be on its way to them. They left the endpoint lists
// with the commit that published the newest revision.
func (h *Hub) withdraw(key graph.ProxyKey, listeners []string) {
	ctx, revision := h.withdrawals.ctx, h.catalog.Revision()
	if ctx == nil {
		return
	}
	if fresh := h.withdrawals.begin(key, listeners, revision); len(fresh) > 0 {
		go h.withdrawOnceSettled(ctx, key, fresh, revision)
	}
}

// toldOf are the rows that told other zones of any of a proxy's listeners; none where these are for its own zone.
func (h *Hub) toldOf(key graph.ProxyKey, listeners []string) []resource.Key {
	r := h.reader()
	serving, ok := h.state.ListenerStatus(r, key)
	if !ok || !slices.ContainsFunc(serving.Spec.Ingresses, func(z kind.ZoneIngressSection) bool { return slices.Contains(listeners, z.Listener()) }) {
		return nil
	}
	return h.state.AddressRows(r, key)
}

func (h *Hub) withdrawOnceSettled(ctx context.Context, key graph.ProxyKey, listeners []string, revision uint64) {
	started := time.Now()
	bounded, cancel := context.WithTimeout(ctx, Bound)
	defer cancel()
	err := h.everywhere(bounded, revision, append(h.rowsOf(key), key.Resource()))
	if rows := h.toldOf(key, listeners); err == nil && len(rows) > 0 {
		err = h.confirmed(bounded, rows)
	}
	_ = wait.Sleep(ctx, h.outside.DrainTime)
	h.mu.Lock()
	listeners = h.withdrawals.still(key, listeners, revision)
	h.mu.Unlock()
	if ctx.Err() != nil || len(listeners) == 0 {
		return
	}
	if err != nil {
		h.log.Warn("a withdrawal did not hear from every client in time", "proxy", key, "bound", Bound, "error", err)
	}
	if err := h.outside.RemoveListeners(ctx, key, listeners); err != nil {
		h.log.Warn("withdrawn listeners stay until the next start", "proxy", key, "listeners", listeners, "error", err)
		return
	}
	took := time.Since(started)
	if h.outside.Drained != nil {
		h.outside.Drained(len(listeners), took, err == nil)
	}
	h.log.Info("listeners withdrawn", "proxy", key, "listeners", listeners, "after", took.Round(time.Millisecond))
}
