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

// acknowledged checks what a sender was told: what is said to be stored is stored, or was refused.
func (w *world) acknowledged(e *end) {
	if e.sender == nil || e.cut || e.garbled {
		return
	}
	there := w.other(e)
	if there == nil {
		return
	}
	progress, refusing := e.sender.Progress(w.now), e.sender.Rejecting()
	refused := keysRefused(there.receiver)
	if progress.Lag < 0 {
		w.violated("a lag of %s", progress.Lag)
	}
	for key, put := range w.puts[e.at.process.epoch] {
		if put.seq > progress.Applied || there.receiver.Missed() || refusing[key.Owner] || refused[key] {
			continue
		}
		if (zonesync.Way{Sync: w.sync, From: e.at.owner, To: e.peer}).May(key.Owner) != nil {
			continue
		}
		if _, ok := w.since(key, there.at.store[key], put.index); !ok {
			w.violated("%s acknowledged %s at %d, and holds %q", e.peer, key, put.seq, there.at.store[key])
		}
	}
}

func keysRefused(r *zonesync.Receiver) map[zonesync.Key]bool {
	refused := map[zonesync.Key]bool{}
	for _, refusal := range r.Rejected() {
		refused[refusal.Key] = true
	}
	return refused
}

// other answers the other side of a stream, if it is still there.
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

// confirmed checks what global says to a zone: that the proxies of every other zone run with what the zone's
// log has up to a position, or with something newer.
func (w *world) confirmed(zone kind.Owner, position zonesync.Position) {
	w.say("global confirms %s up to %d", zone, position.Seq)
	if !w.sync.Has(resource.ZoneToZones) {
		return
	}
	refused := keysRefused(w.global.process.receivers[zone])
	for key, put := range w.puts[position.Epoch] {
		if put.seq > position.Seq || refused[key] || key.Owner != zone {
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

// rest ends all trouble, lets everything that is under way happen, and checks that all agree.
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
			return errors.New("there is no end of it")
		}
	}
	return errors.Join(w.agree(), w.broken)
}

// calm does everything that there is to do once, and says whether there was anything.
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
		if r := z.process.receivers[w.global.owner]; r != nil && (z.rollout != nil || !z.settled(r)) {
			busy = true
			w.roll(z)
		}
	}
	return busy
}

// agree checks that every site holds what it should, and nothing else, apart from what it refuses and says so.
func (w *world) agree() error {
	for _, e := range w.ends() {
		if e.cut {
			continue // of a zone that was taken out
		}
		if e.receiver != nil {
			if err := w.agreeAt(e); err != nil {
				return err
			}
		}
		if e.sender != nil && !e.sender.Progress(w.now).Current {
			return fmt.Errorf("%s believes that %s is behind: %+v", e.at.owner, e.peer, e.sender.Progress(w.now))
		}
	}
	if w.sync.Has(resource.ZoneToZones) {
		return w.agreeConfirmed()
	}
	return nil
}

// agreeAt compares what one side holds from the other with what that has.
func (w *world) agreeAt(e *end) error {
	there := w.other(e)
	way := zonesync.Way{Sync: w.sync, From: e.peer, To: e.at.owner}
	want, refused := map[zonesync.Key]string{}, map[zonesync.Key]bool{}
	for key, state := range there.at.store {
		if way.May(key.Owner) == nil {
			want[key] = state
		}
	}
	listed := keysRefused(e.receiver)
	for _, key := range slices.Concat(keysOf(want), keysOf(e.at.store)) {
		state := want[key]
		if way.May(key.Owner) != nil || e.at.store[key] == state {
			continue
		}
		if w.awaited(there.at, key.Owner) {
			refused[key] = listed[key]
			continue
		}
		if !e.at.refuses(key, state) {
			return fmt.Errorf("%s holds %q of %s, and %s has %q", e.at.owner, e.at.store[key], key, there.at.owner,
				state)
		}
		refused[key] = true
	}
	return agreeRefused(e, there, way, refused)
}

// awaited says whether global still waits for an owner's resources: it refuses one.
func (w *world) awaited(s *site, owner kind.Owner) bool {
	r := s.process.receivers[owner]
	return s == w.global && r != nil && !r.Synced()
}

// agreeRefused compares what should be refused with what both sides list.
func agreeRefused(e, there *end, way zonesync.Way, want map[zonesync.Key]bool) error {
	if diff := cmp.Diff(e.receiver.Rejected(), there.sender.Rejected()); diff != "" {
		return fmt.Errorf("what %s refuses (-says %s, +says %s):\n%s", e.at.owner, e.at.owner, there.at.owner, diff)
	}
	got := keysRefused(e.receiver)
	maps.DeleteFunc(got, func(key zonesync.Key, _ bool) bool { return way.May(key.Owner) != nil }) // a lie
	if e.receiver.Missed() != there.sender.RejectsMore() {
		return fmt.Errorf("%s refuses more than it lists: %v, and %s believes %v", e.at.owner, e.receiver.Missed(),
			there.at.owner, there.sender.RejectsMore())
	}
	maps.DeleteFunc(want, func(key zonesync.Key, refused bool) bool {
		return !refused || e.receiver.Missed() && !got[key]
	})
	if diff := cmp.Diff(want, got); diff != "" {
		return fmt.Errorf("what %s refuses (-refused +listed):\n%s", e.at.owner, diff)
	}
	return nil
}

// agreeConfirmed checks that each zone knows of everything of its own that it is everywhere, unless somebody
// refuses something of it or global does.
func (w *world) agreeConfirmed() error {
	for _, z := range w.zones {
		e := z.process.ends[w.global.owner]
		if e == nil || e.cut || e.sender.RejectsMore() || len(e.sender.Rejected()) > 0 || w.refused(z.owner) {
			continue
		}
		for _, key := range keysOf(z.store) {
			if key.Owner == z.owner && !e.sender.Confirmed(zonesync.Item{Key: key, Body: []byte(z.store[key])}) {
				return fmt.Errorf("%s is not confirmed; behind are %v", key, w.global.process.tracker.Pending(z.owner))
			}
		}
	}
	return nil
}

// refused says whether any zone refuses something of an owner, or has not settled for what it refuses.
func (w *world) refused(owner kind.Owner) bool {
	for _, e := range w.ends() {
		if e.at == w.global && !e.cut && e.sender != nil && (e.sender.Rejecting()[owner] || e.sender.RejectsMore()) {
			return true
		}
	}
	return false
}
