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

// deed is something that may happen. It may turn out to be impossible, and then nothing happens.
type deed struct {
	weight int
	do     func(*world)
}

// Streams move often, so that there is something to lose. Work comes in bursts too, so that a sync is found both
// half done and done.
var work = []deed{
	{400, (*world).move},
	{12, (*world).burst},
	{60, func(w *world) { w.change(one(w, w.sites())) }},
	{60, func(w *world) { w.up(func(s *site) { w.read(s, 1+w.rand.IntN(2)) }) }},
	{40, func(w *world) { w.up(w.roll) }},
	{30, func(w *world) { w.join(one(w, w.zones)) }},
	{80, func(w *world) { w.connect(one(w, w.zones)) }},
	{60, func(w *world) { w.boot(one(w, w.sites())) }},
}

// What goes wrong differs from world to world, some of it never and some of it often: much of one thing finds
// what a little of everything does not.
var trouble = []deed{
	{8, func(w *world) { w.up(w.crash) }},
	{8, (*world).cut},
	{6, func(w *world) { w.relent(one(w, w.sites())) }},
	{6, (*world).lie},
	{4, func(w *world) { w.twin(one(w, w.zones)) }},
	{4, (*world).confirm},
	{4, (*world).garble},
	{5, func(w *world) { w.snapshot(one(w, w.sites())) }},
	{2, func(w *world) { w.restore(one(w, w.sites())) }},
	{2, func(w *world) { w.restore(w.global) }},
	{2, func(w *world) { w.takeOut(one(w, w.zones)) }},
	{10, func(w *world) { w.now = w.now.Add(time.Duration(w.rand.Int64N(int64(time.Hour))) - 10*time.Minute) }},
}

// choose decides how often which deed is done in this world.
func (w *world) choose() {
	w.deeds = slices.Clone(work)
	for _, d := range trouble {
		d.weight *= one(w, []int{0, 1, 2, 4})
		w.deeds = append(w.deeds, d)
	}
	for _, d := range w.deeds {
		w.weight += d.weight
	}
}

// act lets one thing happen.
func (w *world) act() {
	n := w.rand.IntN(w.weight)
	for _, d := range w.deeds {
		if n -= d.weight; n < 0 {
			d.do(w)
			return
		}
	}
}

// up does something at a site whose process runs.
func (w *world) up(do func(*site)) {
	if s := one(w, w.sites()); s.process != nil {
		do(s)
	}
}

// ends are all sides of streams, of running processes.
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

// move does one thing at one side of a stream.
func (w *world) move() {
	e := one(w, w.ends())
	if e == nil {
		return
	}
	if w.chance(30) || !w.moveAt(e, w.rand.IntN(3)) {
		w.pump(e)
	}
}

// moveAt says whether there was something to do, beginning with one thing or another.
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
			w.answer(e)
			return true
		}
	}
	return false
}

// burst lets a lot of work be done without trouble.
func (w *world) burst() {
	for range w.rand.IntN(100) {
		w.move()
		switch s := one(w, w.sites()); {
		case s.process == nil:
		case s == w.global || w.chance(50):
			w.read(s, 1)
		default:
			w.roll(s)
		}
	}
}

// change is a write by an owner. A zone writes whether it is joined or not.
func (w *world) change(s *site) {
	if s == w.global && !w.sync.Has(resource.GlobalToZones) || s != w.global && !w.sync.Has(resource.ZoneToGlobal) {
		return
	}
	key := zonesync.Key{Owner: s.owner, Mesh: "m", Name: one(w, []string{"a", "b", "c", "d", "sticky"})}
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

// join lets a zone in. What it had before is new to the others.
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

// takeOut puts a zone out of the mesh: its resources go everywhere but from its own store.
func (w *world) takeOut(z *site) {
	g := w.global
	if g.process == nil || !g.members[z.owner] {
		return
	}
	w.say("%s is taken out", z.owner)
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

// bringIn makes what a zone says of its resources, and then what it has, their newest states in the mesh.
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

// rewrite gives the resources of an owner the states that they now have in the mesh.
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

// admits says whether global takes a control plane for that of its zone, by its store.
func (w *world) admits(z *site) bool {
	known := zonesync.ZoneStore{Fingerprint: w.global.known[z.owner]}
	admitted, becomes := known.Admits(z.id, w.now, zonesync.Timeout)
	if becomes {
		w.global.known[z.owner] = z.id
	}
	return admitted || w.fault == TwinAdmitted
}

// twin has a second control plane come under the name of a zone that is known, with an empty store.
func (w *world) twin(z *site) {
	g := w.global
	if g.process == nil || !g.members[z.owner] || g.known[z.owner] == "" {
		return
	}
	twin := newSite(z.owner)
	twin.id = "the store of nobody"
	w.say("a second control plane comes as %s", z.owner)
	if !w.admits(twin) {
		return
	}
	w.start(twin)
	w.twins = append(w.twins, twin)
	w.read(twin, 1000)
	w.dial(twin)
}

// confirm is an operator who confirms whatever deletions wait at global.
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

// relent makes a site strict, or has it take what it refused.
func (w *world) relent(s *site) {
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

// lie adds somebody else's resource to a batch that a zone sends.
func (w *world) lie() {
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

// garble has a side say something absurd. The other side may end the stream, and nothing else.
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

// restore puts a site's store back to a copy, or, where there is none, to nothing. The owner of a resource
// gives it an older state by that.
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
