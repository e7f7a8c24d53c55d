package sim

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"weft/internal/wire"
	"weft/internal/zonesync"
	"weft/kind"
	"weft/resource"
)

// action is an event of a world. An event that is impossible at the moment has no effect.
type action struct {
	weight int
	do     func(*world)
}

// work has the events of normal operation. Streams move often, so faults find unfinished work. Bursts finish syncs, so
// faults also find finished work.
var work = []action{
	{400, (*world).move},
	{12, (*world).burst},
	{60, func(w *world) { w.change(one(w, w.sites())) }},
	{60, func(w *world) { w.up(func(s *site) { w.read(s, 1+w.rand.IntN(2)) }) }},
	{60, func(w *world) { w.up(func(s *site) { w.roll(s, one(w, meshes)) }) }},
	{30, func(w *world) { w.join(one(w, w.zones)) }},
	{80, func(w *world) { w.connect(one(w, w.zones)) }},
	{60, func(w *world) { w.boot(one(w, w.sites())) }},
}

// trouble has the faults. Their weights differ from world to world, since many faults of one kind find errors that few
// faults of every kind do not find.
var trouble = []action{
	{8, func(w *world) { w.up(w.crash) }},
	{8, (*world).cut},
	{6, func(w *world) { w.toggleStrict(one(w, w.sites())) }},
	{6, (*world).forgeItem},
	{4, func(w *world) { w.twin(one(w, w.zones)) }},
	{4, (*world).confirm},
	{4, (*world).garble},
	{5, func(w *world) { w.snapshot(one(w, w.sites())) }},
	{2, func(w *world) { w.restore(one(w, w.sites())) }},
	{2, func(w *world) { w.restore(w.global) }},
	{2, func(w *world) { w.evict(one(w, w.zones)) }},
	{10, func(w *world) { w.now = w.now.Add(time.Duration(w.rand.Int64N(int64(time.Hour))) - 10*time.Minute) }},
}

// choose sets the weight of each event in this world.
func (w *world) choose() {
	w.actions = slices.Clone(work)
	for _, d := range trouble {
		d.weight *= one(w, []int{0, 1, 2, 4})
		w.actions = append(w.actions, d)
	}
	for _, d := range w.actions {
		w.weight += d.weight
	}
}

// act performs one event.
func (w *world) act() {
	n := w.rand.IntN(w.weight)
	for _, d := range w.actions {
		if n -= d.weight; n < 0 {
			d.do(w)
			return
		}
	}
}

// up calls do with a random site, if its process runs.
func (w *world) up(do func(*site)) {
	if s := one(w, w.sites()); s.process != nil {
		do(s)
	}
}

// ends returns the ends of streams of all running processes.
func (w *world) ends() (all []*end) {
	for _, s := range append(w.sites(), w.twins...) {
		if s.process == nil {
			continue
		}
		for _, peer := range w.sites() {
			if e := s.process.ends[peer.owner]; e != nil {
				all = append(all, e)
			}
		}
	}
	return all
}

// move performs one step at one end of a stream.
func (w *world) move() {
	e := one(w, w.ends())
	if e == nil {
		return
	}
	if w.chance(30) || !w.moveAt(e, w.rand.IntN(3)) {
		w.pump(e)
	}
}

// moveAt performs one step of three at an end: deliver a frame, store an item, or send a digest. The step first is
// tried first. It returns whether any step was possible.
func (w *world) moveAt(e *end, first int) bool {
	for i := range 3 {
		switch what := (first + i) % 3; {
		case what == 0 && len(e.frames[e.at.owner]) > 0:
			w.deliver(e)
			return true
		case what == 1 && e.apply != nil:
			w.storeOne(e)
			return true
		case what == 2 && e.list:
			w.digest(e)
			return true
		}
	}
	return false
}

// burst performs up to 100 steps without a fault.
func (w *world) burst() {
	for range w.rand.IntN(100) {
		w.move()
		switch s := one(w, w.sites()); {
		case s.process == nil:
		case s == w.global || w.chance(50):
			w.read(s, 1)
		default:
			w.roll(s, one(w, meshes))
		}
	}
}

// change writes a resource of an owner. A zone writes whether it has joined or not.
func (w *world) change(s *site) {
	if s == w.global && !w.sync.Has(resource.GlobalToZones) || s != w.global && !w.sync.Has(resource.ZoneToGlobal) {
		return
	}
	key := zonesync.Key{Owner: s.owner, Mesh: one(w, meshes), Name: one(w, []string{"a", "b", "c", "sticky"})}
	state := fmt.Sprintf("%s%d", s.owner.Zone, w.step)
	switch w.rand.IntN(8) {
	case 0, 1, 2:
		state = absent
	case 3:
		state += "!"
	case 4:
		state = trusts + one(w, w.zones).owner.Zone
	}
	w.say("%s writes %q of %s", s.owner, state, key)
	w.write(key, state)
	s.set(key, state)
}

// join admits a zone to the mesh. Its earlier resources are new to the other zones.
func (w *world) join(z *site) {
	g := w.global
	if g.process == nil || g.members[z.owner] {
		return
	}
	g.members[z.owner] = true
	g.process.tracker.Join(z.owner)
	w.bringIn(z)
	w.say("%s may join", z.owner)
}

// evict removes a zone from the mesh. Its resources are deleted in every store except its own.
func (w *world) evict(z *site) {
	g := w.global
	if g.process == nil || !g.members[z.owner] {
		return
	}
	w.say("%s is evicted", z.owner)
	delete(g.members, z.owner)
	delete(g.known, z.owner)
	g.process.tracker.Leave(z.owner)
	g.process.log.Complete(z.owner)
	if e := g.process.ends[z.owner]; e != nil {
		e.sever()
	}
	delete(g.process.ends, z.owner)
	delete(g.process.receivers, z.owner)
	w.rewrite(z, func(zonesync.Key) string { return absent })
	for _, key := range keysOf(g.store) {
		if key.Owner == z.owner {
			g.put(w, key, absent)
		}
	}
}

// bringIn makes the states in a zone's log, and then those in its store, the newest states of its resources.
func (w *world) bringIn(z *site) {
	w.rewrite(z, func(key zonesync.Key) string {
		if z.process != nil {
			if put, ok := w.puts[z.process.epoch][key]; ok {
				return w.written[key][put.index]
			}
		}
		return absent
	})
	w.rewrite(z, func(key zonesync.Key) string { return z.store[key] })
}

// rewrite sets the newest state of each resource of an owner.
func (w *world) rewrite(s *site, state func(zonesync.Key) string) {
	for _, key := range keysOf(w.written) {
		if key.Owner == s.owner {
			w.write(key, state(key))
		}
	}
}

func (w *world) boot(s *site) {
	if s.process == nil {
		w.start(s)
	}
}

func (w *world) connect(z *site) {
	g := w.global
	if z.process == nil || g.process == nil || !g.members[z.owner] {
		return
	}
	if e := z.process.ends[g.owner]; (e == nil || e.cut) && w.admits(z) {
		w.dial(z)
	}
}

// admits returns whether global accepts a control plane as that of its zone, by the fingerprint of its store.
func (w *world) admits(z *site) bool {
	known := zonesync.ZoneStore{Fingerprint: w.global.known[z.owner]}
	admitted, becomes := known.Admits(z.id, w.now, zonesync.Timeout)
	if becomes {
		w.global.known[z.owner] = z.id
	}
	return admitted || w.fault == TwinAdmitted
}

// twin starts a second control plane with the name of a known zone and an empty store.
func (w *world) twin(z *site) {
	g := w.global
	if g.process == nil || !g.members[z.owner] || g.known[z.owner] == "" {
		return
	}
	twin := newSite(z.owner)
	twin.id = "the store of a twin"
	w.say("a second control plane connects as %s", z.owner)
	if !w.admits(twin) {
		return
	}
	w.start(twin)
	w.twins = append(w.twins, twin)
	w.read(twin, 1000)
	w.dial(twin)
}

// confirm releases all deletions that wait at global for an operator's confirmation.
func (w *world) confirm() {
	if w.global.process == nil {
		return
	}
	for _, z := range w.zones {
		if r := w.global.process.receivers[z.owner]; r != nil {
			r.Release()
		}
	}
}

func (w *world) cut() {
	if e := one(w, w.ends()); e != nil {
		w.say("the stream of %s and %s is cut", e.at.owner, e.peer)
		e.sever()
	}
}

// toggleStrict makes a site strict, or makes it retry the items that it rejected.
func (w *world) toggleStrict(s *site) {
	s.strict = !s.strict
	w.say("%s is strict: %v", s.owner, s.strict)
	if s.process == nil || s.strict {
		return
	}
	for _, peer := range w.sites() {
		if r := s.process.receivers[peer.owner]; r != nil {
			r.Retry()
		}
	}
}

// forgeItem adds a resource of another owner to a batch that a zone sends.
func (w *world) forgeItem() {
	e := one(w, w.ends())
	if e == nil || e.at != w.global || len(e.frames[e.at.owner]) == 0 {
		return
	}
	frames := e.frames[e.at.owner]
	last := frames[len(frames)-1]
	if batch := last.GetBatch(); batch != nil && len(batch.Items) == 1 {
		victim := one(w, w.sites()).owner
		if victim == e.peer {
			return
		}
		forged, _ := proto.Marshal(&wire.Item{Key: &wire.ItemKey{OwnerZone: victim.Zone, Mesh: "m", Name: "a"},
			Body: []byte("forged"), Deleted: w.chance(50)})
		last = proto.CloneOf(last)
		last.GetBatch().Items = append(last.GetBatch().Items, forged)
		frames[len(frames)-1] = last
		w.say("%s sends a resource of %s", e.peer, victim)
	}
}

// garble sends an invalid frame from one end. The only valid effect is that the other end closes the stream.
func (w *world) garble() {
	e := one(w, w.ends())
	if e == nil || e.cut {
		return
	}
	n := w.rand.Uint64N(4)
	f := one(w, []*wire.Frame{
		{},
		{Message: &wire.Frame_Hello{Hello: &wire.Hello{Protocol: 99, Kind: "Thing"}}},
		{Message: &wire.Frame_CompareRequest{CompareRequest: &wire.CompareRequest{Round: n,
			Buckets: []uint32{1 << 31}}}},
		{Message: &wire.Frame_CompareRequest{CompareRequest: &wire.CompareRequest{Round: n}}},
		{Message: &wire.Frame_Digest{Digest: &wire.Digest{Round: n, Sums: make([]uint64, 3),
			Items: []*wire.ItemDigest{{}}}}},
		{Message: &wire.Frame_Batch{Batch: &wire.Batch{Epoch: n, Seq: 1 << 60, Items: [][]byte{{1, 2, 3}}}}},
		{Message: &wire.Frame_Ack{Ack: &wire.Ack{Batches: 1 << 60, Acked: 1 << 60}}},
	})
	w.say("%s says to %s: %v", e.at.owner, e.peer, f)
	e.frames[e.peer] = append(e.frames[e.peer], f)
	e.garbled = true
}

func (w *world) snapshot(s *site) {
	s.copied = &snapshot{maps.Clone(s.store), maps.Clone(s.members), maps.Clone(s.known)}
	w.say("the store of %s is copied", s.owner)
}

// restore replaces a site's store by its copy, or by an empty store. An older state of a resource of the site is
// thereby its newest state.
func (w *world) restore(s *site) {
	if s.process != nil {
		w.crash(s)
	}
	w.say("the store of %s is restored", s.owner)
	copied := s.copied
	if copied == nil {
		copied = &snapshot{map[zonesync.Key]string{}, map[kind.Owner]bool{}, map[kind.Owner]string{}}
	}
	before := s.members
	s.store, s.members, s.known = maps.Clone(copied.store), maps.Clone(copied.members), maps.Clone(copied.known)
	s.suspect = true
	clear(s.seen)
	for key, state := range s.store {
		s.seen[key], _ = w.since(key, state, 0)
	}
	w.rewrite(s, func(key zonesync.Key) string { return s.store[key] })
	for _, z := range w.zones {
		switch in := s.members[z.owner]; {
		case s != w.global || in == before[z.owner]:
		case in:
			w.bringIn(z)
		default:
			w.rewrite(z, func(zonesync.Key) string { return absent })
		}
	}
}
