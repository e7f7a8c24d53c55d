// Package push moves derived values from the table to the streams.
//
// The [Hub] is the only writer of the table. It takes batches from the mirror, commits them, and moves the differences
// into resource sets. A proxy group has one set, shared by its proxies, with the assignments of the destinations that
// the group reaches. The zone ingresses of a mesh share one set, and its zone egresses two. A proxy has one set of its
// own. The Hub also sends agents the host names that their group resolves. It keeps derived the values that attached
// proxies need, and the endpoint lists of the zone's own services.
package push

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"weft/internal/graph"
	"weft/internal/mirror"
	"weft/internal/state"
	"weft/internal/table"
	"weft/internal/wait"
	"weft/internal/xds"
	"weft/resource"
)

// Follower receives every commit. It is called by the table's writer and must not block.
type Follower func(put []resource.Any, removed []resource.Key, commits []*table.Changes, now time.Time)

// Hub is the table's writer.
type Hub struct {
	Rows

	*resourceSets
	hostNames *groupNames
	config    *config
	followers []Follower
	log       *slog.Logger

	mu      sync.Mutex
	proxies map[state.ProxyKey]*proxy
	changed wait.Broadcast // of each commit

	drains    drains
	faults    faults
	retention retention
	lists     ownLists
	removals  *removals
	growth    growth

	ctx       context.Context // of the goroutines, from Use
	callbacks Callbacks
}

// proxy is a proxy that is in use: by a stream, the session of its agent, or a sender of its host names.
type proxy struct {
	set      *xds.ResourceSet
	own      *Own   // the last one; kept when the Dataplane is deleted, since its Envoy still runs
	revision uint64 // at which the last change of its own resources was published
	streams  map[*xds.Stream]struct{}
	watchers map[*func(*graph.Proxy)]struct{}
	// resolvers receive the host names that the proxy resolves.
	resolvers map[*func(*HostNames)]struct{}
}

// NewHub returns a hub with the last stages of a state, before its first commit.
func NewHub(g *graph.State, catalog *xds.Catalog, log *slog.Logger) *Hub {
	c := newConfig(g)
	sets := newResourceSets(c, catalog)
	h := &Hub{
		Rows: Rows{g}, config: c, log: log,
		resourceSets: sets,
		hostNames:    newGroupNames(c, sets),
		proxies:      map[state.ProxyKey]*proxy{},
		faults:       faults{state: g, log: log},
		retention:    retention{state: g, log: log},
		lists:        ownLists{g, map[resource.Key][]graph.DestinationKey{}},
		removals:     newRemovals(g),
		drains:       drains{pinned: map[state.ProxyKey]bool{}},
	}
	h.retention.callbacks = &h.callbacks
	g.DB.Contain(h.faults.failed)
	return h
}

// Follow adds a follower, before the first batch.
func (h *Hub) Follow(f Follower) { h.followers = append(h.followers, f) }

// Apply commits a batch and publishes what it changes.
func (h *Hub) Apply(b mirror.Batch) { h.apply(b, func(*table.Tx) {}) }

// Commit changes rows that this instance alone has and no store, and publishes the changes.
func (h *Hub) Commit(change func(*table.Tx)) { h.apply(mirror.Batch{}, change) }

// KeepTime commits at every time for which a derived value waits, until ctx ends.
func (h *Hub) KeepTime(ctx context.Context) {
	for {
		next, changed := h.state.DB.NextDeadline()
		var come <-chan time.Time
		if !next.IsZero() {
			come = time.After(time.Until(next))
		}
		select {
		case <-come:
			h.Commit(func(*table.Tx) {})
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

func (h *Hub) apply(b mirror.Batch, change func(*table.Tx)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.reader()
	changes := h.state.DB.Commit(func(tx *table.Tx) {
		for _, o := range b.Put {
			h.state.Put(tx, o)
		}
		for _, key := range b.Removed {
			h.state.Remove(tx, key)
		}
		change(tx)
	})
	now := time.Now()
	commits := []*table.Changes{changes}
	own := h.retention.rows(before, changes, b.Put, now)
	if len(own) > 0 {
		// The table has these rows before anything of the first commit is published. No client sees the state between:
		// an empty list, or a proxy that is known by its new SPIFFE ID alone.
		commits = append(commits, h.state.DB.Commit(func(tx *table.Tx) {
			for _, row := range own {
				h.state.Put(tx, row)
			}
		}))
	}
	for _, c := range commits {
		h.removals.note(c)
		h.publish(c)
	}
	h.removals.remove(b.Removed)
	commits = append(commits, h.faults.note()...)
	h.followListenerStatuses(b, commits...)
	h.tellUnserved(b)
	h.lists.follow(b)
	put := append(slices.Clip(b.Put), own...)
	for _, follow := range h.followers {
		follow(put, b.Removed, commits, now)
	}
	h.changed.Send()
}

// publish moves the differences of a commit into the resource sets. Streams move to another group only once the set of
// that group is complete.
func (h *Hub) publish(changes *table.Changes) {
	e := edits{}
	h.publishZoneProxies(e, changes)
	var changed, moved []*proxy
	var left []*graph.Proxy
	explicit := false // outbounds, which name resources of their group
	for key, own := range h.config.own.Changed(changes) {
		p := h.proxies[key]
		changed = append(changed, p)
		before, moves := h.updateProxy(e, p, own)
		if moves {
			moved = append(moved, p)
		}
		if before != nil {
			left = append(left, before)
		}
		explicit = explicit || own != nil && len(own.Proxy.Outbounds) > 0
	}
	together := len(moved) > 0 || explicit || h.hostNames.changes(changes)
	var delays func(graph.ProxyGroup) bool
	if h.growth.open && !together {
		delays = growsLater
	}
	grew, overtakes := h.groups.publish(e, changes, delays)
	if together || overtakes {
		h.groups.release(e)
	}
	h.commit(e)
	if grew {
		h.startRound(h.catalog.Revision())
	}
	for _, p := range changed {
		p.revision = h.catalog.Revision()
	}
	for _, p := range moved {
		h.setResources(p)
		p.tellNames(h.hostNames.sent[p.own.Proxy.Group])
	}
	for _, before := range left {
		h.leave(before)
	}
	h.tellNames(h.hostNames.publish(changes))
	h.tellNames(h.hostNames.publishLate())
}

// updateProxy returns whether the proxy moves to other shared sets, and its former state where it has shared sets to
// leave.
func (h *Hub) updateProxy(e edits, p *proxy, own *Own) (before *graph.Proxy, moves bool) {
	if own == nil {
		h.tell(p, nil)
		p.tellNames(nil)
		return nil, false
	}
	old := p.own
	p.own = own
	var had []*xds.Resource
	if old != nil {
		had = old.Resources
	}
	changed, removed := difference(had, own.Resources)
	e.add(p.set, changed, removed)
	h.tell(p, own.Proxy)
	if old != nil && sharesAs(old.Proxy, own.Proxy) {
		return nil, false
	}
	h.join(e, own.Proxy)
	if old == nil {
		return nil, true
	}
	return old.Proxy, true
}

func (h *Hub) tell(p *proxy, g *graph.Proxy) {
	for watcher := range p.watchers {
		(*watcher)(g)
	}
}

// join adds a proxy to its shared resource sets and host names.
func (h *Hub) join(e edits, p *graph.Proxy) {
	h.resourceSets.join(e, p)
	h.hostNames.join(p.Group)
}

func (h *Hub) leave(p *graph.Proxy) {
	if last := h.resourceSets.leave(p); last {
		h.hostNames.leave(p.Group)
	}
}

// setResources gives the streams of a proxy its shared sets and its own.
func (h *Hub) setResources(p *proxy) {
	for s := range p.streams {
		s.SetResourceSets(h.setsOf(p)...)
	}
}

// acquireProxy returns the entry of a proxy, and makes it for the first user.
func (h *Hub) acquireProxy(key state.ProxyKey) *proxy {
	p := h.proxies[key]
	if p != nil {
		return p
	}
	p = &proxy{
		set:       h.catalog.NewResourceSet(),
		streams:   map[*xds.Stream]struct{}{},
		watchers:  map[*func(*graph.Proxy)]struct{}{},
		resolvers: map[*func(*HostNames)]struct{}{},
	}
	h.proxies[key] = p
	if own := h.config.own.Pin(key); own != nil {
		p.own = own
		e := edits{}
		h.join(e, own.Proxy)
		if len(own.Proxy.Outbounds) > 0 { // they name resources of their group
			h.groups.release(e)
		}
		e.add(p.set, own.Resources, nil)
		h.commit(e)
	}
	return p
}

// releaseProxy drops the entry of a proxy that is no longer in use.
func (h *Hub) releaseProxy(key state.ProxyKey, p *proxy) {
	if len(p.streams)+len(p.watchers)+len(p.resolvers) > 0 {
		return
	}
	delete(h.proxies, key)
	if p.own != nil {
		h.leave(p.own.Proxy)
	}
	h.config.own.Unpin(key)
}

// Attach gives a stream the resource sets of a proxy, and changes them as the proxy changes, until detach.
func (h *Hub) Attach(key state.ProxyKey, s *xds.Stream) (detach func(), err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.acquireProxy(key)
	if p.own == nil {
		h.releaseProxy(key, p)
		return nil, resource.Errorf(resource.NotFound, "%s does not exist; register it, or write it through the API",
			key.Resource())
	}
	p.streams[s] = struct{}{}
	s.SetResourceSets(h.setsOf(p)...)
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(p.streams, s)
		h.releaseProxy(key, p)
	}, nil
}

// Watch calls tell with the present state of a proxy (nil: there is none) and whenever it changes, until stop. The
// table's writer makes the calls one after another, so tell must not block and must not call the Hub.
func (h *Hub) Watch(key state.ProxyKey, tell func(*graph.Proxy)) (stop func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.acquireProxy(key)
	p.watchers[&tell] = struct{}{}
	var now *graph.Proxy
	if kept, _ := h.config.own.Value(key); kept != nil {
		now = kept.Proxy
	}
	tell(now)
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(p.watchers, &tell)
		h.releaseProxy(key, p)
	}
}
