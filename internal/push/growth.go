package push

import (
	"context"
	"time"

	"weft/internal/proxy"
	"weft/internal/wait"
)

// AdditionBatcher merges what a proxy group is only given more of: endpoints, services and their host names. The first
// addition is published at once and begins a round: half of the streams have to ack it, and a pause follows until
// nothing has been added for as long as the acks took, at most [pauseFactor] times as long. What is added meanwhile is
// published together at the end, which begins the next round. While the number of proxies grows, the pause is not ended
// by its longest time. The table has it at once; only the resource sets and the names lag.
//
// Nothing else waits. A commit that removes or changes anything that groups share is published at once with all that
// waits, so that no removal overtakes an earlier addition. A commit that moves a proxy to another group is too. (ADR
// 44.)
type AdditionBatcher struct {
	*published // its lock guards the rest
	callbacks  *Callbacks
	pending    pendingAdditions
	open       bool           // a round is under way
	ended      wait.Broadcast // of each round
}

// pendingAdditions has the additions that wait. The lock of the table's writer guards it.
type pendingAdditions interface {
	// waits reports whether any addition waits.
	waits() bool
	// latest returns the time at which an addition was the last to begin to wait.
	latest() time.Time
	// proxies returns the number of proxies in use.
	proxies() int
	// publishLate publishes all that waits. It returns the revision, and whether resource sets have changed.
	publishLate() (revision uint64, changed bool)
}

const (
	// pauseFactor bounds what additions may cost while proxies connect: a twentieth of the time.
	pauseFactor = 19
	// longestSilence ends a round in which no stream acks a response.
	longestSilence = 2 * time.Second
	// longestRound bounds a round, and so how long an addition waits while many proxies connect. Of very many, each
	// adds roundEach to it, what it costs to connect one on a busy machine: a second push before all are there delays
	// all of them, and repeats the assignments to those that are.
	longestRound = 20 * time.Second
	roundEach    = 20 * time.Millisecond
	// growthFactor is how many times as many proxies there are after a pause while many connect.
	growthFactor = 1.25
)

// mayDelayAdditions returns whether additions to a group may wait. Additions to the group of a ZoneEgress, which
// belongs to no mesh and has no assignments, may not.
func mayDelayAdditions(group proxy.Group) bool { return group.Mesh != "" }

// Await returns once no addition waits, or ctx ends. It returns false where none has waited.
func (a *AdditionBatcher) Await(ctx context.Context) (waited bool) {
	for {
		a.mu.Lock()
		waits, ended := a.open && a.pending.waits(), a.ended.Next()
		a.mu.Unlock()
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

// begin begins a round with what was added at a revision, unless one is under way. Without a wait for streams there are
// no rounds.
func (a *AdditionBatcher) begin(revision uint64) {
	if a.callbacks.HalfAcked == nil || a.open {
		return
	}
	a.open = true
	go a.round(revision)
}

// round waits until the additions of a revision may be followed by further ones, and publishes those.
func (a *AdditionBatcher) round(revision uint64) {
	a.awaitRound(revision)
	if a.callbacks.ctx.Err() != nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.end()
}

// end ends a round, and publishes all additions that wait, which begins the next one.
func (a *AdditionBatcher) end() {
	a.open = false
	if revision, changed := a.pending.publishLate(); changed {
		a.begin(revision)
	}
	a.ended.Send()
}

// awaitRound returns at the end of a round that began with a revision: after the acks and the pause, after
// [longestSilence] without the ack of any response, at its bound, or with the hub.
func (a *AdditionBatcher) awaitRound(revision uint64) {
	ctx, cancel := context.WithCancel(a.callbacks.ctx)
	defer cancel()
	began, before := time.Now(), a.proxies()
	go func() {
		defer cancel()
		for left := longestRound; left > 0; left = a.bound() - time.Since(began) {
			select {
			case <-time.After(left):
			case <-ctx.Done():
				return
			}
		}
	}()
	silence := time.AfterFunc(longestSilence, cancel)
	defer silence.Stop()
	if err := a.callbacks.HalfAcked(ctx, revision, func() { silence.Reset(longestSilence) }); err != nil {
		return
	}
	silence.Stop()
	acked := time.Now()
	took := acked.Sub(began)
	pause := time.NewTimer(pauseFactor * took)
	defer pause.Stop()
	for remaining := took; remaining > 0; remaining = took - time.Since(a.last(acked)) {
		select {
		case <-time.After(remaining):
		case <-pause.C:
			connected := a.proxies()
			if float64(connected) < growthFactor*float64(before) {
				return
			}
			before = connected
			pause.Reset(pauseFactor * took)
		case <-ctx.Done():
			return
		}
	}
}

// bound is how long a round may last with the proxies that are connected now.
func (a *AdditionBatcher) bound() time.Duration {
	return max(longestRound, time.Duration(a.proxies())*roundEach)
}

// proxies returns the number of proxies in use.
func (a *AdditionBatcher) proxies() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pending.proxies()
}

// last is when the last addition began to wait, or a later time.
func (a *AdditionBatcher) last(after time.Time) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	if latest := a.pending.latest(); latest.After(after) {
		return latest
	}
	return after
}
