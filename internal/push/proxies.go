package push

import (
	"context"
	"maps"
	"slices"
	"time"

	"weft/internal/proxy"
	"weft/internal/state"
	"weft/internal/table"
	"weft/internal/xds"
	"weft/kind"
	"weft/resource"
)

// Proxies has the proxies that are in use: by a stream, the session of an agent, or a sender of host names. The values
// of a proxy are derived as long as it is in use.
type Proxies struct {
	*published // its lock guards the rest
	config     *config
	sets       *resourceSets
	hostNames  *groupNames
	used       map[state.ProxyKey]*usedProxy
}

// usedProxy is a proxy that is in use.
type usedProxy struct {
	set      *xds.ResourceSet
	own      *Own   // the last one; kept when the Dataplane is deleted, since its Envoy still runs
	revision uint64 // at which the last change of its own resources was published
	streams  map[*xds.Stream]struct{}
	watchers map[*func(*proxy.Proxy)]struct{}
	// resolvers receive the host names that the proxy resolves.
	resolvers map[*func(*HostNames)]struct{}
}

func newProxies(p *published, c *config, sets *resourceSets, names *groupNames) *Proxies {
	return &Proxies{published: p, config: c, sets: sets, hostNames: names, used: map[state.ProxyKey]*usedProxy{}}
}

// Attach gives a stream the resource sets of a proxy, and changes them as the proxy changes, until detach.
func (ps *Proxies) Attach(key state.ProxyKey, s *xds.Stream) (detach func(), err error) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.acquire(key)
	if p.own == nil {
		ps.release(key, p)
		return nil, resource.Errorf(resource.NotFound, "%s does not exist; register it, or write it through the API",
			key.Resource())
	}
	p.streams[s] = struct{}{}
	s.SetResourceSets(ps.setsOf(p)...)
	return func() { ps.stop(key, p, func() { delete(p.streams, s) }) }, nil
}

// Watch calls tell with the present state of a proxy (nil: there is none) and whenever it changes, until stop. The
// table's writer makes the calls one after another, so tell must not block and must not call the Hub.
func (ps *Proxies) Watch(key state.ProxyKey, tell func(*proxy.Proxy)) (stop func()) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.acquire(key)
	p.watchers[&tell] = struct{}{}
	tell(ps.present(key))
	return func() { ps.stop(key, p, func() { delete(p.watchers, &tell) }) }
}

// WatchHostNames is [Proxies.Watch] for the host names that a proxy resolves (nil: there is no such proxy).
func (ps *Proxies) WatchHostNames(key state.ProxyKey, tell func(*HostNames)) (stop func()) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.acquire(key)
	p.resolvers[&tell] = struct{}{}
	if now := ps.present(key); now != nil {
		tell(ps.hostNames.sent[now.Group])
	} else {
		tell(nil)
	}
	return func() { ps.stop(key, p, func() { delete(p.resolvers, &tell) }) }
}

// Groups returns the groups that have a proxy in use, in no order.
func (ps *Proxies) Groups() []GroupSize {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.sets.sizes()
}

// present returns the present state of a proxy in use; nil where it was deleted.
func (ps *Proxies) present(key state.ProxyKey) *proxy.Proxy {
	if own, _ := ps.config.own.Value(key); own != nil {
		return own.Proxy
	}
	return nil
}

// acquire returns the entry of a proxy, and makes it for the first user.
func (ps *Proxies) acquire(key state.ProxyKey) *usedProxy {
	p := ps.used[key]
	if p != nil {
		return p
	}
	p = &usedProxy{
		set:       ps.sets.catalog.NewOwnSet(),
		streams:   map[*xds.Stream]struct{}{},
		watchers:  map[*func(*proxy.Proxy)]struct{}{},
		resolvers: map[*func(*HostNames)]struct{}{},
	}
	ps.used[key] = p
	if own := ps.config.own.Pin(key); own != nil {
		p.own = own
		e := edits{}
		ps.join(e, own.Proxy)
		if len(own.Proxy.Outbounds) > 0 { // they name resources of their group
			ps.sets.groups.release(e)
		}
		e.add(p.set, own.entries(), nil)
		ps.sets.commit(e)
	}
	return p
}

// stop removes a user of a proxy.
func (ps *Proxies) stop(key state.ProxyKey, p *usedProxy, remove func()) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	remove()
	ps.release(key, p)
}

// release drops the entry of a proxy that is no longer in use.
func (ps *Proxies) release(key state.ProxyKey, p *usedProxy) {
	if len(p.streams)+len(p.watchers)+len(p.resolvers) > 0 {
		return
	}
	delete(ps.used, key)
	if p.own != nil {
		ps.leave(p.own.Proxy)
	}
	ps.config.own.Unpin(key)
}

// join adds a proxy to its shared resource sets and host names.
func (ps *Proxies) join(e edits, p *proxy.Proxy) {
	ps.sets.join(e, p)
	ps.hostNames.join(p.Group)
}

func (ps *Proxies) leave(p *proxy.Proxy) {
	if last := ps.sets.leave(p); last {
		ps.hostNames.leave(p.Group)
	}
}

// setsOf returns the resource sets that the streams of a proxy follow: the shared ones and its own.
func (ps *Proxies) setsOf(p *usedProxy) []*xds.ResourceSet {
	if p.own == nil {
		return []*xds.ResourceSet{p.set}
	}
	return append(ps.sets.of(p.own.Proxy), p.set)
}

// changedProxies are the proxies in use that a commit changes.
type changedProxies struct {
	all      []*usedProxy
	moved    []*usedProxy   // to other shared resource sets
	left     []*proxy.Proxy // the former states of those that have shared resource sets to leave
	explicit bool           // outbounds, which name resources of their group
}

// update moves the differences of a commit into the own resource sets of proxies, and notifies their sessions.
func (ps *Proxies) update(e edits, changes *table.Changes) (c changedProxies) {
	for key, own := range table.ChangedValues(ps.config.own, changes) {
		p := ps.used[key]
		c.all = append(c.all, p)
		before, moves := ps.updateProxy(e, p, own)
		if moves {
			c.moved = append(c.moved, p)
		}
		if before != nil {
			c.left = append(c.left, before)
		}
		c.explicit = c.explicit || own != nil && len(own.Proxy.Outbounds) > 0
	}
	return c
}

// updateProxy returns whether the proxy moves to other shared sets, and its former state where it has shared sets to
// leave.
func (ps *Proxies) updateProxy(e edits, p *usedProxy, own *Own) (before *proxy.Proxy, moves bool) {
	if own == nil {
		p.tell(nil)
		p.tellNames(nil)
		return nil, false
	}
	old := p.own
	p.own = own
	changed, removed := difference(old.entries(), own.entries())
	e.add(p.set, changed, removed)
	p.tell(own.Proxy)
	if old != nil && sharesAs(old.Proxy, own.Proxy) {
		return nil, false
	}
	ps.join(e, own.Proxy)
	if old == nil {
		return nil, true
	}
	return old.Proxy, true
}

// moves returns the moves of streams to the resource sets of other groups.
func (ps *Proxies) moves(c changedProxies) (moves []xds.Move) {
	for _, p := range c.moved {
		for s := range p.streams {
			moves = append(moves, xds.Move{Stream: s, Sets: ps.setsOf(p)})
		}
	}
	return moves
}

// finish follows the publication of a commit.
func (ps *Proxies) finish(c changedProxies) {
	for _, p := range c.all {
		p.revision = ps.sets.catalog.Revision()
	}
	for _, p := range c.moved {
		p.tellNames(ps.hostNames.sent[p.own.Proxy.Group])
	}
	for _, before := range c.left {
		ps.leave(before)
	}
}

// tellNames sends the proxies of some groups their names.
func (ps *Proxies) tellNames(changed map[proxy.Group]*HostNames) {
	if len(changed) == 0 {
		return
	}
	for _, p := range ps.used {
		if p.own == nil {
			continue
		}
		if names := changed[p.own.Proxy.Group]; names != nil {
			p.tellNames(names)
		}
	}
}

// tellUnserved notifies the sessions of proxies whose new listener status lacks a listener of their Dataplane. An
// inbound that is wanted again in the moment in which its drain ends changes no listener, so that nothing else would
// have its agent's report read again. It is a [Follower].
func (ps *Proxies) tellUnserved(put []resource.Any, _ []resource.Key, _ []*table.Changes, _ time.Time) {
	r := ps.reader()
	for _, o := range put {
		key, ok := state.ProxyOf(o.Key())
		if ok && o.Key() == key.ListenerStatusRow() && ps.used[key] != nil && ps.state.Proxies.LacksListeners(r, key) {
			ps.tellAgain(key)
		}
	}
}

// tellRejecting notifies the streams of proxies whose NACKs or exceptions are stored, and of those with an exception
// from a policy that was written or removed: the next step of the exceptions follows, also where the last one has
// changed no resource. It is a [Follower].
func (ps *Proxies) tellRejecting(put []resource.Any, removed []resource.Key, _ []*table.Changes, _ time.Time) {
	r := ps.reader()
	written := func(key resource.Key) {
		if kind.MayBeLeftOut(key.Kind) {
			for _, excepted := range ps.state.Tables.ExceptedFrom(r, key) {
				ps.tellAgain(excepted)
			}
		}
	}
	for _, o := range put {
		insight, ok := o.(*resource.Object[kind.DataplaneInsight])
		if ok && len(insight.Spec.NACKs)+len(insight.Spec.Exceptions) > 0 {
			key, _ := state.ProxyOf(o.Key())
			ps.tellAgain(key)
		}
		written(o.Key())
	}
	for _, key := range removed {
		written(key)
	}
}

// tellAgain notifies the watchers of a proxy of its present state, if it is in use.
func (ps *Proxies) tellAgain(key state.ProxyKey) {
	if p := ps.used[key]; p != nil && len(p.watchers) > 0 {
		if now := ps.present(key); now != nil {
			p.tell(now)
		}
	}
}

func (p *usedProxy) tell(g *proxy.Proxy) {
	for watcher := range p.watchers {
		(*watcher)(g)
	}
}

func (p *usedProxy) tellNames(names *HostNames) {
	for tell := range p.resolvers {
		(*tell)(names)
	}
}

// streamOf returns the stream of a proxy at this instance, or nil where it has none.
func (ps *Proxies) streamOf(key state.ProxyKey) *xds.Stream {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if p := ps.used[key]; p != nil {
		for s := range p.streams {
			return s
		}
	}
	return nil
}

// connected returns the selected proxies that have a stream at this instance, in no order.
func (ps *Proxies) connected(selects func(state.ProxyKey) bool) (keys []state.ProxyKey) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for key, p := range ps.used {
		if len(p.streams) > 0 && selects(key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// openStreams returns the streams of the selected proxies at this instance.
func (ps *Proxies) openStreams(selects func(state.ProxyKey) bool) (streams []*xds.Stream) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for key, p := range ps.used {
		if selects(key) {
			streams = slices.AppendSeq(streams, maps.Keys(p.streams))
		}
	}
	return streams
}

// inSyncAt reports whether a proxy is connected to this instance, has acked everything up to a revision, and rejects
// nothing.
func (ps *Proxies) inSyncAt(key state.ProxyKey, revision uint64) bool {
	return ps.ackedAt(key, revision, nil)
}

// ackedAt is inSyncAt for a proxy that may reject resources which are not relevant; nil: all are.
func (ps *Proxies) ackedAt(key state.ProxyKey, revision uint64, relevant func(xds.NACK) bool) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.used[key]
	if p == nil {
		return false
	}
	for s := range p.streams {
		nacks := s.NACKs()
		if relevant != nil {
			nacks = slices.DeleteFunc(nacks, func(nack xds.NACK) bool { return !relevant(nack) })
		}
		if s.InSync(revision) && len(nacks) == 0 {
			return true
		}
	}
	return false
}

// ownAcked reports whether a proxy applies its own resources, and returns a function that waits for it; nil where the
// proxy has no stream or has rejected one of them.
func (ps *Proxies) ownAcked(key state.ProxyKey) (wait func(context.Context) error, inSyncAt bool) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.used[key]
	if p == nil {
		return nil, false
	}
	for s := range p.streams {
		switch {
		case !s.InSync(p.revision):
			revision := p.revision
			return func(ctx context.Context) error { return s.WaitAcked(ctx, revision) }, false
		case !slices.ContainsFunc(s.NACKs(), ofInbounds):
			return nil, true
		}
	}
	return nil, false
}

// ofInbounds reports whether a NACK may be of an inbound, its route or the contents of its slots.
func ofInbounds(r xds.NACK) bool {
	return r.Type == xds.Listener || r.Type == xds.Extension || r.Type == xds.Route
}
