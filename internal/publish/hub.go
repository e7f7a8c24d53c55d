// Package publish brings what the table derives to the streams.
//
// The [Hub] is the table's one writer. It takes batches from the mirror, commits them, and moves what
// differs into feeds: one a class, shared by all its proxies, with the assignments of what the class
// reaches; one a mesh, shared by its zone ingresses, and two, by its zone egresses; and one a proxy, with what is
// its own. Beside the feeds it tells agents the host names that their class finds. It keeps derived what somebody attached needs, and the endpoint
// lists of the zone's own services.
package publish

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"weft/internal/graph"
	"weft/internal/mirror"
	"weft/internal/table"
	"weft/internal/wait"
	"weft/internal/xds"
	"weft/resource"
)

// Follower is told of every commit. It is called by the table's writer and must not block.
type Follower func(put []resource.Any, removed []resource.Key, commits []*table.Changes, now time.Time)

// Hub is the table's writer.
type Hub struct {
	state     *graph.State
	config    *config
	catalog   *xds.Catalog
	followers []Follower
	log       *slog.Logger

	mu        sync.Mutex
	classes   *pools[graph.ProxyGroup, graph.DestinationKey]
	names     map[graph.ProxyGroup]*HostNames // of the classes
	ingresses *pools[string, graph.SNIRoute]  // by mesh
	forwards  *pools[string, graph.SNIRoute]  // by mesh
	egresses  *pools[string, graph.SNIRoute]  // by mesh
	proxies   map[graph.ProxyKey]*proxy
	changed   wait.Broadcast // of each commit

	lists       map[resource.Key][]graph.DestinationKey // that are followed, by MeshService
	withdrawals withdrawals
	left        map[graph.ProxyKey]map[graph.DestinationKey]bool // the lists that a proxy's endpoints have left
	growth      growth
	lateNames   map[graph.ProxyGroup]bool // whose further host names wait
	faults      []graph.Fault             // that came, or went (without a panic), since the last commit

	ctx     context.Context // of what runs beside, from Use
	outside Callbacks
}

// proxy is a proxy that somebody attends to: a stream, the session of its agent, or what tells its names.
type proxy struct {
	feed     *xds.ResourceSet
	own      *Own   // the last one; kept when the Dataplane goes, since its Envoy still runs
	revision uint64 // with which the last change of its own was published
	streams  map[*xds.Stream]struct{}
	watchers map[*func(*graph.Proxy)]struct{}
	// resolvers are told the names that it finds.
	resolvers map[*func(*HostNames)]struct{}
}

// NewHub makes the last stages of a state, before its first commit.
func NewHub(state *graph.State, catalog *xds.Catalog, log *slog.Logger) *Hub {
	c := newConfig(state)
	h := &Hub{
		state: state, config: c, catalog: catalog, log: log,
		classes:     newPools(c.class, catalog),
		names:       map[graph.ProxyGroup]*HostNames{},
		lateNames:   map[graph.ProxyGroup]bool{},
		ingresses:   newPools(c.ingress, catalog),
		forwards:    newPools(c.forward, catalog),
		egresses:    newPools(c.egress, catalog),
		proxies:     map[graph.ProxyKey]*proxy{},
		left:        map[graph.ProxyKey]map[graph.DestinationKey]bool{},
		lists:       map[resource.Key][]graph.DestinationKey{},
		withdrawals: withdrawals{pinned: map[graph.ProxyKey]bool{}},
	}
	state.DB.Contain(h.failed)
	return h
}

// Follow adds a follower, before the first batch.
func (h *Hub) Follow(f Follower) { h.followers = append(h.followers, f) }

// Apply commits a batch and publishes what it changes.
func (h *Hub) Apply(b mirror.Batch) { h.apply(b, func(*table.Tx) {}) }

// Commit changes rows of this instance alone, which are in no store, and publishes what they change.
func (h *Hub) Commit(change func(*table.Tx)) { h.apply(mirror.Batch{}, change) }

// KeepTime commits whenever the time comes that a derived value waits for, until ctx ends.
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
	own := append(h.consequences(before, changes, now), h.keepIngresses(before, b.Put)...)
	if len(own) > 0 {
		// This is in the table before anything of the first commit goes out, so that no client sees what
		// is between them: an empty list, or a proxy that is known by its new name alone.
		commits = append(commits, h.state.DB.Commit(func(tx *table.Tx) {
			for _, row := range own {
				h.state.Put(tx, row)
			}
		}))
	}
	for _, c := range commits {
		h.noteLeft(c)
		h.publish(c)
	}
	for _, key := range b.Removed {
		if proxy, ok := graph.ProxyOf(key); ok && key == proxy.ListenerStatusRow() {
			delete(h.left, proxy)
		}
	}
	commits = append(commits, h.noteFaults()...)
	h.followServings(b, commits...)
	h.tellUnserved(b)
	h.followLists(b)
	put := append(slices.Clip(b.Put), own...)
	for _, follow := range h.followers {
		follow(put, b.Removed, commits, now)
	}
	h.changed.Send()
}

// consequences are the rows that follow from a commit at once, by the table before it and after.
func (h *Hub) consequences(before *table.Reader, changes *table.Changes, now time.Time) []resource.Any {
	var own []resource.Any
	for _, row := range h.hold(changes, now) {
		own = append(own, row)
	}
	for _, row := range h.holdPassages(before, changes, now) {
		own = append(own, row)
	}
	for _, row := range h.announce(changes, now) {
		own = append(own, row)
	}
	return own
}

// edits collects what one commit does to each feed.
type edits map[*xds.ResourceSet]*xds.Change

func (e edits) of(f *xds.ResourceSet) *xds.Change {
	if e[f] == nil {
		e[f] = &xds.Change{Set: f}
	}
	return e[f]
}

func (e edits) add(f *xds.ResourceSet, changed []*xds.Resource, removed []xds.Key) {
	if len(changed)+len(removed) == 0 {
		return
	}
	c := e.of(f)
	c.Changed = append(c.Changed, changed...)
	c.Removed = append(c.Removed, removed...)
}

func (h *Hub) commit(e edits) {
	if len(e) == 0 {
		return
	}
	var changes []xds.Change
	for _, c := range e {
		changes = append(changes, *c)
	}
	h.catalog.Commit(changes...)
}

// publish moves the differences of a commit into the feeds. Streams change over to another class only
// once that class's feed is complete.
func (h *Hub) publish(changes *table.Changes) {
	e := edits{}
	h.ingresses.publish(e, changes, nil)
	h.forwards.publish(e, changes, nil)
	h.egresses.publish(e, changes, nil)
	var changed, moved []*proxy
	var left []*graph.Proxy
	explicit := false // outbounds, which name what their group shares
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
	together := len(moved) > 0 || explicit || h.changesNames(changes)
	var hold func(graph.ProxyGroup) bool
	if h.growth.open && !together {
		hold = growsLater
	}
	grew, overtakes := h.classes.publish(e, changes, hold)
	if together || overtakes {
		h.classes.release(e)
	}
	h.commit(e)
	if grew {
		h.startRound(h.catalog.Revision())
	}
	for _, p := range changed {
		p.revision = h.catalog.Revision()
	}
	for _, p := range moved {
		h.feed(p)
		p.tellNames(h.names[p.own.Proxy.Group])
	}
	for _, before := range left {
		h.leave(before)
	}
	h.publishNames(changes)
	h.tellLateNames()
}

// updateProxy says whether the proxy moves to other shared feeds, and as what it leaves those that it has,
// if any.
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
	e.add(p.feed, changed, removed)
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

// sharesAs says whether two proxies share the same feeds.
func sharesAs(a, b *graph.Proxy) bool {
	return a.Group == b.Group && slices.Equal(a.Passes, b.Passes) && slices.Equal(a.IsEgress, b.IsEgress) && slices.Equal(a.Forwards, b.Forwards)
}

// join counts a proxy into what it shares with others, whose feeds are made for the first one.
func (h *Hub) join(e edits, p *graph.Proxy) {
	h.classes.join(e, p.Group)
	if h.names[p.Group] == nil {
		h.names[p.Group] = cmp.Or(h.config.names.Pin(p.Group), newNames(nil)) // nil: they could not be made yet
	}
	for _, mesh := range p.Passes {
		h.ingresses.join(e, mesh)
	}
	for _, mesh := range p.Forwards {
		h.forwards.join(e, mesh)
	}
	for _, mesh := range p.IsEgress {
		h.egresses.join(e, mesh)
	}
}

func (h *Hub) leave(p *graph.Proxy) {
	if last := h.classes.leave(p.Group); last {
		delete(h.names, p.Group)
		delete(h.lateNames, p.Group)
		h.config.names.Unpin(p.Group)
	}
	for _, mesh := range p.Passes {
		h.ingresses.leave(mesh)
	}
	for _, mesh := range p.Forwards {
		h.forwards.leave(mesh)
	}
	for _, mesh := range p.IsEgress {
		h.egresses.leave(mesh)
	}
}

// feed gives a proxy's streams what it shares with others and its own.
func (h *Hub) feed(p *proxy) {
	for s := range p.streams {
		s.SetResourceSets(h.feedsOf(p)...)
	}
}

func (h *Hub) feedsOf(p *proxy) []*xds.ResourceSet {
	if p.own == nil {
		return []*xds.ResourceSet{p.feed}
	}
	feeds := []*xds.ResourceSet{h.classes.open[p.own.Proxy.Group].feed}
	for _, mesh := range p.own.Proxy.Passes {
		feeds = append(feeds, h.ingresses.open[mesh].feed)
	}
	for _, mesh := range p.own.Proxy.Forwards {
		feeds = append(feeds, h.forwards.open[mesh].feed)
	}
	for _, mesh := range p.own.Proxy.IsEgress {
		feeds = append(feeds, h.egresses.open[mesh].feed)
	}
	return append(feeds, p.feed)
}

// attend answers the entry of a proxy, made for the first who asks.
func (h *Hub) attend(key graph.ProxyKey) *proxy {
	p := h.proxies[key]
	if p != nil {
		return p
	}
	p = &proxy{
		feed:      h.catalog.NewResourceSet(),
		streams:   map[*xds.Stream]struct{}{},
		watchers:  map[*func(*graph.Proxy)]struct{}{},
		resolvers: map[*func(*HostNames)]struct{}{},
	}
	h.proxies[key] = p
	if own := h.config.own.Pin(key); own != nil {
		p.own = own
		e := edits{}
		h.join(e, own.Proxy)
		if len(own.Proxy.Outbounds) > 0 { // they name what their group shares
			h.classes.release(e)
		}
		e.add(p.feed, own.Resources, nil)
		h.commit(e)
	}
	return p
}

// neglect drops the entry of a proxy that nobody attends to.
func (h *Hub) neglect(key graph.ProxyKey, p *proxy) {
	if len(p.streams)+len(p.watchers)+len(p.resolvers) > 0 {
		return
	}
	delete(h.proxies, key)
	if p.own != nil {
		h.leave(p.own.Proxy)
	}
	h.config.own.Unpin(key)
}

// Attach gives a stream its feeds, and changes them as its proxy changes, until detach.
func (h *Hub) Attach(key graph.ProxyKey, s *xds.Stream) (detach func(), err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.attend(key)
	if p.own == nil {
		h.neglect(key, p)
		return nil, resource.Errorf(resource.NotFound, "%s does not exist; register it, or write it through the API", key.Resource())
	}
	p.streams[s] = struct{}{}
	s.SetResourceSets(h.feedsOf(p)...)
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(p.streams, s)
		h.neglect(key, p)
	}, nil
}

// Watch calls tell with the proxy as it is (nil: there is none) and whenever it changes, until stop.
// Calls come one after another from the table's writer, so tell must not block and must not call the Hub.
func (h *Hub) Watch(key graph.ProxyKey, tell func(*graph.Proxy)) (stop func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.attend(key)
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
		h.neglect(key, p)
	}
}
