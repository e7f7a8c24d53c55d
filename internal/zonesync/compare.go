package zonesync

import (
	"cmp"
	"fmt"
	"strings"

	"weft/internal/wire"
)

// comparison is the state of a comparison with the receiver's digest. The first section has sums over buckets of items.
// The following sections have the items of the buckets whose sums differ.
type comparison struct {
	differing   bits // by bucket; nil before the sums arrive
	buckets     int
	horizon     uint64 // the log's head when the sums were compared
	receiverHas bits   // by ID
	gone        []Key
	listed      int // number of items
	unknown     int // bytes of the keys in gone
}

// compare requests a digest from the receiver. The sender sends no batch before the comparison ends.
func (s *Sender) compare() {
	s.round++
	s.streaming, s.comparing = false, &comparison{}
	s.applied, s.acked = 0, Acked[uint64]{}
	for i := range s.window {
		s.window[i].seq = 0 // acks of batches in flight do not set the position any more
	}
	clear(s.withheld)
	s.frames = append(s.frames, compareRequestFrame(s.round, nil))
}

func compareRequestFrame(round uint64, buckets []uint32) *wire.Frame {
	return &wire.Frame{Message: &wire.Frame_CompareRequest{CompareRequest: &wire.CompareRequest{Round: round,
		Buckets: buckets}}}
}

func (s *Sender) handleDigest(part *wire.Digest) error {
	switch {
	case part.Round < s.round: // a section of a replaced request
		return nil
	case part.Round > s.round || s.comparing == nil:
		return fmt.Errorf("a digest of round %d was not requested", part.Round)
	}
	s.log.mu.RLock()
	defer s.log.mu.RUnlock()
	if s.comparing.differing == nil {
		return s.compareSums(part.Sums)
	}
	return s.compareItems(part)
}

// compareSums finds the buckets that differ. The receiver has all items of the other buckets.
func (s *Sender) compareSums(theirs []uint64) error {
	n := len(theirs)
	if n == 0 || n > maxBuckets || n&(n-1) != 0 {
		return fmt.Errorf("a digest has %d sums, want a power of two up to %d", n, maxBuckets)
	}
	clear(s.rejected) // the receiver has dropped them too, and reports them anew
	s.rejectedBytes = 0
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
	c.receiverHas = newBits(int(s.log.ids.next))
	s.eachVisible(func(e *entry) {
		if !c.differing.has(uint32(bucket(e.hash, n))) {
			c.receiverHas.set(e.id)
		}
	})
	if len(differing) == 0 {
		s.compared()
		return nil
	}
	s.frames = append(s.frames, compareRequestFrame(s.round, differing))
	return nil
}

func (s *Sender) eachVisible(visit func(*entry)) {
	for _, e := range s.log.entries {
		if !e.superseded && !e.deleted && s.way.permits(e.key.Owner) {
			visit(e)
		}
	}
}

// compareItems handles a section with the receiver's items in the buckets that differ.
func (s *Sender) compareItems(part *wire.Digest) error {
	c := s.comparing
	if c.listed += len(part.Items); c.listed > maxDigestItems {
		return fmt.Errorf("a digest has more than %d items", maxDigestItems)
	}
	for _, item := range part.Items {
		key, err := readKey(item.Key)
		if err != nil {
			return err
		}
		if s.way.permits(key.Owner) { // the receiver gets nothing of other owners
			s.compareItem(StoredItem{key, Hash(item.Hash)})
		}
	}
	if c.unknown > maxUnknownBytes {
		return fmt.Errorf("a digest has more than %d bytes of keys that do not exist", maxUnknownBytes)
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
		c.receiverHas.set(e.id)
	case s.log.awaited[item.Key.Owner]:
		s.withheld[item.Key.Owner] = true
		if current {
			c.receiverHas.set(e.id)
		}
	case !current:
		c.gone = append(c.gone, item.Key)
		c.unknown += len(item.Key.Owner.Zone) + len(item.Key.Mesh) + len(item.Key.Name)
	}
}

// compared starts to send the difference. Changes after the comparison of the sums are after the horizon, and are sent
// to every receiver.
func (s *Sender) compared() {
	c := s.comparing
	s.streaming, s.catching, s.comparing = true, true, nil
	s.cursor, s.known = 0, c.horizon
	s.receiverHas, s.gone = c.receiverHas, c.gone
}

// bucket returns the bucket of a hash among n buckets, a power of two.
func bucket(h Hash, n int) int { return int(uint64(h) & uint64(n-1)) }

// buckets returns the number of buckets in a digest of a number of items.
func (l Limits) buckets(items int) int {
	n := 1
	for n < maxBuckets && n*l.BucketItems < items {
		n *= 2
	}
	return n
}

// sums adds up the hashes of the items in each of n buckets.
func sums(items []StoredItem, n int) []uint64 {
	all := make([]uint64, n)
	for _, item := range items {
		all[bucket(item.Hash, n)] += uint64(item.Hash)
	}
	return all
}

// bits is a set of small numbers.
type bits []uint64

// newBits returns an empty set of numbers below n. It is not nil.
func newBits(n int) bits { return make(bits, n/64+1) }

func (b bits) set(i uint32)      { b[i/64] |= 1 << (i % 64) }
func (b bits) has(i uint32) bool { return int(i/64) < len(b) && b[i/64]&(1<<(i%64)) != 0 }

func compareKeys(a, b Key) int {
	return cmp.Or(strings.Compare(a.Owner.Zone, b.Owner.Zone), strings.Compare(a.Mesh, b.Mesh),
		strings.Compare(a.Name, b.Name))
}
