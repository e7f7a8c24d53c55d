package zonesync

import (
	"maps"
	"math"
	"slices"
	"strings"

	"weft/kind"
)

// Tracker records, at global and for one forwarded kind, which changes of a zone are acked by every other zone. It is
// not safe for concurrent use.
//
// A zone counts from [Tracker.Join] to [Tracker.Leave], connected or not. A disconnected zone therefore delays the
// confirmations of all others, and callers that wait for a confirmation need a timeout of their own. A joining zone has
// acked nothing; confirmed positions stay confirmed.
//
// All methods take constant time, except Acked for one of the two zones with the largest lag, which takes time linear
// in the number of zones.
type Tracker struct {
	zones          map[kind.Owner]*zoneAcks
	origins        map[kind.Owner]*origin
	rejectingZones map[kind.Owner]int // by owner: the number of zones that reject some of its items
	slowest        [2]slowZone        // the two zones with the lowest acked position
}

// zoneAcks is the acked position of a zone in the shared log, and the owners of the items that it rejects.
type zoneAcks struct {
	acked     uint64
	rejecting map[kind.Owner]bool
}

type slowZone struct {
	zone  kind.Owner
	acked uint64
}

// origin is a zone whose changes are forwarded.
type origin struct {
	waiting   []forwarded
	confirmed Position
}

// forwarded maps a position of a zone's own log to the position of the shared log that has all changes up to it.
type forwarded struct {
	own    Position
	shared uint64
}

// maxForwarded is the number of a zone's positions that wait for confirmation separately. Above it, neighbors are
// merged into the later one.
const maxForwarded = 256

// NewTracker returns a tracker without zones.
func NewTracker() *Tracker {
	t := &Tracker{zones: map[kind.Owner]*zoneAcks{}, origins: map[kind.Owner]*origin{},
		rejectingZones: map[kind.Owner]int{}}
	t.rankSlowest()
	return t
}

// Join adds a zone that has acked nothing. It has no effect on a known zone.
func (t *Tracker) Join(zone kind.Owner) {
	if t.zones[zone] == nil {
		t.zones[zone] = &zoneAcks{}
		t.rankSlowest()
	}
}

// Leave removes a zone.
func (t *Tracker) Leave(zone kind.Owner) {
	if s := t.zones[zone]; s != nil {
		t.setRejecting(s, nil)
	}
	delete(t.zones, zone)
	delete(t.origins, zone)
	t.rankSlowest()
}

func (t *Tracker) setRejecting(s *zoneAcks, owners map[kind.Owner]bool) {
	for owner := range s.rejecting {
		t.rejectingZones[owner]--
	}
	for owner := range owners {
		t.rejectingZones[owner]++
	}
	s.rejecting = owners
}

// Acked records the position of the shared log that a zone has acked ([Progress.Acked]), and the owners of items that
// it rejects ([Sender.Rejecting]). The zone does not use the newest state of those, at any position.
func (t *Tracker) Acked(zone kind.Owner, seq uint64, rejecting map[kind.Owner]bool) {
	s := t.zones[zone]
	if s == nil {
		return
	}
	t.setRejecting(s, rejecting)
	if s.acked == seq {
		return
	}
	s.acked = seq
	if seq < t.slowest[1].acked || zone == t.slowest[0].zone || zone == t.slowest[1].zone {
		t.rankSlowest()
	}
}

// Forwarded records that the shared log, whose head is seq, has all that a zone sent up to a position of its own log
// ([Receiver.Position]). A new epoch of the zone discards its earlier positions.
func (t *Tracker) Forwarded(zone kind.Owner, own Position, seq uint64) {
	o := t.origins[zone]
	if o == nil {
		o = &origin{}
		t.origins[zone] = o
	}
	if n := len(o.waiting); n > 0 && o.waiting[n-1].own.Epoch != own.Epoch {
		o.waiting = nil
	}
	if n := len(o.waiting); n > 0 && o.waiting[n-1].own == own {
		return
	}
	o.waiting = append(o.waiting, forwarded{own, seq})
	if len(o.waiting) > maxForwarded {
		o.thinWaiting()
	}
}

// thinWaiting keeps every second waiting position, and the newest.
func (o *origin) thinWaiting() {
	kept := o.waiting[:0]
	for i, f := range o.waiting {
		if i%2 == 1 || i == len(o.waiting)-1 {
			kept = append(kept, f)
		}
	}
	o.waiting = kept
}

// Confirmed returns the position of a zone's own log that every other zone has acked, for [Receiver.SetAcked].
func (t *Tracker) Confirmed(zone kind.Owner) Position {
	o := t.origins[zone]
	if o == nil {
		return Position{}
	}
	all := t.ackedByOthers(zone)
	for t.rejectingZones[zone] == 0 && len(o.waiting) > 0 && o.waiting[0].shared <= all {
		o.confirmed, o.waiting = o.waiting[0].own, o.waiting[1:]
	}
	return o.confirmed
}

// Pending returns the zones whose ack the next confirmation of a zone waits for, sorted by name.
func (t *Tracker) Pending(zone kind.Owner) []kind.Owner {
	o := t.origins[zone]
	if o == nil || len(o.waiting) == 0 {
		return nil
	}
	var pending []kind.Owner
	for other, s := range t.zones {
		if other != zone && (s.acked < o.waiting[0].shared || s.rejecting[zone]) {
			pending = append(pending, other)
		}
	}
	slices.SortFunc(pending, func(a, b kind.Owner) int { return strings.Compare(a.Zone, b.Zone) })
	return pending
}

// ackedByOthers returns the position of the shared log that all zones except one have acked.
func (t *Tracker) ackedByOthers(zone kind.Owner) uint64 {
	if t.slowest[0].zone == zone {
		return t.slowest[1].acked
	}
	return t.slowest[0].acked
}

// rankSlowest finds the two zones with the lowest acked position.
func (t *Tracker) rankSlowest() {
	t.slowest = [2]slowZone{{acked: math.MaxUint64}, {acked: math.MaxUint64}}
	for zone := range maps.Keys(t.zones) {
		f := slowZone{zone, t.zones[zone].acked}
		if f.acked < t.slowest[0].acked {
			t.slowest[0], t.slowest[1] = f, t.slowest[0]
		} else if f.acked < t.slowest[1].acked {
			t.slowest[1] = f
		}
	}
}
