package push

import (
	"context"
	"slices"
	"time"

	"weft/internal/envoy"
	"weft/internal/graph"
	"weft/internal/table"
	"weft/internal/wait"
	"weft/internal/xds"
)

// growth merges what a proxy group is only given more of: endpoints, services and their host names. The first addition
// is published at once and begins a round: half of the streams have to ack it, and a pause follows until nothing has
// been added for as long as the acks took, at most [pauseFactor] times as long. What is added meanwhile is published
// together at the end, which begins the next round. The table has it at once; only the resource sets and the names lag.
//
// Nothing else waits. A commit that removes or changes anything that groups share is published at once with all that
// waits, so that no removal overtakes an earlier addition. A commit that moves a proxy to another group is too. (ADR
// 44.)
type growth struct {
	// waits is nil until the hub knows how to wait for streams: additions are published at once.
	waits func(ctx context.Context, revision uint64, progress func()) error
	open  bool           // a round is under way
	ended wait.Broadcast // of each round
}

const (
	// pauseFactor bounds what additions may cost while proxies connect: a twentieth of the time.
	pauseFactor = 19
	// longestSilence ends a round in which no stream acks a response.
	longestSilence = 2 * time.Second
	// longestRound bounds a round, and so how long an addition waits while many proxies connect. Of very many, each
	// adds roundEach to it, about what it costs to connect one: a second push before all are there delays all of them.
	longestRound = 20 * time.Second
	roundEach    = 5 * time.Millisecond
)

// growsLater says whether additions to a group may wait. Those to the groups of ZoneEgresses, which belong to no mesh,
// may not. Such a group has no assignments.
func growsLater(group graph.ProxyGroup) bool { return group.Mesh != "" }

// publish moves the differences of a commit into the resource sets. Additions wait in the groups for which hold returns
// true (nil: in none). It returns whether it has published an addition, and whether it has published anything else:
// then the caller publishes what waits in the same commit.
//
// The first endpoint of an assignment that was published empty does not wait: without it, every request fails.
func (p *sharedSets[K, L]) publish(e edits, changes *table.Changes, delays func(K) bool) (grew, changed bool) {
	for key, shared := range p.shared.Changed(changes) {
		of := p.open[key]
		adds := p.onlyAdds(of.shared, shared)
		if of.late = adds && delays != nil && delays(key); of.late {
			p.latest = time.Now()
			continue
		}
		grew, changed = grew || adds, changed || !adds
		p.update(e, of, shared)
	}
	for c := range p.assignment.Transitions(changes) {
		published, waits := p.waiting[c.Key]
		if !waits {
			published = c.Old
		}
		adds := envoy.OnlyAddsEndpoints(published, c.New)
		if adds && delays != nil && envoy.HasEndpoints(published) {
			p.waiting[c.Key] = published
			p.latest = time.Now()
			continue
		}
		delete(p.waiting, c.Key)
		if p.assign(e, c.Key, c.New) {
			grew, changed = grew || adds, changed || !adds
		}
	}
	return grew, changed
}

// onlyAdds reports whether everything that was shared stays as it is.
func (p *sharedSets[K, L]) onlyAdds(before, after *Shared[L]) bool {
	changed, removed := difference(before.Resources, after.Resources)
	return len(removed) == 0 &&
		!slices.ContainsFunc(changed, func(r *xds.Resource) bool {
			_, had := slices.BinarySearchFunc(before.Resources, r, compareNames)
			return had
		}) &&
		!slices.ContainsFunc(before.Lists, func(list L) bool { return !p.has(after, list) })
}

// assign puts an assignment into every resource set that has it, and reports whether any has.
func (p *sharedSets[K, L]) assign(e edits, list L, assignment *xds.Resource) (assigned bool) {
	if assignment == nil { // generation failed
		return false
	}
	for _, each := range p.open {
		if p.has(each.shared, list) {
			e.add(each.set, []*xds.Resource{assignment}, nil)
			assigned = true
		}
	}
	return assigned
}

// waits reports whether any addition waits.
func (p *sharedSets[K, L]) waits() bool {
	for _, of := range p.open {
		if of.late {
			return true
		}
	}
	return len(p.waiting) > 0
}

// waits reports whether resources of a group wait to be published.
func (s *resourceSets) waits(group graph.ProxyGroup) bool {
	of := s.groups.open[group]
	return of != nil && of.late
}

// release publishes all that waits.
func (p *sharedSets[K, L]) release(e edits) {
	for list := range p.waiting {
		if assignment, ok := p.assignment.Value(list); ok {
			p.assign(e, list, assignment)
		}
	}
	clear(p.waiting)
	for key, of := range p.open {
		if shared, ok := p.shared.Value(key); of.late && ok {
			of.late = false
			p.update(e, of, shared)
		}
	}
}

// startRound begins a round with what was added at a revision, unless one is under way.
func (h *Hub) startRound(revision uint64) {
	if h.growth.waits == nil || h.growth.open {
		return
	}
	h.growth.open = true
	go h.round(revision)
}

// round waits until the additions of a revision may be followed by further ones, and publishes those.
func (h *Hub) round(revision uint64) {
	h.lasts(revision)
	if h.ctx.Err() != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.growth.open = false
	h.release()
	h.growth.ended.Send()
}

// AwaitAdditions returns once no addition waits, or ctx ends. It returns false where none has waited.
func (h *Hub) AwaitAdditions(ctx context.Context) (waited bool) {
	for {
		h.mu.Lock()
		waits, ended := h.growth.open && h.groups.waits(), h.growth.ended.Next()
		h.mu.Unlock()
		if !waits {
			return waited
		}
		waited = true
		select {
		case <-ended:
		case <-ctx.Done():
			return waited
		}
	}
}

// lasts returns at the end of a round that began with a revision: after the acks and the pause, after
// [longestSilence] without the ack of any response, at its bound, or with the hub.
func (h *Hub) lasts(revision uint64) {
	ctx, cancel := context.WithCancel(h.ctx)
	defer cancel()
	began := time.Now()
	go func() {
		defer cancel()
		for left := longestRound; left > 0; left = h.roundBound() - time.Since(began) {
			select {
			case <-time.After(left):
			case <-ctx.Done():
				return
			}
		}
	}()
	silence := time.AfterFunc(longestSilence, cancel)
	defer silence.Stop()
	if err := h.growth.waits(ctx, revision, func() { silence.Reset(longestSilence) }); err != nil {
		return
	}
	silence.Stop()
	acked := time.Now()
	took := acked.Sub(began)
	pause := time.NewTimer(pauseFactor * took)
	defer pause.Stop()
	for rests := took; rests > 0; rests = took - time.Since(h.lastAddition(acked)) {
		select {
		case <-time.After(rests):
		case <-pause.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// roundBound is how long a round may last with the proxies that are connected now.
func (h *Hub) roundBound() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return max(longestRound, time.Duration(len(h.proxies))*roundEach)
}

// lastAddition is when the last addition began to wait, or a later time.
func (h *Hub) lastAddition(after time.Time) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	if latest := h.groups.latest; latest.After(after) {
		return latest
	}
	return after
}

// release publishes all additions that wait, which begins a round.
func (h *Hub) release() {
	e := edits{}
	h.groups.release(e)
	if len(e) > 0 {
		h.commit(e)
		h.startRound(h.catalog.Revision())
	}
	h.tellNames(h.hostNames.publishLate())
}
