package zonesync

import (
	"cmp"
	"fmt"
	"strings"

	"weft/internal/wire"
)

// comparison is a sender's question what the receiver holds. It begins with sums over buckets of items, which
// nearly always agree, and goes on with the items of those buckets that differ.
type comparison struct {
	differing bits // by bucket; nil: the sums are not there yet
	buckets   int
	horizon   uint64 // the log's head when the sums were compared
	held      bits   // by id
	gone      []Key
	listed    int // items
	unknown   int // bytes of the keys in gone
}

// compare asks the receiver what it holds. Nothing more is sent until it has answered.
func (s *Sender) compare() {
	s.round++
	s.streaming, s.comparing = false, &comparison{}
	s.applied, s.settled = 0, 0
	for i := range s.window {
		s.window[i].seq = 0 // what is in flight says nothing of the position any more
	}
	clear(s.withheld)
	s.frames = append(s.frames, askFrame(s.round, nil))
}

func askFrame(round uint64, buckets []uint32) *wire.Frame {
	return &wire.Frame{Message: &wire.Frame_CompareRequest{CompareRequest: &wire.CompareRequest{Round: round,
		Buckets: buckets}}}
}

func (s *Sender) inventory(part *wire.Digest) error {
	switch {
	case part.Round < s.round: // the answer to a question that was replaced
		return nil
	case part.Round > s.round || s.comparing == nil:
		return fmt.Errorf("an inventory of round %d was not asked for", part.Round)
	}
	s.log.mu.RLock()
	defer s.log.mu.RUnlock()
	if s.comparing.differing == nil {
		return s.compareSums(part.Sums)
	}
	return s.compareItems(part)
}

// compareSums finds the buckets that differ. What is in the others the receiver has.
func (s *Sender) compareSums(theirs []uint64) error {
	n := len(theirs)
	if n == 0 || n > maxBuckets || n&(n-1) != 0 {
		return fmt.Errorf("an inventory has %d sums, want a power of two up to %d", n, maxBuckets)
	}
	clear(s.refused) // the receiver has forgotten them too: they come again
	s.kept = 0
	ours := make([]uint64, n)
	s.eachVisible(func(e *entry) { ours[bucket(e.hash, n)] += uint64(e.hash) })
	c := s.comparing
	c.buckets, c.horizon, c.differing = n, s.log.head, newBits(n)
	var differing []uint32
	for i := range ours {
		if ours[i] != theirs[i] {
			c.differing.set(uint32(i))
			differing = append(differing, uint32(i))
		}
	}
	c.held = newBits(int(s.log.ids.next))
	s.eachVisible(func(e *entry) {
		if !c.differing.has(uint32(bucket(e.hash, n))) {
			c.held.set(e.id)
		}
	})
	if len(differing) == 0 {
		s.compared()
		return nil
	}
	s.frames = append(s.frames, askFrame(s.round, differing))
	return nil
}

func (s *Sender) eachVisible(visit func(*entry)) {
	for _, e := range s.log.entries {
		if !e.superseded && !e.deleted && s.way.permits(e.key.Owner) {
			visit(e)
		}
	}
}

// compareItems takes a part of the list of what the receiver holds in the buckets that differ.
func (s *Sender) compareItems(part *wire.Digest) error {
	c := s.comparing
	if c.listed += len(part.Items); c.listed > maxInventory {
		return fmt.Errorf("an inventory has more than %d items", maxInventory)
	}
	for _, item := range part.Items {
		key, err := readKey(item.Key)
		if err != nil {
			return err
		}
		if s.way.permits(key.Owner) { // of others nothing is to be said to this receiver
			s.compareItem(StoredItem{key, Hash(item.Hash)})
		}
	}
	if c.unknown > maxUnknown {
		return fmt.Errorf("an inventory has more than %d bytes of keys that do not exist", maxUnknown)
	}
	if part.Last {
		s.compared()
	}
	return nil
}

func (s *Sender) compareItem(item StoredItem) {
	c, e := s.comparing, s.log.index[item.Key]
	current := e != nil && !e.deleted
	switch {
	case current && e.hash == item.Hash:
		c.held.set(e.id)
	case s.log.awaited[item.Key.Owner]:
		s.withheld[item.Key.Owner] = true
		if current {
			c.held.set(e.id)
		}
	case !current:
		c.gone = append(c.gone, item.Key)
		c.unknown += len(item.Key.Owner.Zone) + len(item.Key.Mesh) + len(item.Key.Name)
	}
}

// compared begins to send the difference. What changed since the sums were compared is behind the horizon,
// and is sent whatever the receiver held.
func (s *Sender) compared() {
	c := s.comparing
	s.streaming, s.catching, s.comparing = true, true, nil
	s.cursor, s.known = 0, c.horizon
	s.held, s.gone = c.held, c.gone
}

// bucket answers in which of n buckets, a power of two, an item is.
func bucket(h Hash, n int) int { return int(uint64(h) & uint64(n-1)) }

// buckets answers how many buckets an inventory has.
func (l Limits) buckets(items int) int {
	n := 1
	for n < maxBuckets && n*l.BucketItems < items {
		n *= 2
	}
	return n
}

// sums adds up the hashes in each of n buckets.
func sums(items []StoredItem, n int) []uint64 {
	all := make([]uint64, n)
	for _, item := range items {
		all[bucket(item.Hash, n)] += uint64(item.Hash)
	}
	return all
}

// bits is a set of small numbers.
type bits []uint64

// newBits answers an empty set of numbers below n; it is not nil.
func newBits(n int) bits { return make(bits, n/64+1) }

func (b bits) set(i uint32)      { b[i/64] |= 1 << (i % 64) }
func (b bits) has(i uint32) bool { return int(i/64) < len(b) && b[i/64]&(1<<(i%64)) != 0 }

func compareKeys(a, b Key) int {
	return cmp.Or(strings.Compare(a.Owner.Zone, b.Owner.Zone), strings.Compare(a.Mesh, b.Mesh),
		strings.Compare(a.Name, b.Name))
}
