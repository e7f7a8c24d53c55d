package join

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"weft/internal/access"
	"weft/internal/admission"
	"weft/internal/mirror"
	"weft/internal/pki"
	"weft/internal/store"
	"weft/internal/wait"
	"weft/internal/wire"
	"weft/internal/zonesync"
	"weft/kind"
	"weft/resource"
)

// GlobalConfig has the dependencies and settings of a Global. All fields but Replicas, Expiry, Timeout and Count are
// required.
type GlobalConfig struct {
	Instance string // one run of this control plane
	Release  string
	// Replicas are the other instances; nil if there can be none.
	Replicas Replicas
	// Expiry is how long a zone may be disconnected before other zones no longer use its ingresses; 0: any time.
	Expiry time.Duration
	// Timeout is how long another store of a zone, or the deletion of most of its resources, waits for an operator; 0:
	// [zonesync.Timeout].
	Timeout time.Duration
	Store   store.Store
	Writer  *admission.Writer
	Keys    *pki.Keyring // of zone tokens
	Denied  *access.Denials
	Count   Count // optional
	Log     *slog.Logger
}

// Global is the global control plane's side of zone sync, for the zones that connect to this instance.
type Global struct {
	wire.UnimplementedZoneSyncServer
	GlobalConfig
	logs  *logs
	kinds map[string]*tracking
	ctx   context.Context // of Start

	mu    sync.Mutex
	zones map[string]*zonePeer // that connected since this instance started
	// counted are the zones that confirmations wait for: zones that have ever connected, whether or not they are now,
	// and are not connected to another instance.
	counted      map[string]bool
	disconnected map[string]time.Time // zones without a connection to any instance, and since when
	rejected     map[string]Rejection // by zone
}

// tracking tracks the positions of one kind that all zones have acked.
type tracking struct {
	mu      sync.Mutex
	tracker *zonesync.Tracker
	moved   *wait.Broadcast
}

// zonePeer is this instance's state of a zone.
type zonePeer struct {
	name    string
	kinds   map[string]*peerStream
	begins  *wait.Rate       // of its streams
	items   *wait.Rate       // that it sends
	rejects *zonesync.Budget // the kept rejected items

	mu      sync.Mutex
	insight connection
}

// peerStream is one kind of a zone. The state of the receiver outlives the streams. One stream is active at a time: the
// newest.
type peerStream struct {
	kind          resource.Descriptor
	way           zonesync.Direction // from the zone
	receiver      *zonesync.Receiver // used by the active stream
	turn          chan struct{}      // holds one token
	nudge         *wait.Broadcast
	forwarded     ackedPositions // the tracker's last value; used by the conversation only
	forwardedAcks *localAcks     // the acks of the other instances' zones; nil if nothing is sent on to other zones

	mu        sync.Mutex
	end       context.CancelCauseFunc // of the stream that is active, or waits to be
	current   *conversation
	outdated  bool // the receiver's state is outdated
	confirmed ackedPositions
	store     string // of the control plane whose stream is active: its fingerprint
	synced    bool   // all resources that the zone had when it connected are stored
	state     StreamState
	doubted   *kind.DoubtedDeletion // nil: no deletion waits
}

// NewGlobal returns a global control plane without zones.
func NewGlobal(c GlobalConfig) *Global {
	g := &Global{GlobalConfig: c, kinds: map[string]*tracking{}, zones: map[string]*zonePeer{},
		counted: map[string]bool{}, disconnected: map[string]time.Time{}, rejected: map[string]Rejection{}}
	g.logs = newLogs(kind.Owner{}, c.Store, c.Log)
	for name := range g.logs.kinds {
		g.kinds[name] = &tracking{tracker: zonesync.NewTracker(), moved: &wait.Broadcast{}}
	}
	return g
}

// Register adds the service of zone sync to a server.
func (g *Global) Register(s grpc.ServiceRegistrar) { wire.RegisterZoneSyncServer(s, g) }

// Changes are the queue of the stored changes, which a mirror of the store must fill before Start.
func (g *Global) Changes() *mirror.Queue { return g.logs.changes }

// Start reads the stored changes until ctx ends. wait returns once it has stopped.
func (g *Global) Start(ctx context.Context) (wait func(), err error) {
	g.ctx = ctx
	if wait, err = g.logs.follow(ctx); err != nil {
		return nil, err
	}
	// The state of a zone is known once the zone, or the instance that it is connected to, has sent it.
	for _, zone := range g.logs.joinedZones() {
		for _, k := range g.logs.kinds {
			if enabled, _ := g.logs.zoneEnabled(zone); enabled && k.kind.Describe().Sync.Has(resource.ZoneToZones) {
				k.log.Await(kind.Owner{Zone: zone})
			}
		}
	}
	g.mu.Lock()
	g.countZones(time.Now())
	g.mu.Unlock()
	g.logs.open()
	go g.superviseZones(ctx)
	return wait, nil
}

// peer returns the state of a zone, which the first call creates.
func (g *Global) peer(zone string) *zonePeer {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.counted[zone] {
		g.addToTracker(zone)
	}
	p := g.zones[zone]
	if p != nil {
		return p
	}
	p = &zonePeer{name: zone, kinds: map[string]*peerStream{}, begins: wait.NewRate(streamsAtOnce, streamsASecond),
		items:   wait.NewRate(itemsAtOnce, itemsASecond),
		rejects: zonesync.NewBudget(maxKeptItems, maxKeptBytes)}
	owner := kind.Owner{Zone: zone}
	for name, k := range g.logs.kinds {
		s := &peerStream{kind: k.kind, way: syncDirection(k.kind, owner, kind.Owner{}), turn: make(chan struct{}, 1),
			nudge: &wait.Broadcast{}}
		if s.way.Open() {
			s.receiver = newReceiver(s.way, p.rejects)
		}
		if k.kind.Describe().Sync.Has(resource.ZoneToZones) {
			s.forwardedAcks = newLocalAcks(func(ctx context.Context, rows mirror.Rows) error {
				return g.awaitReplicas(ctx, rows.Keys())
			})
			s.forwardedAcks.positionChanged = s.nudge
		}
		p.kinds[name] = s
	}
	g.zones[zone] = p
	return p
}

// newReceiver returns a receiver that doubts deletions of kinds that are sent on to other zones, since a wrong deletion
// there breaks clients.
func newReceiver(way zonesync.Direction, rejects *zonesync.Budget) *zonesync.Receiver {
	r := zonesync.NewReceiver(way)
	r.Share(rejects)
	if way.Sync.Has(resource.ZoneToZones) {
		r.FreeDeletions = freeDeletions
	}
	return r
}

// freeDeletions is the number of resources of a kind whose deletion is not doubted when a zone connects.
const freeDeletions = 10

// isCurrent returns whether the zone is the one for which the stream began. It is called once endStreams can end the
// stream.
func (g *Global) isCurrent(p *zonePeer) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	enabled, _ := g.logs.zoneEnabled(p.name)
	return enabled && g.zones[p.name] == p
}

// streamWithFirst is a stream whose first frame was read already.
type streamWithFirst struct {
	stream
	first *wire.Frame
}

// Recv implements stream.
func (b *streamWithFirst) Recv() (*wire.Frame, error) {
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
	if said := first.GetHello().GetZone(); said != zone { // before it replaces the stream of the token's zone
		return wrongToken(zone, said)
	}
	p := g.peer(zone)
	k := p.kinds[first.GetHello().GetKind()]
	if k == nil {
		return status.Errorf(codes.Unimplemented, "release %s of the global control plane does not know %.100q",
			g.Release, first.GetHello().GetKind())
	}
	if !p.begins.Allows(time.Now()) {
		return status.Errorf(codes.ResourceExhausted,
			"the zone %q begins more than %d streams a second; see whether two control planes run under its name", zone,
			streamsASecond)
	}
	ctx, end := context.WithCancelCause(s.Context())
	defer end(nil)
	if err := k.acquire(ctx, end); err != nil {
		return err
	}
	defer k.release()
	if !g.isCurrent(p) {
		return status.Error(codes.Aborted, "the Zone was deleted or disabled at this moment; try again")
	}
	k.renewReceiver(p.rejects)
	c := newConversation(g.peerKind(p, k), &streamWithFirst{s, first})
	k.setCurrent(c, storeOf(s.Context()))
	err = c.run(ctx)
	if c.known {
		g.recordDisconnected(p)
	}
	return zoneError(ctx, err)
}

// zoneError returns an error that may be sent to the zone.
func zoneError(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && status.Code(cause) != codes.Unknown {
		return cause
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.Error(codes.InvalidArgument, err.Error())
}

// acquire ends the active stream, and returns once this stream is the active one.
func (k *peerStream) acquire(ctx context.Context, end context.CancelCauseFunc) error {
	k.mu.Lock()
	if k.end != nil {
		k.end(status.Error(codes.Aborted,
			"another control plane of the zone has connected; if two run under the same name, stop one"))
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

// renewReceiver replaces the receiver if resources in its state have been deleted.
func (k *peerStream) renewReceiver(rejects *zonesync.Budget) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.outdated && k.receiver != nil {
		k.receiver.DropRejected()
		k.receiver = newReceiver(k.way, rejects)
	}
	k.outdated = false
}

func (k *peerStream) release() {
	k.setCurrent(nil, "")
	<-k.turn
}

func (k *peerStream) setCurrent(c *conversation, store string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.current, k.store, k.synced = c, store, false
}

// endStream ends the active stream with an error for its zone.
func (k *peerStream) endStream(why error) {
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
		apply: func(ctx context.Context, items []zonesync.Item) (mirror.Rows, []zonesync.Rejection) {
			of := g.logs.kinds[info.Name]
			if after, _ := p.items.Charge(len(items), time.Now(), math.MaxInt64); wait.Sleep(ctx, after) != nil {
				return nil, nil // the stream has ended
			}
			rows, rejected := apply(ctx, g.Writer, of, items, of.checkBounds, g.Log)
			if info.Sync.Has(resource.ZoneToZones) {
				// before that, the items are not in the log for other zones; an error means that ctx has ended
				_ = g.logs.await(ctx, rows)
			}
			return rows, rejected
		},
		list: func() []zonesync.StoredItem {
			return g.logs.kinds[info.Name].storedItems(func(of kind.Owner) bool { return of == owner })
		},
		heard: func(side *zonesync.Side) { g.recordConnected(p, side) },
		stored: func(c *conversation, rows mirror.Rows) {
			if k.forwardedAcks != nil {
				k.forwardedAcks.add(g.ctx, rows, c.receiver.Position())
			}
		},
		progressed: func(c *conversation) { g.recordProgress(p, k, c) },
		nudge:      k.nudge,
		nudged: func(c *conversation) {
			g.recordForwarded(owner, k)
			k.confirm(c)
			g.updateDoubted(p, k, c)
			g.recordReplaced(p)
		},
	}
}

// recordForwarded sets the position in the outgoing log that has all items of a zone, of each mesh once the other
// instances have forwarded them too.
func (g *Global) recordForwarded(owner kind.Owner, k *peerStream) {
	if k.forwardedAcks == nil {
		return
	}
	to := k.forwardedAcks.acked()
	if to.Equal(k.forwarded) || to.Most.Seq == 0 {
		return
	}
	k.forwarded = to
	name := k.kind.Describe().Name
	t := g.kinds[name]
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tracker.NoteForwarded(owner, to, g.logs.kinds[name].log.Head().Seq)
	t.moved.Send()
}

// recordProgress sets the positions that a zone has acked.
func (g *Global) recordProgress(p *zonePeer, k *peerStream, c *conversation) {
	t, owner := g.kinds[c.own.Kind], kind.Owner{Zone: p.name}
	if !c.synced && c.receiver != nil && c.receiver.CaughtUp() {
		c.synced = true
		g.recordSynced(p, k)
	}
	if c.sender != nil && c.known {
		acked := c.sender.Progress(time.Now()).Acked
		t.mu.Lock()
		t.tracker.NoteAcked(owner, acked, c.sender.RejectingOwners())
		t.mu.Unlock()
		t.moved.Send()
	}
	g.updateDoubted(p, k, c)
	g.recordReplaced(p)
	g.recordState(p, k, c)
}

// updateDoubted makes deletions of most of a zone's resources wait for an operator, or for the timeout.
func (g *Global) updateDoubted(p *zonePeer, k *peerStream, c *conversation) {
	if c.receiver == nil {
		return
	}
	doubt, doubted := c.receiver.PendingDoubt()
	now := time.Now()
	k.mu.Lock()
	was := k.doubted
	switch {
	case !doubted && c.receiver.IsSynced():
		k.doubted = nil
	case !doubted:
	case was == nil:
		k.doubted = &kind.DoubtedDeletion{Kind: k.kind.Describe().Name, Deletions: doubt.Deletions, Of: doubt.Of,
			Time: kind.Time{Time: now}}
		time.AfterFunc(g.timeout(), k.nudge.Send)
	default:
		k.doubted = &kind.DoubtedDeletion{Kind: was.Kind, Deletions: doubt.Deletions, Of: doubt.Of, Time: was.Time}
	}
	is := k.doubted
	k.mu.Unlock()
	if (was == nil) != (is == nil) || was != nil && *was != *is {
		if is == nil {
			g.Log.Info("no deletion of the zone waits any longer", "zone", p.name, "kind", k.kind.Describe().Name)
		} else {
			g.Log.Warn(
				"a zone lacks most of its former resources: their deletion waits for an operator, or for the timeout",
				"zone", p.name, "kind", k.kind.Describe().Name, "deletions", doubt.Deletions, "of", doubt.Of, "timeout",
				g.timeout())
		}
		p.mu.Lock()
		g.storeSoon(p)
		p.mu.Unlock()
	}
	if doubted && (!g.logs.confirmed(p.name).IsZero() || now.Sub(is.Time.Time) >= g.timeout()) {
		c.receiver.Release()
		k.nudge.Send() // the conversation may wait already
	}
}

// recordSynced records that all resources of a zone's kind are stored.
func (g *Global) recordSynced(p *zonePeer, k *peerStream) {
	name := k.kind.Describe().Name
	g.logs.kinds[name].log.Complete(kind.Owner{Zone: p.name})
	g.logs.kinds[name].changed.Send()
	k.mu.Lock()
	k.synced = true
	k.mu.Unlock()
	if _, synced := p.syncedStore(); !synced {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	// A control plane that takes the place of another one at once continues its subscription, which is complete.
	if p.insight.current.CompleteTime == nil {
		p.insight.current.CompleteTime = &kind.Time{Time: time.Now()}
		g.storeSoon(p)
	}
}

// syncedStore returns the store of the zone's control plane, and whether all its resources are stored that are sent on
// to other zones. While a control plane takes the place of another one, streams are of two stores.
func (p *zonePeer) syncedStore() (store string, synced bool) {
	for _, k := range p.kinds {
		if k.forwardedAcks == nil {
			continue
		}
		k.mu.Lock()
		is, synced := k.store, k.synced && k.doubted == nil
		k.mu.Unlock()
		if !synced || store != "" && is != store {
			return "", false
		}
		store = is
	}
	return store, true
}

// recordReplaced ends the confirmation by an operator once the resources of the confirmed store are in place of the
// former ones: a later loss of resources needs one of its own.
func (g *Global) recordReplaced(p *zonePeer) {
	confirmed := g.logs.confirmed(p.name) // before the zone is found in sync, since a later one is not used up
	if confirmed.IsZero() {
		return
	}
	if store, synced := p.syncedStore(); !synced || store != g.logs.storeOf(p.name) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.insight.used.Equal(confirmed) {
		p.insight.used = confirmed
		g.storeSoon(p)
	}
}

// confirm sends a zone the positions up to which all others have acked its changes.
func (k *peerStream) confirm(c *conversation) {
	k.mu.Lock()
	confirmed := k.confirmed
	k.mu.Unlock()
	if c.receiver != nil {
		c.receiver.SetAcked(confirmed)
	}
}
