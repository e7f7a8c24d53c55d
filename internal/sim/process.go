package sim

import (
	"fmt"
	"maps"
	"strings"

	"weft/internal/wire"
	"weft/internal/zonesync"
	"weft/kind"
	"weft/resource"
)

// process is one run of a control plane. A crash loses all of it.
type process struct {
	epoch     uint64
	log       *zonesync.Log
	opened    bool
	unread    map[zonesync.Key]bool // keys of the store that are not in the log yet
	receivers map[kind.Owner]*zonesync.Receiver
	ends      map[kind.Owner]*end
	tracker   *zonesync.Tracker // of global
}

// end is one side of a stream.
type end struct {
	*stream
	at       *site
	peer     kind.Owner
	session  *zonesync.Session
	sender   *zonesync.Sender   // nil if no resource is sent in this direction
	receiver *zonesync.Receiver // nil if no resource is received
	apply    *zonesync.Apply    // being stored
	stored   int                // items of apply that are stored
	rejected []zonesync.Rejection
	list     bool // a digest is due
}

// stream keeps the order of frames. A cut loses the frames on it, and each end notices the cut later.
type stream struct {
	cut     bool
	garbled bool                         // an end sent an invalid frame, so its progress is not checked
	frames  map[kind.Owner][]*wire.Frame // by receiver
}

// small has limits that the few resources of a world exceed.
var small = zonesync.Limits{BatchItems: 2, BatchBytes: 1 << 20, Window: 2, Tombstones: 3, BucketItems: 1,
	WindowBytes: 1 << 20, RejectedItems: 3, RejectedBytes: 1 << 20}

func (w *world) start(s *site) {
	p := &process{
		epoch: w.rand.Uint64() | 1, unread: map[zonesync.Key]bool{}, tracker: zonesync.NewTracker(),
		receivers: map[kind.Owner]*zonesync.Receiver{}, ends: map[kind.Owner]*end{},
	}
	p.log = zonesync.NewLog(p.epoch)
	p.log.Limits = small
	w.puts[p.epoch] = map[zonesync.Key]put{}
	for key := range s.store {
		p.unread[key] = true
	}
	for zone := range s.members {
		p.tracker.Join(zone)
		if w.fault != NotAwaited {
			p.log.Await(zone)
		}
	}
	if w.fault == OpenEarly {
		p.log.Open()
	}
	s.process = p
	w.say("%s starts", s.owner)
}

func (w *world) crash(s *site) {
	for _, e := range s.process.ends {
		e.sever()
	}
	s.process, s.rollouts = nil, map[string]*rollout{}
	w.say("%s crashes", s.owner)
}

func (st *stream) sever() { st.cut, st.frames = true, map[kind.Owner][]*wire.Frame{} }

// read writes changes of the store to the log, atMost of them. When global has read all of them, the stored resources
// count as forwarded.
func (w *world) read(s *site, atMost int) {
	p := s.process
	for _, key := range keysOf(p.unread) {
		if atMost--; atMost < 0 {
			break
		}
		delete(p.unread, key)
		state, ok := s.store[key]
		changed, err := p.log.Put(zonesync.Item{Key: key, Body: []byte(state), Deleted: !ok}, w.now)
		if err != nil {
			w.violated("%s: %v", s.owner, err)
		}
		if changed {
			w.noted(s, key, state)
		}
	}
	if len(p.unread) == 0 && !p.opened {
		p.log.Open()
		p.opened = true
		w.say("%s has read its store", s.owner)
	}
	if s == w.global && (len(p.unread) == 0 || w.fault == ForwardedEarly) {
		w.forwarded()
	}
}

func (w *world) noted(s *site, key zonesync.Key, state string) {
	index, _ := w.since(key, state, 0)
	for at, ok := w.since(key, state, index+1); ok; at, ok = w.since(key, state, at+1) {
		index = at
	}
	w.puts[s.process.epoch][key] = put{s.process.log.Head().Seq, index}
	w.say("%s logs %s as %q, %d", s.owner, key, state, s.process.log.Head().Seq)
}

// forwarded reports that global's log has the stored resources of the zones.
func (w *world) forwarded() {
	p := w.global.process
	for _, z := range w.zones {
		if receiver := p.receivers[z.owner]; receiver != nil {
			p.tracker.NoteForwarded(z.owner, allMeshes(receiver.Position()), p.log.Head().Seq)
			if receiver.IsSynced() {
				p.log.Complete(z.owner)
			}
		}
	}
}

// dial opens a stream from a zone to global.
func (w *world) dial(z *site) {
	st := &stream{frames: map[kind.Owner][]*wire.Frame{}}
	z.attach(w, st, w.global.owner)
	w.global.attach(w, st, z.owner)
	w.say("%s dials", z.owner)
}

// attach creates one end of a stream, and closes an older one.
func (s *site) attach(w *world, st *stream, peer kind.Owner) {
	p := s.process
	out, in := zonesync.Direction{Sync: w.sync, From: s.owner, To: peer},
		zonesync.Direction{Sync: w.sync, From: peer, To: s.owner}
	e := &end{stream: st, at: s, peer: peer}
	if out.Open() {
		e.sender = zonesync.NewSender(p.log, out)
	}
	if in.Open() {
		if w.fault == Unowned {
			in.Sync, in.From = w.sync|resource.ZoneToZones, kind.Owner{}
		}
		if e.receiver = p.receivers[peer]; e.receiver == nil {
			e.receiver = zonesync.NewReceiver(in)
			e.receiver.Limits = small
			if s == w.global && w.sync.Has(resource.ZoneToZones) {
				e.receiver.FreeDeletions = 1
			}
			p.receivers[peer] = e.receiver
		}
	}
	if old := p.ends[peer]; old != nil {
		old.sever()
	}
	p.ends[peer] = e
	e.session = zonesync.NewSession(zonesync.Side{Kind: "Thing", Owner: s.owner, Instance: fmt.Sprint(p.epoch)}, peer,
		e.sender, e.receiver)
}

// pump collects the pending work and frames of an end.
func (w *world) pump(e *end) {
	ready, err := e.session.Ready()
	if err != nil {
		w.say("%s ends the stream: %v", e.at.owner, err)
		e.sever()
		return
	}
	if ready.Apply != nil {
		e.apply, e.stored, e.rejected = ready.Apply, 0, nil
	}
	e.list = e.list || ready.List
	for _, f := range ready.Frames {
		w.say("%s sends %v", e.at.owner, f)
		if !e.cut {
			e.frames[e.peer] = append(e.frames[e.peer], f)
		}
	}
	w.report(e)
}

// deliver passes the oldest frame to its receiver.
func (w *world) deliver(e *end) {
	f := e.frames[e.at.owner][0]
	e.frames[e.at.owner] = e.frames[e.at.owner][1:]
	if err := e.session.Step(f); err != nil {
		w.say("%s ends the stream: %v", e.at.owner, err)
		e.sever()
		return
	}
	w.say("%s receives a %T", e.at.owner, f.Message)
	w.acknowledged(e)
	w.report(e)
}

// report updates global's tracker, and sends its confirmations to the zones.
func (w *world) report(e *end) {
	if e.at != w.global {
		return
	}
	p := w.global.process
	if e.sender != nil {
		p.tracker.NoteAcked(e.peer, e.sender.Progress(w.now).Acked, e.sender.RejectingOwners())
	}
	for _, z := range w.zones {
		receiver := p.receivers[z.owner]
		if receiver == nil {
			continue
		}
		position := allMeshes(receiver.Position())
		if w.sync.Has(resource.ZoneToZones) {
			position = p.tracker.ConfirmedPositions(z.owner)
		}
		before := receiver.AckedPositions()
		receiver.SetAcked(position)
		if now := receiver.AckedPositions(); !now.Equal(before) {
			w.confirmed(z.owner, now)
		}
	}
}

// digest computes the digest of the resources that a site stores of a peer.
func (w *world) digest(e *end) {
	e.list = false
	var stored []zonesync.StoredItem
	for _, key := range keysOf(e.at.store) {
		if (e.at == w.global && key.Owner == e.peer) || (e.at != w.global && key.Owner != e.at.owner) {
			stored = append(stored, zonesync.StoredItem{Key: key, Hash: zonesync.Sum(key, []byte(e.at.store[key]))})
		}
	}
	e.receiver.Digest(stored)
	w.say("%s lists %d", e.at.owner, len(stored))
}

// storeOne stores the next item of a batch, or reports the batch as applied when all its items are stored.
func (w *world) storeOne(e *end) {
	if e.stored == len(e.apply.Items) || w.fault == AppliedEarly && w.chance(50) {
		apply := e.apply
		e.apply = nil
		e.receiver.NoteApplied(apply, e.rejected)
		w.say("%s has applied, up to %v", e.at.owner, e.receiver.Position())
		return
	}
	item := e.apply.Items[e.stored]
	e.stored++
	state := string(item.Body)
	if item.Deleted {
		state = absent
	}
	switch {
	case e.at.store[item.Key] == state:
	case e.at.rejects(item.Key, state) && !(w.fault == TrustTaken && forged(item.Key, state)):
		e.rejected = append(e.rejected, zonesync.Rejection{Key: item.Key, Reason: "the site is strict"})
		w.say("%s rejects %q of %s", e.at.owner, state, item.Key)
	default:
		w.say("%s stores %q of %s", e.at.owner, state, item.Key)
		e.at.put(w, item.Key, state)
	}
}

// rejects returns whether a site rejects a state. Every site rejects a zone's state about another zone's trust domain.
// A strict site also rejects states that end with "!", and the deletion of the resource named sticky.
func (s *site) rejects(key zonesync.Key, state string) bool {
	return forged(key, state) || s.strict && (strings.HasSuffix(state, "!") || state == absent && key.Name == "sticky")
}

// roll gives the stored resources of a zone's mesh to its proxies, in two steps.
func (w *world) roll(z *site, mesh string) {
	receiver := z.process.receivers[w.global.owner] // global has none, and no proxies
	if receiver == nil || z.rollouts[mesh] == nil && z.inSync(receiver, mesh) {
		return
	}
	next := z.rollouts[mesh]
	if next == nil {
		next = &rollout{inMesh(z.store, mesh), receiver.Position()}
		z.rollouts[mesh] = next
		if w.fault == AckedEarly {
			receiver.SetAcked(allMeshes(next.position))
		}
		return
	}
	maps.DeleteFunc(z.running, func(key zonesync.Key, _ string) bool { return key.Mesh == mesh })
	maps.Copy(z.running, next.state)
	z.rolled[mesh] = next.position
	acked := allMeshes(next.position)
	if w.fault != AckedForAll {
		acked.Lagging = z.rolled
	}
	receiver.SetAcked(acked)
	w.say("the proxies of %s run with what it had of %s at %v", z.owner, mesh, next.position)
	delete(z.rollouts, mesh)
}

// inSync returns whether the proxies of a mesh run with the stored resources and the receiver has their position.
func (s *site) inSync(r *zonesync.Receiver, mesh string) bool {
	return s.rolled[mesh] == r.Position() && maps.Equal(inMesh(s.running, mesh), inMesh(s.store, mesh))
}

func inMesh(states map[zonesync.Key]string, mesh string) map[zonesync.Key]string {
	of := maps.Clone(states)
	maps.DeleteFunc(of, func(key zonesync.Key, _ string) bool { return key.Mesh != mesh })
	return of
}

func allMeshes(position zonesync.Position) zonesync.Acked[zonesync.Position] {
	return zonesync.Acked[zonesync.Position]{Most: position}
}
