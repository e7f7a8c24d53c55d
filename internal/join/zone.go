package join

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"weft/internal/admission"
	"weft/internal/store"
	"weft/internal/wait"
	"weft/internal/wire"
	"weft/internal/zonesync"
	"weft/kind"
	"weft/resource"
)

// ZoneConfig says what a zone joins, and as whom. All fields but Serving and Count are needed.
type ZoneConfig struct {
	Zone     string
	Instance string // one run of this control plane
	Release  string
	Global   grpc.ClientConnInterface // to the global control plane, from [Dial]
	Store    store.Store
	Writer   *admission.Writer
	// WaitAcked returns once every proxy of the zone runs with what rows say, as they are stored, or ctx ends.
	WaitAcked func(ctx context.Context, rows []resource.Key) error
	// WaitServed returns once other zones may be told what a row of the zone's own says, because whoever they will
	// call serves it; it is asked for kinds that go to other zones. Its error is said in the log, and they are told
	// all the same. Optional.
	WaitServed func(ctx context.Context, row resource.Key) error
	Count      Count // optional
	Log        *slog.Logger
}

// Zone is a zone that joins others: the side that dials.
type Zone struct {
	ZoneConfig
	logs  *logs
	kinds map[string]*zoneKind
}

// zoneKind is one kind between a zone and the global control plane.
type zoneKind struct {
	kind     resource.Descriptor
	receiver *zonesync.Receiver
	settling *settling
	moved    *wait.Broadcast // raised whenever what follows may be another

	mu     sync.Mutex
	status Link
}

// Link is how a zone stands with the global control plane, for one kind.
type Link struct {
	Connected bool
	Since     time.Time // of being connected, or of not being so
	Trouble   string    // why it is not connected
	Global    string    // the instance of the global control plane
	Release   string    // of the global control plane
	StreamState
}

// NewZone answers a zone that has not dialled yet.
func NewZone(c ZoneConfig) *Zone {
	z := &Zone{ZoneConfig: c, kinds: map[string]*zoneKind{}}
	z.logs = newLogs(z.self(), c.Store, c.Log)
	z.logs.serving = c.WaitServed
	for name, k := range z.logs.kinds {
		z.kinds[name] = &zoneKind{kind: k.kind, moved: &wait.Broadcast{}, status: Link{Since: time.Now(), Trouble: "not dialled yet"}}
	}
	return z
}

func (z *Zone) self() kind.Owner { return kind.Owner{Zone: z.Zone} }

// Start reads the store, and follows it until ctx ends. Wait returns once it has stopped.
func (z *Zone) Start(ctx context.Context) (wait func(), err error) {
	if wait, err = z.logs.follow(ctx); err == nil {
		z.logs.open()
	}
	return wait, err
}

// Run keeps the zone connected until ctx ends. Of the instances of a control plane the leader runs it.
func (z *Zone) Run(ctx context.Context) {
	client := wire.NewZoneSyncClient(z.Global)
	var running sync.WaitGroup
	for _, k := range z.kinds {
		k.settling = newSettling(z.WaitAcked)
		if w := way(k.kind, kind.Owner{}, z.self()); w.Open() {
			k.receiver = zonesync.NewReceiver(w)
		}
		running.Go(func() { z.keep(ctx, client, k) })
	}
	running.Wait()
}

// How long a stream that broke waits before it is begun again: a little, and then longer and longer. One whose
// kind the other side does not know waits the longest: until that is upgraded.
const (
	firstRetry   = 100 * time.Millisecond
	longestRetry = 10 * time.Second
	unknownRetry = time.Minute
)

// steady is how long a stream lasts that ends a row of such waits.
const steady = longestRetry

// redial is the same of the connection below the streams.
var redial = backoff.Config{BaseDelay: firstRetry, Multiplier: 2, Jitter: 0.5, MaxDelay: longestRetry}

// keep begins a kind's stream again whenever it breaks.
func (z *Zone) keep(ctx context.Context, client wire.ZoneSyncClient, k *zoneKind) {
	pause := firstRetry
	for ctx.Err() == nil {
		lasted, err := z.converse(ctx, client, k)
		if ctx.Err() != nil {
			break
		}
		if lasted > steady {
			pause = firstRetry
		}
		wait := pause/2 + rand.N(pause)
		if status.Code(err) == codes.Unimplemented {
			wait = unknownRetry
		}
		k.lost(err, z.Log)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
		pause = min(2*pause, longestRetry)
	}
	k.lost(context.Canceled, nil)
}

// converse speaks over one stream, and says how long that lasted.
func (z *Zone) converse(ctx context.Context, client wire.ZoneSyncClient, k *zoneKind) (lasted time.Duration, err error) {
	open, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := client.Sync(open)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	err = newConversation(z.peerKind(ctx, k), s).run(open)
	return time.Since(began), err
}

// peerKind answers a conversation's part of the zone. What it begins ends with ctx, that of all streams.
func (z *Zone) peerKind(ctx context.Context, k *zoneKind) peerKind {
	info := k.kind.Describe()
	return peerKind{
		kind: k.kind, own: zonesync.Side{Kind: info.Name, Owner: z.self(), Instance: z.Instance, Release: z.Release},
		logs: z.logs, receiver: k.receiver, count: z.Count,
		apply: func(ctx context.Context, items []zonesync.Item) []zonesync.Rejection {
			return apply(ctx, z.Writer, k.kind, items, func(zonesync.Item) error { return nil }, z.Log)
		},
		list: func() []zonesync.StoredItem {
			return z.logs.kinds[info.Name].inventory(func(owner kind.Owner) bool { return owner != z.self() })
		},
		heard: func(peer *zonesync.Side) { k.met(peer, z.Log) },
		stored: func(c *conversation, items []zonesync.Item) {
			k.settling.add(ctx, rowsOf(k.kind, items), c.receiver.Position())
		},
		progressed: k.progressed,
		nudge:      k.settling.reached,
		nudged: func(c *conversation) {
			if c.receiver != nil {
				c.receiver.SetAcked(k.settling.position())
			}
		},
	}
}

// met notes that the other side is there.
func (k *zoneKind) met(peer *zonesync.Side, log *slog.Logger) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.status = Link{Connected: true, Since: time.Now(), Global: peer.Instance, Release: peer.Release}
	if k.kind.Describe().Name == kind.Meshes.Name { // one for all of them
		log.Info("the zone is connected to the global control plane", "instance", peer.Instance, "release", peer.Release)
	}
}

// lost notes that it is not, and why. The same trouble is said once.
func (k *zoneKind) lost(err error, log *slog.Logger) {
	k.mu.Lock()
	defer k.mu.Unlock()
	why := status.Convert(err).Message()
	if k.status.Connected || k.status.Trouble != why {
		if log != nil && k.kind.Describe().Name == kind.Meshes.Name {
			log.Warn("the zone is not connected to the global control plane, and serves on with what it has", "error", why)
		}
		since := k.status.Since
		if k.status.Connected {
			since = time.Now()
		}
		k.status = Link{Since: since, Trouble: why}
	}
	k.moved.Send()
}

func (k *zoneKind) progressed(c *conversation) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.status.StreamState = c.state()
	k.moved.Send()
}

// refuses says whether global does not take one of the rows.
func (l *Link) refuses(rows []resource.Key) bool {
	return slices.ContainsFunc(l.Rejects, func(refused zonesync.Rejection) bool {
		return slices.ContainsFunc(rows, func(row resource.Key) bool {
			return row.Mesh == refused.Key.Mesh && row.Name == refused.Key.Name
		})
	})
}

// Links answer how each kind stands, by its name.
func (z *Zone) Links() map[string]Link {
	links := map[string]Link{}
	for name, k := range z.kinds {
		k.mu.Lock()
		link := k.status
		link.StreamState = link.now()
		links[name] = link
		k.mu.Unlock()
	}
	return links
}

// Confirmed returns once every other zone runs with what rows of this zone's own say, as they are stored now or
// later, or ctx ends: then somebody may still run with what was before. A zone that is cut off counts until it
// is back or taken out.
func (z *Zone) Confirmed(ctx context.Context, rows ...resource.Key) error {
	rows = z.logs.traveling(rows)
	if err := z.logs.await(ctx, rows); err != nil {
		return err
	}
	var kinds []string
	for _, row := range rows {
		if !slices.Contains(kinds, row.Kind) {
			kinds = append(kinds, row.Kind)
		}
	}
	for _, name := range kinds {
		if err := z.kinds[name].confirmed(ctx, rows, z.logs.kinds[name].log.Head().Seq); err != nil {
			return err
		}
	}
	return nil
}

func (k *zoneKind) confirmed(ctx context.Context, rows []resource.Key, seq uint64) error {
	for {
		moved := k.moved.Next()
		k.mu.Lock()
		now := k.status
		k.mu.Unlock()
		if now.Connected && now.Sent.Acked >= seq && !now.refuses(rows) {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			if !now.Connected {
				return fmt.Errorf("the global control plane is not connected (%s), so the other zones could not confirm it: %w", now.Trouble, ctx.Err())
			}
			return fmt.Errorf("not every other zone has settled on it; `weft inspect zones` on the global control plane says which is behind: %w", ctx.Err())
		}
	}
}
