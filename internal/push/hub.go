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
	"time"

	"weft/internal/graph"
	"weft/internal/mirror"
	"weft/internal/table"
	"weft/internal/xds"
	"weft/resource"
)

// Follower receives every commit. It is called by the table's writer and must not block.
type Follower func(put []resource.Any, removed []resource.Key, commits []*table.Changes, now time.Time)

// Hub is the table's writer. It commits, publishes the changes of a commit, and notifies its followers. The other parts
// wait for published states, or have clients attached to them.
type Hub struct {
	Rows      Rows
	Inspector *Inspector
	Proxies   *Proxies
	Additions *AdditionBatcher
	Acks      *Acks
	Drains    *Drains

	*published
	publisher *publisher
	retention retention
	faults    faults
	lists     *ownLists
	followers []Follower
	callbacks *Callbacks // of all parts
}

// NewHub returns a hub with the last stages of a state, before its first commit.
func NewHub(g *graph.State, catalog *xds.Catalog, log *slog.Logger) *Hub {
	p, callbacks, c := &published{state: g, catalog: catalog}, &Callbacks{}, newConfig(g)
	sets := newResourceSets(c, catalog)
	names := newGroupNames(c, sets)
	proxies := newProxies(p, c, sets, names)
	additions := &AdditionBatcher{published: p, callbacks: callbacks}
	publisher := &publisher{sets: sets, hostNames: names, used: proxies, additions: additions}
	additions.pending = publisher
	removals := newRemovals(g)
	acks := &Acks{published: p, proxies: proxies, removals: removals, callbacks: callbacks}
	h := &Hub{
		Rows: Rows{p}, Inspector: &Inspector{c}, Proxies: proxies, Additions: additions, Acks: acks,
		Drains:    newDrains(p, acks, callbacks, log),
		published: p, publisher: publisher, callbacks: callbacks,
		retention: retention{state: g, log: log, callbacks: callbacks, former: formerEndpoints{}},
		faults:    faults{state: g, log: log},
		lists:     newOwnLists(g),
	}
	// The waits of drains read the removals.
	h.followers = []Follower{removals.follow, h.Drains.follow, proxies.tellUnserved, proxies.tellRejecting,
		h.lists.follow}
	g.Tables.DB.Contain(h.faults.failed)
	return h
}

// Follow adds a follower, before the first batch.
func (h *Hub) Follow(f Follower) { h.followers = append(h.followers, f) }

// Use sets the callbacks, before the first batch. Goroutines of the hub end with ctx.
func (h *Hub) Use(ctx context.Context, c Callbacks) {
	c.ctx = ctx
	*h.callbacks = c
}

// Apply commits a batch and publishes what it changes.
func (h *Hub) Apply(b mirror.Batch) { h.apply(b, func(*table.Tx) {}) }

// Commit changes rows that this instance alone has and no store, and publishes the changes.
func (h *Hub) Commit(change func(*table.Tx)) { h.apply(mirror.Batch{}, change) }

// Write calls a function as the writer of the table, without a commit: it may begin and end to keep derived values.
func (h *Hub) Write(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}

// KeepTime commits at every time for which a derived value waits, until ctx ends.
func (h *Hub) KeepTime(ctx context.Context) {
	for {
		next, changed := h.state.Tables.DB.NextDeadline()
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
	commits, own, now := h.commit(b, change)
	for _, c := range commits {
		h.publisher.publish(c)
	}
	commits = append(commits, h.faults.note()...)
	put := append(slices.Clip(b.Put), own...)
	for _, follow := range h.followers {
		follow(put, b.Removed, commits, now)
	}
	h.changed.Send()
}

// commit changes the table. Rows that retain something are a second commit, which the table has before anything of the
// first one is published. No client sees the state between: an empty list, or a proxy that is known by its new SPIFFE
// ID alone.
func (h *Hub) commit(b mirror.Batch, change func(*table.Tx)) (commits []*table.Changes, own []resource.Any,
	now time.Time) {
	state, before := h.state, h.reader()
	changes := state.Tables.DB.Commit(func(tx *table.Tx) {
		for _, o := range b.Put {
			state.Tables.Put(tx, o)
		}
		for _, key := range b.Removed {
			state.Tables.Remove(tx, key)
		}
		change(tx)
	})
	now, commits = time.Now(), []*table.Changes{changes}
	own = h.retention.rows(before, changes, b.Put, now)
	if len(own) > 0 {
		commits = append(commits, state.Tables.DB.Commit(func(tx *table.Tx) {
			for _, row := range own {
				state.Tables.Put(tx, row)
			}
		}))
	}
	return commits, own, now
}
