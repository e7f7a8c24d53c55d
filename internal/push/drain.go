package push

import (
	"context"
	"maps"
	"slices"
	"time"

	"weft/internal/mirror"
	"weft/internal/state"
	"weft/internal/table"
	"weft/internal/wait"
	"weft/kind"
	"weft/resource"
)

// RemoveListeners removes listeners, by "address:port", from the listener status of a Dataplane.
type RemoveListeners func(ctx context.Context, key state.ProxyKey, listeners []string) error

// drains has the listeners that drain. The record that survives a restart is the listener status: a listener that it
// has and the Dataplane does not have is draining, and waits again after a restart. One instance runs the drains, for
// the clients of every instance.
type drains struct {
	ctx    context.Context                      // of the run; nil: another instance runs the drains
	open   map[state.ProxyKey]map[string]uint64 // the revision that clients must have acked, by listener
	pinned map[state.ProxyKey]bool              // the proxies whose drains are followed
}

// start records the listeners that drain now, and returns those that did not drain before. A listener that no longer
// drains is wanted again: should it drain later, clients must ack a later revision.
func (w *drains) start(key state.ProxyKey, listeners []string, revision uint64) (fresh []string) {
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

// stillDraining returns those of the listeners that have drained since a revision.
func (w *drains) stillDraining(key state.ProxyKey, listeners []string, revision uint64) []string {
	return slices.DeleteFunc(slices.Clone(listeners), func(l string) bool {
		since, waits := w.open[key][l]
		return !waits || since != revision
	})
}

// RunDrains runs drains until ctx ends: those that wait already, and every later one.
func (h *Hub) RunDrains(ctx context.Context) {
	h.mu.Lock()
	h.drains.ctx, h.drains.open = ctx, map[state.ProxyKey]map[string]uint64{}
	for key := range h.drains.pinned {
		if listeners, _ := h.state.Draining.Value(key); len(listeners) > 0 {
			h.drain(key, listeners)
		}
	}
	h.mu.Unlock()
	<-ctx.Done()
	h.mu.Lock()
	h.drains.ctx, h.drains.open = nil, nil
	h.mu.Unlock()
}

// followListenerStatuses follows the drains of every Dataplane that has a listener status.
func (h *Hub) followListenerStatuses(b mirror.Batch, commits ...*table.Changes) {
	for _, changes := range commits {
		for key, listeners := range h.state.Draining.Changed(changes) {
			h.drain(key, listeners)
		}
	}
	for _, o := range b.Put {
		serving, ok := o.(*resource.Object[kind.DataplaneListenerStatus])
		if !ok {
			continue
		}
		if key, _ := state.ProxyOf(serving.Key()); !h.drains.pinned[key] {
			h.drains.pinned[key] = true
			h.drain(key, h.state.Draining.Pin(key))
		}
	}
	for _, removed := range b.Removed {
		key, ok := state.ProxyOf(removed)
		if ok && removed == key.ListenerStatusRow() && h.drains.pinned[key] {
			delete(h.drains.pinned, key)
			delete(h.drains.open, key)
			h.state.Draining.Unpin(key)
		}
	}
}

// tellUnserved notifies the sessions of proxies whose new listener status lacks a listener of their Dataplane. An
// inbound that is wanted again in the moment in which its drain ends changes no listener, so that nothing else would
// have its agent's report read again.
func (h *Hub) tellUnserved(b mirror.Batch) {
	r := h.reader()
	for _, o := range b.Put {
		key, ok := state.ProxyOf(o.Key())
		p := h.proxies[key]
		if !ok || p == nil || len(p.watchers) == 0 || o.Key() != key.ListenerStatusRow() || !h.state.Unserved(r, key) {
			continue
		}
		if own, _ := h.config.own.Value(key); own != nil {
			h.tell(p, own.Proxy)
		}
	}
}

// drain removes listeners once no client can send requests to them. They left the endpoint lists with the commit that
// published the newest revision.
func (h *Hub) drain(key state.ProxyKey, listeners []string) {
	ctx, revision := h.drains.ctx, h.catalog.Revision()
	if ctx == nil {
		return
	}
	if fresh := h.drains.start(key, listeners, revision); len(fresh) > 0 {
		go h.drainOnceAcked(ctx, key, fresh, revision)
	}
}

// addressRowsOf returns the rows by which other zones dial any of a proxy's listeners; none where the listeners serve
// the own zone alone.
func (h *Hub) addressRowsOf(key state.ProxyKey, listeners []string) []resource.Key {
	r := h.reader()
	serving, ok := h.state.ListenerStatus(r, key)
	if !ok || !slices.ContainsFunc(serving.Spec.Ingresses, func(z kind.ZoneIngressSection) bool {
		return slices.Contains(listeners, z.Listener())
	}) {
		return nil
	}
	return h.state.AddressRows(r, key)
}

func (h *Hub) drainOnceAcked(ctx context.Context, key state.ProxyKey, listeners []string, revision uint64) {
	started := time.Now()
	bounded, cancel := context.WithTimeout(ctx, Bound)
	defer cancel()
	err := h.everywhere(bounded, revision, append(h.rowsOf(key), key.Resource()))
	if rows := h.addressRowsOf(key, listeners); err == nil && len(rows) > 0 {
		err = h.confirmed(bounded, rows)
	}
	_ = wait.Sleep(ctx, h.callbacks.DrainTime)
	h.mu.Lock()
	listeners = h.drains.stillDraining(key, listeners, revision)
	h.mu.Unlock()
	if ctx.Err() != nil || len(listeners) == 0 {
		return
	}
	if err != nil {
		h.log.Warn("not every client acked the removal of draining listeners in time", "proxy", key, "bound", Bound,
			"error", err)
	}
	if err := h.callbacks.RemoveListeners(ctx, key, listeners); err != nil {
		h.log.Warn("drained listeners are not removed before the next start", "proxy", key, "listeners", listeners,
			"error", err)
		return
	}
	took := time.Since(started)
	if h.callbacks.Drained != nil {
		h.callbacks.Drained(len(listeners), took, err == nil)
	}
	h.log.Info("listeners drained", "proxy", key, "listeners", listeners, "after", took.Round(time.Millisecond))
}
