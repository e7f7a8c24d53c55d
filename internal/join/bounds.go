package join

import (
	"fmt"
	"sync"
	"time"

	"weft/internal/zonesync"
	"weft/kind"
	"weft/resource"
)

// What one zone may cost the global control plane, however broken or hostile its control plane is. docs/operations has
// them for operators.
const (
	maxResources     = 100_000   // of one kind and zone
	maxResourceBytes = 256 << 20 // of their stored bodies
	// What is kept of what was rejected, of all kinds of a zone.
	maxKeptItems = 20_000
	maxKeptBytes = 32 << 20
	// Streams that a zone begins: so many at once, and a second.
	streamsAtOnce   = 400
	streamsASecond  = 20
	rejectedBetween = 5 * time.Second // two notes that control planes with other stores were rejected
)

// pace lets so many things happen at once, and so many a second afterwards.
type pace struct {
	mu   sync.Mutex
	left float64
	last time.Time
}

func newPace() *pace { return &pace{left: streamsAtOnce} }

// allows says whether one more thing may happen now.
func (p *pace) allows(now time.Time) bool {
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

// size is how much of a kind an owner has.
type size struct{ items, bytes int }

// within rejects an item that would be one too many of its owner's.
func (k *kindLog) within(d resource.Descriptor, item zonesync.Item) error {
	if item.Deleted {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	has, was := k.sizes[item.Key.Owner], 0
	r := receivedOf(d, item)
	if stored, ok := k.rows[r.Key()]; ok {
		was = stored.bytes
	} else {
		has.items++
	}
	switch {
	case has.items > maxResources:
		return tooMuch(d, item.Key.Owner, fmt.Sprintf("%d resources", maxResources))
	case len(item.Body) > was && has.bytes-was+len(item.Body) > maxResourceBytes:
		return tooMuch(d, item.Key.Owner, fmt.Sprintf("%d MiB", maxResourceBytes>>20))
	}
	return nil
}

func tooMuch(d resource.Descriptor, owner kind.Owner, bound string) error {
	return resource.Errorf(resource.Invalid, "%s has more than %s of the kind %s, which is all that global takes of a zone; delete some in the zone", owner, bound, d.Describe().Name)
}

// count notes that a row of an owner came or went.
func (k *kindLog) count(owner kind.Owner, items, bytes int) {
	has := k.sizes[owner]
	has.items, has.bytes = has.items+items, has.bytes+bytes
	if k.sizes[owner] = has; has == (size{}) {
		delete(k.sizes, owner)
	}
}
