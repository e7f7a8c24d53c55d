package zonesync

import (
	"maps"
	"math"
	"slices"
	"sort"
	"strings"

	"weft/kind"
)

// Tracker records, at global and for one forwarded kind, which changes of a zone are acked by every other zone. It is
// not safe for concurrent use. A mesh with which a zone lags delays its own confirmations alone.
//
// A zone counts from [Tracker.Join] to [Tracker.Leave], connected or not. A disconnected zone therefore delays the
// confirmations of all others, and callers that wait for a confirmation need a timeout of their own. A joining zone has
// acked nothing; receivers keep the positions that were confirmed before.
//
// All methods take constant time, except Acked for one of the two zones with the largest lag, which takes time linear
// in the number of zones. Meshes that lag add such a time each.
type Tracker struct {
	zones          map[kind.Owner]*zoneAcks
	origins        map[kind.Owner]*origin
	rejectingZones map[kind.Owner]int // by owner: the number of zones that reject some of its items
	slowest        slowest
	slowestLagging map[string]slowest // of each mesh with which some zone lags
}

// zoneAcks has the acked positions of a zone in the shared log, and the owners of the items that it rejects.
type zoneAcks struct {
	acked     Acked[uint64]
	rejecting map[kind.Owner]bool
}

// slowest are the two zones with the lowest acked position.
type slowest [2]slowZone

type slowZone struct {
	zone  kind.Owner
	acked uint64
}

// except returns the position that all zones except one have acked.
func (s slowest) except(zone kind.Owner) uint64 {
	if s[0].zone == zone {
		return s[1].acked
	}
	return s[0].acked
}

// changes returns whether a new position of a zone changes the ranking.
func (s slowest) changes(zone kind.Owner, acked uint64) bool {
	return acked < s[1].acked || zone == s[0].zone || zone == s[1].zone
}

// origin is a zone whose changes are forwarded.
type origin struct {
	waiting   []forwarded
	base      Acked[Position] // of the last forwarded position that is confirmed for all meshes
	confirmed Acked[Position]
}

// forwarded maps positions of a zone's own log to the position of the shared log that has all changes up to them.
type forwarded struct {
	own    Acked[Position]
	shared uint64
}

// at returns the zone's positions that a position of the shared log includes, and the number of waiting ones up to it.
func (o *origin) at(shared uint64) (own Acked[Position], passed int) {
	passed = sort.Search(len(o.waiting), func(i int) bool { return o.waiting[i].shared > shared })
	if passed == 0 {
		return o.base, 0
	}
	return o.waiting[passed-1].own, passed
}

// maxForwarded is the number of a zone's positions that wait for confirmation separately. Above it, neighbors are
// merged into the later one.
const maxForwarded = 256

// NewTracker returns a tracker without zones.
func NewTracker() *Tracker {
	t := &Tracker{zones: map[kind.Owner]*zoneAcks{}, origins: map[kind.Owner]*origin{},
		rejectingZones: map[kind.Owner]int{}}
	t.rankAll()
	return t
}

// Join adds a zone that has acked nothing. It has no effect on a known zone.
func (t *Tracker) Join(zone kind.Owner) {
	if t.zones[zone] == nil {
		t.zones[zone] = &zoneAcks{}
		t.rankAll()
	}
}

// Leave removes a zone.
func (t *Tracker) Leave(zone kind.Owner) {
	if s := t.zones[zone]; s != nil {
		t.setRejecting(s, nil)
	}
	delete(t.zones, zone)
	delete(t.origins, zone)
	t.rankAll()
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

// NoteAcked records the positions of the shared log that a zone has acked ([Progress.Acked]), and the owners of items
// that it rejects ([Sender.RejectingOwners]). The zone does not use the newest state of those, at any position.
func (t *Tracker) NoteAcked(zone kind.Owner, acked Acked[uint64], rejecting map[kind.Owner]bool) {
	s := t.zones[zone]
	if s == nil {
		return
	}
	t.setRejecting(s, rejecting)
	was := s.acked
	if was.Equal(acked) {
		return
	}
	s.acked = acked
	if !sameMeshes(was.Lagging, acked.Lagging) {
		t.rankAll()
		return
	}
	if t.slowest.changes(zone, acked.Most) {
		t.slowest = t.rank(Acked[uint64].most)
	}
	for mesh, ranking := range t.slowestLagging {
		if ranking.changes(zone, acked.PositionOf(mesh)) {
			t.slowestLagging[mesh] = t.rankMesh(mesh)
		}
	}
}

func sameMeshes(a, b map[string]uint64) bool {
	return maps.EqualFunc(a, b, func(uint64, uint64) bool { return true })
}

// NoteForwarded records that the shared log, whose head is seq, has all that a zone sent up to positions of its own log
// ([Receiver.Position]). A new epoch of the zone discards its earlier positions.
func (t *Tracker) NoteForwarded(zone kind.Owner, own Acked[Position], seq uint64) {
	o := t.origins[zone]
	if o == nil {
		o = &origin{}
		t.origins[zone] = o
	}
	if n := len(o.waiting); n > 0 {
		switch last := o.waiting[n-1].own; {
		case last.Equal(own):
			return
		case last.Most.Epoch != own.Most.Epoch:
			o.waiting = nil
		}
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

// ConfirmedPositions returns the positions of a zone's own log that every other zone has acked, for
// [Receiver.SetAcked].
func (t *Tracker) ConfirmedPositions(zone kind.Owner) Acked[Position] {
	o := t.origins[zone]
	switch {
	case o == nil:
		return Acked[Position]{}
	case t.rejectingZones[zone] > 0 || len(o.waiting) == 0:
		return o.confirmed
	}
	confirmed, passed := o.at(t.slowest.except(zone))
	confirmed.Lagging = maps.Clone(confirmed.Lagging)
	for mesh, ranking := range t.slowestLagging {
		own, n := o.at(ranking.except(zone))
		passed = min(passed, n)
		if p := own.PositionOf(mesh); p != confirmed.PositionOf(mesh) {
			if confirmed.Lagging == nil {
				confirmed.Lagging = map[string]Position{}
			}
			confirmed.Lagging[mesh] = p
		}
	}
	if passed > 0 {
		o.base, o.waiting = o.waiting[passed-1].own, o.waiting[passed:]
	}
	o.confirmed = confirmed
	return confirmed
}

// PendingZones returns the zones except one, sorted by name, that have not acked the changes of a mesh up to a position
// of the shared log, or reject items of the excepted zone.
func (t *Tracker) PendingZones(zone kind.Owner, seq uint64, mesh string) []kind.Owner {
	var pending []kind.Owner
	for other, s := range t.zones {
		if other != zone && (s.acked.PositionOf(mesh) < seq || s.rejecting[zone]) {
			pending = append(pending, other)
		}
	}
	slices.SortFunc(pending, func(a, b kind.Owner) int { return strings.Compare(a.Zone, b.Zone) })
	return pending
}

// rankAll finds the slowest zones of all meshes.
func (t *Tracker) rankAll() {
	t.slowest, t.slowestLagging = t.rank(Acked[uint64].most), map[string]slowest{}
	for _, s := range t.zones {
		for mesh := range s.acked.Lagging {
			if _, ranked := t.slowestLagging[mesh]; !ranked {
				t.slowestLagging[mesh] = t.rankMesh(mesh)
			}
		}
	}
}

func (t *Tracker) rankMesh(mesh string) slowest {
	return t.rank(func(acked Acked[uint64]) uint64 { return acked.PositionOf(mesh) })
}

// rank finds the slowest zones by one of their positions.
func (t *Tracker) rank(position func(Acked[uint64]) uint64) slowest {
	lowest := slowest{{acked: math.MaxUint64}, {acked: math.MaxUint64}}
	for zone, s := range t.zones {
		z := slowZone{zone, position(s.acked)}
		if z.acked < lowest[0].acked {
			lowest[0], lowest[1] = z, lowest[0]
		} else if z.acked < lowest[1].acked {
			lowest[1] = z
		}
	}
	return lowest
}
