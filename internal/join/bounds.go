package join

import (
	"fmt"
	"sync"
	"time"

	"weft/internal/zonesync"
	"weft/kind"
	"weft/resource"
)

// The bounds of one zone's cost for the global control plane, however broken or hostile the zone is. docs/operations
// has them for operators.
const (
	maxResources     = 100_000   // of one kind and zone
	maxResourceBytes = 256 << 20 // of their stored bodies
	// maxKeptItems bounds the rejected items that are kept, of all kinds of a zone.
	maxKeptItems = 20_000
	maxKeptBytes = 32 << 20
	// Streams that a zone opens: the burst, and the rate per second.
	streamsAtOnce   = 400
	streamsASecond  = 20
	rejectedBetween = 5 * time.Second // between two records of rejected stores
)

// rateLimit allows a burst of events, and a number of them per second afterwards.
type rateLimit struct {
	mu   sync.Mutex
	left float64
	last time.Time
}

func newRateLimit() *rateLimit { return &rateLimit{left: streamsAtOnce} }

// allows returns whether one more event may happen now, and counts it.
func (p *rateLimit) allows(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if passed := now.Sub(p.last).Seconds(); !p.last.IsZero() && passed > 0 {
		p.left = min(streamsAtOnce, p.left+passed*streamsASecond)
	}
	p.last = now
	if p.left < 1 {
		return false
	}
	p.left--
	return true
}

// ownerSize is the number and the size of an owner's resources of one kind.
type ownerSize struct{ items, bytes int }

// checkBounds rejects an item above the bounds of its owner.
func (k *kindLog) checkBounds(item zonesync.Item) error {
	if item.Deleted {
		return nil
	}
	key := k.key(item.Key)
	k.mu.Lock()
	defer k.mu.Unlock()
	has, was := k.sizes[item.Key.Owner], 0
	if stored, ok := k.rows[key]; ok && stored.key == item.Key {
		was = stored.bytes
	} else {
		has.items++
	}
	switch {
	case has.items > maxResources:
		return errBound(k.kind, item.Key.Owner, fmt.Sprintf("%d resources", maxResources))
	case len(item.Body) > was && has.bytes-was+len(item.Body) > maxResourceBytes:
		return errBound(k.kind, item.Key.Owner, fmt.Sprintf("%d MiB", maxResourceBytes>>20))
	}
	return nil
}

func errBound(d resource.Descriptor, owner kind.Owner, bound string) error {
	return resource.Errorf(resource.Invalid,
		"%s has more than %s of the kind %s, which is all that global accepts from a zone; delete some in the zone",
		owner, bound, d.Describe().Name)
}

// addSize adds to the size of an owner.
func (k *kindLog) addSize(owner kind.Owner, items, bytes int) {
	has := k.sizes[owner]
	has.items, has.bytes = has.items+items, has.bytes+bytes
	if k.sizes[owner] = has; has == (ownerSize{}) {
		delete(k.sizes, owner)
	}
}
