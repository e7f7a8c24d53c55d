package zonesync

import (
	"maps"
	"math"
	"slices"
	"strings"

	"weft/kind"
)

// Tracker knows, at global and for one kind that goes from zone to zone, which of a zone's changes every other
// zone runs with. One caller at a time.
//
// A zone counts from [Tracker.Join] to [Tracker.Leave], connected or not, so one that is cut off holds up the
// confirmations of the others until it is back or taken out: who waits for a confirmation has a bound of its
// own for that. A zone that joins counts as having settled on nothing, since nobody knows what its proxies run
// with; what was confirmed before stays confirmed.
//
// With few zones behind, all methods take constant time; Settled takes longer, by the number of zones, where
// it is one of the two that were furthest behind.
type Tracker struct {
	zones   map[kind.Owner]*standing
	origins map[kind.Owner]*origin
	refused map[kind.Owner]int // by owner: how many zones refuse something of it
	last    [2]furthest        // the two zones that are furthest behind
}

// standing is how far a zone is in the shared log.
type standing struct {
	settled  uint64
	refusing map[kind.Owner]bool
}

type furthest struct {
	zone    kind.Owner
	settled uint64
}

// origin is a zone whose changes are passed on.
type origin struct {
	waiting   []forwarded
	confirmed Position
}

// forwarded says that what a zone's own log has up to one position stands in the shared log up to another.
type forwarded struct {
	own    Position
	shared uint64
}

// maxForwarded is how many changes of a zone are told apart while they wait. Of more, neighbors are
// confirmed together, with the later of them.
const maxForwarded = 256

// NewTracker answers a tracker that knows of no zone.
func NewTracker() *Tracker {
	t := &Tracker{zones: map[kind.Owner]*standing{}, origins: map[kind.Owner]*origin{}, refused: map[kind.Owner]int{}}
	t.rank()
	return t
}

// Join counts a zone in. One that was counted stays where it is.
func (t *Tracker) Join(zone kind.Owner) {
	if t.zones[zone] == nil {
		t.zones[zone] = &standing{}
		t.rank()
	}
}

// Leave counts a zone out.
func (t *Tracker) Leave(zone kind.Owner) {
	if s := t.zones[zone]; s != nil {
		t.refuse(s, nil)
	}
	delete(t.zones, zone)
	delete(t.origins, zone)
	t.rank()
}

func (t *Tracker) refuse(s *standing, owners map[kind.Owner]bool) {
	for owner := range s.refusing {
		t.refused[owner]--
	}
	for owner := range owners {
		t.refused[owner]++
	}
	s.refusing = owners
}

// Acked says up to where in the shared log a zone has settled ([Progress.InSync]), and whose resources it
// refuses ([Sender.Rejecting]): those it does not run with, however far it is.
func (t *Tracker) Acked(zone kind.Owner, seq uint64, refusing map[kind.Owner]bool) {
	s := t.zones[zone]
	if s == nil {
		return
	}
	t.refuse(s, refusing)
	if s.settled == seq {
		return
	}
	s.settled = seq
	if seq < t.last[1].settled || zone == t.last[0].zone || zone == t.last[1].zone {
		t.rank()
	}
}

// Forwarded says that what a zone has sent up to a position of its own log ([Receiver.Position]) stands in the
// shared log, which ends at seq. A new epoch of the zone begins anew.
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
		o.thin()
	}
}

// thin keeps every second change that waits, and the newest.
func (o *origin) thin() {
	kept := o.waiting[:0]
	for i, f := range o.waiting {
		if i%2 == 1 || i == len(o.waiting)-1 {
			kept = append(kept, f)
		}
	}
	o.waiting = kept
}

// Confirmed answers up to where in a zone's own log every other zone runs with it: what to tell the zone with
// [Receiver.SetAcked].
func (t *Tracker) Confirmed(zone kind.Owner) Position {
	o := t.origins[zone]
	if o == nil {
		return Position{}
	}
	all := t.others(zone)
	for t.refused[zone] == 0 && len(o.waiting) > 0 && o.waiting[0].shared <= all {
		o.confirmed, o.waiting = o.waiting[0].own, o.waiting[1:]
	}
	return o.confirmed
}

// Pending lists the zones for which the next confirmation of a zone waits, by name.
func (t *Tracker) Pending(zone kind.Owner) []kind.Owner {
	o := t.origins[zone]
	if o == nil || len(o.waiting) == 0 {
		return nil
	}
	var behind []kind.Owner
	for other, s := range t.zones {
		if other != zone && (s.settled < o.waiting[0].shared || s.refusing[zone]) {
			behind = append(behind, other)
		}
	}
	slices.SortFunc(behind, func(a, b kind.Owner) int { return strings.Compare(a.Zone, b.Zone) })
	return behind
}

// others answers up to where all zones but one have settled.
func (t *Tracker) others(zone kind.Owner) uint64 {
	if t.last[0].zone == zone {
		return t.last[1].settled
	}
	return t.last[0].settled
}

// rank finds the two zones that are furthest behind.
func (t *Tracker) rank() {
	t.last = [2]furthest{{settled: math.MaxUint64}, {settled: math.MaxUint64}}
	for zone := range maps.Keys(t.zones) {
		f := furthest{zone, t.zones[zone].settled}
		if f.settled < t.last[0].settled {
			t.last[0], t.last[1] = f, t.last[0]
		} else if f.settled < t.last[1].settled {
			t.last[1] = f
		}
	}
}
