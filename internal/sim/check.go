package sim

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/google/go-cmp/cmp"

	"weft/internal/zonesync"
	"weft/kind"
	"weft/resource"
)

// acknowledged checks the progress of a sender: each state that the peer has acked is in the peer's store or rejected.
func (w *world) acknowledged(e *end) {
	if e.sender == nil || e.cut || e.garbled {
		return
	}
	there := w.other(e)
	if there == nil {
		return
	}
	progress, rejecting := e.sender.Progress(w.now), e.sender.RejectingOwners()
	rejected := rejectedKeys(there.receiver)
	if progress.Lag < 0 {
		w.violated("a lag of %s", progress.Lag)
	}
	for key, put := range w.puts[e.at.process.epoch] {
		if put.seq > progress.Applied || there.receiver.HasMissed() || rejecting[key.Owner] || rejected[key] {
			continue
		}
		if (zonesync.Direction{Sync: w.sync, From: e.at.owner, To: e.peer}).May(key.Owner) != nil {
			continue
		}
		if _, ok := w.since(key, there.at.store[key], put.index); !ok {
			w.violated("%s acked %s at %d, and has %q", e.peer, key, put.seq, there.at.store[key])
		}
	}
}

func rejectedKeys(r *zonesync.Receiver) map[zonesync.Key]bool {
	rejected := map[zonesync.Key]bool{}
	for _, rejection := range r.Rejections() {
		rejected[rejection.Key] = true
	}
	return rejected
}

// other returns the other end of a stream, or nil if the process there has no such end any more.
func (w *world) other(e *end) *end {
	there := w.global
	if e.at == w.global {
		there = w.zone(e.peer)
	}
	if there.process == nil {
		return nil
	}
	if o := there.process.ends[e.at.owner]; o != nil && o.stream == e.stream {
		return o
	}
	return nil
}

// confirmed checks a confirmation of global to a zone: the proxies of every other zone run with the states of the
// zone's log up to the positions of their meshes, or with newer ones.
func (w *world) confirmed(zone kind.Owner, position zonesync.Acked[zonesync.Position]) {
	w.say("global confirms %s up to %v", zone, position)
	if !w.sync.Has(resource.ZoneToZones) {
		return
	}
	rejected := rejectedKeys(w.global.process.receivers[zone])
	for key, put := range w.puts[position.Most.Epoch] {
		if put.seq > position.PositionOf(key.Mesh).Seq || rejected[key] || key.Owner != zone {
			continue
		}
		for _, z := range w.zones {
			if z.owner == zone || !w.global.members[z.owner] || z.suspect {
				continue
			}
			if _, ok := w.since(key, z.running[key], put.index); !ok {
				w.violated("%s at %d is confirmed, and proxies of %s run with %q", key, put.seq, z.owner,
					z.running[key])
			}
		}
	}
}

// rest ends all faults, performs all pending work, and checks that all stores agree.
func (w *world) rest() error {
	w.say("nothing more goes wrong")
	for _, twin := range w.twins {
		w.crash(twin)
	}
	w.twins = nil
	for _, s := range w.sites() {
		w.boot(s)
		if w.chance(50) {
			s.strict = false
		}
		for _, peer := range w.sites() {
			if r := s.process.receivers[peer.owner]; r != nil {
				r.Retry()
			}
		}
	}
	for calm := 0; calm < 2; w.step++ {
		w.confirm()
		if calm++; w.calm() {
			calm = 0
		}
		if w.broken != nil {
			return w.broken
		}
		if w.step > 10_000 {
			return errors.New("the work does not end within 10,000 steps")
		}
	}
	return errors.Join(w.agree(), w.broken)
}

// calm performs all pending work once, and returns whether there was any.
func (w *world) calm() (busy bool) {
	for _, s := range w.sites() {
		busy = len(s.process.unread) > 0 || !s.process.opened || busy
		w.read(s, 1000)
	}
	for _, z := range w.zones {
		w.connect(z)
	}
	for _, e := range w.ends() {
		for w.moveAt(e, 0) {
			busy = true
		}
		w.pump(e)
		busy = busy || e.apply != nil || e.list || len(e.frames[e.at.owner])+len(e.frames[e.peer]) > 0
	}
	for _, z := range w.zones {
		for _, mesh := range meshes {
			r := z.process.receivers[w.global.owner]
			if r != nil && (z.rollouts[mesh] != nil || !z.inSync(r, mesh)) {
				busy = true
				w.roll(z, mesh)
			}
		}
	}
	return busy
}

// agree checks that every site has the resources of its peers and no others, except items that it reports as rejected.
func (w *world) agree() error {
	for _, e := range w.ends() {
		if e.cut {
			continue // of an evicted zone
		}
		if e.receiver != nil {
			if err := w.agreeAt(e); err != nil {
				return err
			}
		}
		if e.sender != nil && !e.sender.Progress(w.now).Current {
			return fmt.Errorf("%s reports %s as out of sync: %+v", e.at.owner, e.peer, e.sender.Progress(w.now))
		}
	}
	if w.sync.Has(resource.ZoneToZones) {
		return w.agreeConfirmed()
	}
	return nil
}

// agreeAt compares the resources that one end received with those of the other end.
func (w *world) agreeAt(e *end) error {
	there := w.other(e)
	way := zonesync.Direction{Sync: w.sync, From: e.peer, To: e.at.owner}
	want, rejected := map[zonesync.Key]string{}, map[zonesync.Key]bool{}
	for key, state := range there.at.store {
		if way.May(key.Owner) == nil {
			want[key] = state
		}
	}
	listed := rejectedKeys(e.receiver)
	for _, key := range slices.Concat(keysOf(want), keysOf(e.at.store)) {
		state := want[key]
		if way.May(key.Owner) != nil || e.at.store[key] == state {
			continue
		}
		if w.awaited(there.at, key.Owner) {
			rejected[key] = listed[key]
			continue
		}
		if !e.at.rejects(key, state) {
			return fmt.Errorf("%s has %q of %s, and %s has %q", e.at.owner, e.at.store[key], key, there.at.owner,
				state)
		}
		rejected[key] = true
	}
	return agreeRejected(e, there, way, rejected)
}

// awaited returns whether global still waits for an owner's resources, since it rejected an item.
func (w *world) awaited(s *site, owner kind.Owner) bool {
	r := s.process.receivers[owner]
	return s == w.global && r != nil && !r.IsSynced()
}

// agreeRejected compares the expected rejections with those that both ends list.
func agreeRejected(e, there *end, way zonesync.Direction, want map[zonesync.Key]bool) error {
	if diff := cmp.Diff(e.receiver.Rejections(), there.sender.Rejections()); diff != "" {
		return fmt.Errorf("rejections of %s (-listed by %s, +listed by %s):\n%s", e.at.owner, e.at.owner,
			there.at.owner, diff)
	}
	got := rejectedKeys(e.receiver)
	maps.DeleteFunc(got, func(key zonesync.Key, _ bool) bool { return way.May(key.Owner) != nil }) // a forged item
	if e.receiver.HasMissed() != there.sender.RejectsMore() {
		return fmt.Errorf("%s rejects more items than it lists: %v; %s has %v", e.at.owner, e.receiver.HasMissed(),
			there.at.owner, there.sender.RejectsMore())
	}
	maps.DeleteFunc(want, func(key zonesync.Key, rejected bool) bool {
		return !rejected || e.receiver.HasMissed() && !got[key]
	})
	if diff := cmp.Diff(want, got); diff != "" {
		return fmt.Errorf("rejections of %s (-rejected +listed):\n%s", e.at.owner, diff)
	}
	return nil
}

// agreeConfirmed checks that each zone has the confirmation of all its resources, except zones with a rejected
// resource.
func (w *world) agreeConfirmed() error {
	for _, z := range w.zones {
		e := z.process.ends[w.global.owner]
		if e == nil || e.cut || e.sender.RejectsMore() || len(e.sender.Rejections()) > 0 ||
			w.rejectedSomewhere(z.owner) {
			continue
		}
		for _, key := range keysOf(z.store) {
			if key.Owner == z.owner && !e.sender.IsConfirmed(zonesync.Item{Key: key, Body: []byte(z.store[key])}) {
				p := w.global.process
				return fmt.Errorf("%s is not confirmed; pending are %v", key,
					p.tracker.PendingZones(z.owner, p.log.Head().Seq, key.Mesh))
			}
		}
	}
	return nil
}

// rejectedSomewhere returns whether a zone rejects a resource of an owner, or rejects more items than it lists.
func (w *world) rejectedSomewhere(owner kind.Owner) bool {
	for _, e := range w.ends() {
		if e.at == w.global && !e.cut && e.sender != nil &&
			(e.sender.RejectingOwners()[owner] || e.sender.RejectsMore()) {
			return true
		}
	}
	return false
}
