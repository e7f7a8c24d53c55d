package join

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"weft/internal/access"
	"weft/internal/admission"
	"weft/internal/pki"
	"weft/internal/store"
	"weft/internal/wait"
	"weft/internal/wire"
	"weft/internal/zonesync"
	"weft/kind"
	"weft/resource"
)

// GlobalConfig says what a global control plane serves zones with. All fields but Siblings, Expiry, Patience and Count
// are needed.
type GlobalConfig struct {
	Instance string // one run of this control plane
	Release  string
	// Replicas are the other instances; nil where there can be none.
	Replicas Replicas
	// Expiry is for how long a zone may be away until others use its ingresses no more; 0: for ever.
	Expiry time.Duration
	// Timeout is how long an operator is waited for where a zone's store is another one, or most of what it had is to
	// be deleted; 0: [zonesync.Timeout].
	Timeout time.Duration
	Store   store.Store
	Writer  *admission.Writer
	Keys    *pki.Keyring // of zone tokens
	Denied  *access.Denials
	Count   Count // optional
	Log     *slog.Logger
}

// Global is the global control plane's side: it serves whichever zones come to this instance.
type Global struct {
	wire.UnimplementedZoneSyncServer
	GlobalConfig
	logs  *logs
	kinds map[string]*tracking
	ctx   context.Context // of Start

	mu    sync.Mutex
	zones map[string]*zonePeer // that were here since this instance started
	// counted are those for which it is waited until everybody has settled: that were ever here, connected or
	// not, and are at no other instance.
	counted map[string]bool
	away    map[string]time.Time // zones that are connected nowhere, and since when
}

// tracking is what of one kind all zones have settled on.
type tracking struct {
	mu      sync.Mutex
	tracker *zonesync.Tracker
	moved   *wait.Broadcast
}

// zonePeer is a zone as this instance knows it.
type zonePeer struct {
	name    string
	kinds   map[string]*peerStream
	begins  *pace            // of its streams
	rejects *zonesync.Budget // what is kept of what was rejected

	mu      sync.Mutex
	insight connection
}

// peerStream is one kind of a zone. What the receiver remembers outlives the streams, of which there is one at
// a time: the newest.
type peerStream struct {
	kind      resource.Descriptor
	way       zonesync.Way       // from the zone
	receiver  *zonesync.Receiver // of whoever has the turn
	turn      chan struct{}      // holds one token
	nudge     *wait.Broadcast
	forwarded zonesync.Position // what the tracker was told last; the conversation's own
	passed    *settling         // to the instances that other zones are at; nil where nothing goes on to other zones

	mu        sync.Mutex
	end       context.CancelCauseFunc // of the stream that has the turn, or waits for it
	current   *conversation
	anew      bool // what the receiver remembers is not so any more
	confirmed zonesync.Position
	synced    bool // everything that the zone had when it connected is stored
	state     StreamState
	doubted   *kind.DoubtedDeletion // nil: no deletion waits
}

// NewGlobal answers a global control plane that serves nobody yet.
func NewGlobal(c GlobalConfig) *Global {
	g := &Global{GlobalConfig: c, kinds: map[string]*tracking{}, zones: map[string]*zonePeer{}, counted: map[string]bool{}, away: map[string]time.Time{}}
	g.logs = newLogs(kind.Owner{}, c.Store, c.Log)
	for name := range g.logs.kinds {
		g.kinds[name] = &tracking{tracker: zonesync.NewTracker(), moved: &wait.Broadcast{}}
	}
	return g
}

// Register adds the service of zone sync to a server.
func (g *Global) Register(s grpc.ServiceRegistrar) { wire.RegisterZoneSyncServer(s, g) }

// Start reads the store, and follows it until ctx ends. Wait returns once it has stopped.
func (g *Global) Start(ctx context.Context) (wait func(), err error) {
	g.ctx = ctx
	if wait, err = g.logs.follow(ctx); err != nil {
		return nil, err
	}
	// What a zone has now is known once it, or the instance that it is at, has said so.
	for zone := range g.logs.linksNow() {
		for _, k := range g.logs.kinds {
			if enabled, _ := g.logs.zoneEnabled(zone); enabled && k.kind.Describe().Sync.Has(resource.ZoneToZones) {
				k.log.Await(kind.Owner{Zone: zone})
			}
		}
	}
	g.mu.Lock()
	g.survey(time.Now())
	g.mu.Unlock()
	g.logs.open()
	go g.attend(ctx)
	return wait, nil
}

// peer answers what is known of a zone, made for the first who asks.
func (g *Global) peer(zone string) *zonePeer {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.counted[zone] {
		g.count(zone)
	}
	p := g.zones[zone]
	if p != nil {
		return p
	}
	p = &zonePeer{name: zone, kinds: map[string]*peerStream{}, begins: newPace(), rejects: zonesync.NewBudget(maxKeptItems, maxKeptBytes)}
	owner := kind.Owner{Zone: zone}
	for name, k := range g.logs.kinds {
		s := &peerStream{kind: k.kind, way: way(k.kind, owner, kind.Owner{}), turn: make(chan struct{}, 1), nudge: &wait.Broadcast{}}
		if s.way.Open() {
			s.receiver = newReceiver(s.way, p.rejects)
		}
		if k.kind.Describe().Sync.Has(resource.ZoneToZones) {
			s.passed = newSettling(g.askSiblings)
			s.passed.reached = s.nudge
		}
		p.kinds[name] = s
	}
	g.zones[zone] = p
	return p
}

// newReceiver doubts deletions of what goes on to other zones: whoever is rejected there is missed by their clients.
func newReceiver(way zonesync.Way, rejects *zonesync.Budget) *zonesync.Receiver {
	r := zonesync.NewReceiver(way)
	r.Share(rejects)
	if way.Sync.Has(resource.ZoneToZones) {
		r.FreeDeletions = freeDeletions
	}
	return r
}

// freeDeletions is how many resources of a kind a zone that connects may lack without doubt.
const freeDeletions = 10

// serves says whether a zone is still what it was when its stream began. It is asked once the stream can be
// ended by whoever dismisses the zone.
func (g *Global) serves(p *zonePeer) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	enabled, _ := g.logs.zoneEnabled(p.name)
	return enabled && g.zones[p.name] == p
}

// begun is a stream of which the first frame was read.
type begun struct {
	stream
	first *wire.Frame
}

// Recv implements stream.
func (b *begun) Recv() (*wire.Frame, error) {
	if first := b.first; first != nil {
		b.first = nil
		return first, nil
	}
	return b.stream.Recv()
}

// Sync implements wire.ZoneSyncServer.
func (g *Global) Sync(s grpc.BidiStreamingServer[wire.Frame, wire.Frame]) error {
	zone, err := g.Authenticate(s.Context())
	if err != nil {
		return err
	}
	first, err := s.Recv()
	if err != nil {
		return err
	}
	if said := first.GetHello().GetZone(); said != zone { // before it takes the place of whom the token speaks for
		return wrongToken(zone, said)
	}
	p := g.peer(zone)
	k := p.kinds[first.GetHello().GetKind()]
	if k == nil {
		return status.Errorf(codes.Unimplemented, "release %s of the global control plane does not know %.100q", g.Release, first.GetHello().GetKind())
	}
	if !p.begins.allows(time.Now()) {
		return status.Errorf(codes.ResourceExhausted, "the zone %q begins more than %d streams a second; see whether two control planes run under its name", zone, streamsASecond)
	}
	ctx, end := context.WithCancelCause(s.Context())
	defer end(nil)
	if err := k.take(ctx, end); err != nil {
		return err
	}
	defer k.release()
	if !g.serves(p) {
		return status.Error(codes.Aborted, "the Zone was deleted or disabled at this moment; try again")
	}
	k.refresh(p.rejects)
	c := newConversation(g.peerKind(p, k), &begun{s, first})
	k.hold(c)
	err = c.run(ctx)
	if c.known {
		g.left(p)
	}
	return verdict(ctx, err)
}

// verdict makes an error that the zone is told.
func verdict(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && status.Code(cause) != codes.Unknown {
		return cause
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.Error(codes.InvalidArgument, err.Error())
}

// take waits for the turn, which ends the stream that has it.
func (k *peerStream) take(ctx context.Context, end context.CancelCauseFunc) error {
	k.mu.Lock()
	if k.end != nil {
		k.end(status.Error(codes.Aborted, "another control plane of the zone has connected; if two run under the same name, stop one"))
	}
	k.end = end
	k.mu.Unlock()
	select {
	case k.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// refresh begins with a new receiver where resources have gone that the former one remembers.
func (k *peerStream) refresh(rejects *zonesync.Budget) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.anew && k.receiver != nil {
		k.receiver.DropRejected()
		k.receiver = newReceiver(k.way, rejects)
	}
	k.anew = false
}

func (k *peerStream) release() {
	k.hold(nil)
	<-k.turn
}

func (k *peerStream) hold(c *conversation) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.current = c
}

// stop ends the stream, for a reason that its zone is told.
func (k *peerStream) stop(why error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.end != nil {
		k.end(why)
	}
}

func (g *Global) peerKind(p *zonePeer, k *peerStream) peerKind {
	info, owner := k.kind.Describe(), kind.Owner{Zone: p.name}
	return peerKind{
		kind: k.kind, own: zonesync.Side{Kind: info.Name, Instance: g.Instance, Release: g.Release}, peer: owner,
		logs: g.logs, receiver: k.receiver, count: g.Count,
		apply: func(ctx context.Context, items []zonesync.Item) []zonesync.Rejection {
			within := func(item zonesync.Item) error { return g.logs.kinds[info.Name].within(k.kind, item) }
			refused := apply(ctx, g.Writer, k.kind, items, within, g.Log)
			if info.Sync.Has(resource.ZoneToZones) {
				_ = g.logs.await(ctx, rowsOf(k.kind, items)) // until then it is not in the log that goes on; else ctx has ended
			}
			return refused
		},
		list: func() []zonesync.StoredItem {
			return g.logs.kinds[info.Name].inventory(func(of kind.Owner) bool { return of == owner })
		},
		heard: func(side *zonesync.Side) { g.met(p, side) },
		stored: func(c *conversation, items []zonesync.Item) {
			if k.passed != nil {
				k.passed.add(g.ctx, rowsOf(k.kind, items), c.receiver.Position())
			}
		},
		progressed: func(c *conversation) { g.progressed(p, k, c) },
		nudge:      k.nudge,
		nudged:     func(c *conversation) { g.forwarded(owner, k); k.confirm(c); g.doubt(p, k, c) },
	}
}

// forwarded notes up to where what a zone sent stands in the log that goes to the others, and that the other
// instances have passed it on.
func (g *Global) forwarded(owner kind.Owner, k *peerStream) {
	if k.passed == nil {
		return
	}
	to := k.passed.position()
	if to == k.forwarded || to.Seq == 0 {
		return
	}
	k.forwarded = to
	name := k.kind.Describe().Name
	t := g.kinds[name]
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tracker.Forwarded(owner, to, g.logs.kinds[name].log.Head().Seq)
	t.moved.Send()
}

// progressed takes note of how far a zone is.
func (g *Global) progressed(p *zonePeer, k *peerStream, c *conversation) {
	t, owner := g.kinds[c.own.Kind], kind.Owner{Zone: p.name}
	if !c.synced && c.receiver != nil && c.receiver.Synced() {
		c.synced = true
		g.synced(p, k)
	}
	if c.sender != nil && c.known {
		settled := c.sender.Progress(time.Now()).Acked
		t.mu.Lock()
		t.tracker.Acked(owner, settled, c.sender.Rejecting())
		t.mu.Unlock()
		t.moved.Send()
	}
	g.doubt(p, k, c)
	g.observe(p, k, c)
}

// doubt has deletions that are most of what a zone had wait for an operator, or for long.
func (g *Global) doubt(p *zonePeer, k *peerStream, c *conversation) {
	if c.receiver == nil {
		return
	}
	doubt, doubted := c.receiver.Doubted()
	now := time.Now()
	k.mu.Lock()
	was := k.doubted
	switch {
	case !doubted && c.receiver.Synced():
		k.doubted = nil
	case !doubted:
	case was == nil:
		k.doubted = &kind.DoubtedDeletion{Kind: k.kind.Describe().Name, Deletions: doubt.Deletions, Of: doubt.Of, Time: kind.Time{Time: now}}
		time.AfterFunc(g.patience(), k.nudge.Send)
	default:
		k.doubted = &kind.DoubtedDeletion{Kind: was.Kind, Deletions: doubt.Deletions, Of: doubt.Of, Time: was.Time}
	}
	is := k.doubted
	k.mu.Unlock()
	if (was == nil) != (is == nil) || was != nil && *was != *is {
		if is == nil {
			g.Log.Info("no deletion of a zone waits", "zone", p.name, "kind", k.kind.Describe().Name)
		} else {
			g.Log.Warn("a zone lacks most of what it had: its deletions wait until an operator confirms them, or until it lasted for long", "zone", p.name, "kind", k.kind.Describe().Name, "deletions", doubt.Deletions, "of", doubt.Of, "patience", g.patience())
		}
		p.mu.Lock()
		g.note(p)
		p.mu.Unlock()
	}
	if doubted && (g.logs.confirmed(p.name) || now.Sub(is.Time.Time) >= g.patience()) {
		c.receiver.Release()
	}
}

// synced notes that everything that a zone has of a kind is in the store.
func (g *Global) synced(p *zonePeer, k *peerStream) {
	name := k.kind.Describe().Name
	g.logs.kinds[name].log.Complete(kind.Owner{Zone: p.name})
	g.logs.kinds[name].changed.Send()
	k.mu.Lock()
	k.synced = true
	k.mu.Unlock()
	for _, other := range p.kinds {
		other.mu.Lock()
		lacks := other.passed != nil && !other.synced
		other.mu.Unlock()
		if lacks {
			return
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.insight.current.CompleteTime == nil {
		p.insight.current.CompleteTime = &kind.Time{Time: time.Now()}
		p.insight.done = true
		g.note(p)
	}
}

// confirm tells a zone how far all others have settled on what it sent.
func (k *peerStream) confirm(c *conversation) {
	k.mu.Lock()
	confirmed := k.confirmed
	k.mu.Unlock()
	if c.receiver != nil && confirmed.Seq > 0 {
		c.receiver.SetAcked(confirmed)
	}
}
