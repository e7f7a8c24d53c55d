package join

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"weft/internal/admission"
	"weft/internal/mirror"
	"weft/internal/store"
	"weft/internal/wait"
	"weft/internal/wire"
	"weft/internal/zonesync"
	"weft/kind"
	"weft/resource"
)

// ZoneConfig has the dependencies of a Zone. All fields but WaitServed and Count are required.
type ZoneConfig struct {
	Zone     string
	Instance string // one run of this control plane
	Release  string
	Global   grpc.ClientConnInterface // to the global control plane, from [Dial]
	Store    store.Store
	Writer   *admission.Writer
	// WaitAcked returns once every proxy of the zone has acked rows in their versions, or in later ones, or ctx ends.
	WaitAcked func(ctx context.Context, rows mirror.Rows) error
	// WaitServed returns once a row of the zone may be sent to other zones, because its proxies serve it. It is called
	// for kinds that are sent to other zones. Its error is logged, and the row is sent all the same. Optional.
	WaitServed func(ctx context.Context, row resource.Key) error
	Count      Count // optional
	Log        *slog.Logger
}

// Zone is a zone's side of zone sync: the client.
type Zone struct {
	ZoneConfig
	logs  *logs
	kinds map[string]*zoneKind
	// connected is raised when the stream of a kind has a connection.
	connected *wait.Broadcast
}

// zoneKind is one kind between a zone and the global control plane.
type zoneKind struct {
	kind      resource.Descriptor
	receiver  *zonesync.Receiver
	localAcks *localAcks
	moved     *wait.Broadcast // raised whenever Link may have changed

	mu     sync.Mutex
	status Link
}

// Link is the state of the zone's stream for one kind.
type Link struct {
	Connected bool
	Since     time.Time // of the connection, or of its loss
	Problem   string    // why it is not connected
	Global    string    // the instance of the global control plane
	Release   string    // of the global control plane
	StreamState
}

// NewZone returns a zone that has not connected yet.
func NewZone(c ZoneConfig) *Zone {
	z := &Zone{ZoneConfig: c, kinds: map[string]*zoneKind{}, connected: &wait.Broadcast{}}
	z.logs = newLogs(z.self(), c.Store, c.Log)
	z.logs.serving = c.WaitServed
	for name, k := range z.logs.kinds {
		z.kinds[name] = &zoneKind{kind: k.kind, moved: &wait.Broadcast{},
			status: Link{Since: time.Now(), Problem: "not dialed yet"}}
	}
	return z
}

func (z *Zone) self() kind.Owner { return kind.Owner{Zone: z.Zone} }

// isOther returns whether an owner is another control plane.
func (z *Zone) isOther(owner kind.Owner) bool { return owner != z.self() }

// Changes are the queue of the stored changes, which a mirror of the store must fill before Start.
func (z *Zone) Changes() *mirror.Queue { return z.logs.changes }

// Start reads the stored changes until ctx ends. wait returns once it has stopped.
func (z *Zone) Start(ctx context.Context) (wait func(), err error) {
	if wait, err = z.logs.follow(ctx); err == nil {
		z.logs.open()
	}
	return wait, err
}

// Run keeps the zone connected until ctx ends. The leader of a control plane's instances runs it.
func (z *Zone) Run(ctx context.Context) {
	client := wire.NewZoneSyncClient(z.Global)
	var running sync.WaitGroup
	for _, k := range z.kinds {
		k.localAcks = newLocalAcks(z.WaitAcked)
		// Those may have been stored by an instance that ended before the proxies had acked them.
		received := z.logs.kinds[k.kind.Describe().Name].rowsWhere(z.isOther)
		k.localAcks.add(ctx, mirror.RowsOf(slices.Collect(maps.Keys(received))), zonesync.Position{})
		if w := syncDirection(k.kind, kind.Owner{}, z.self()); w.Open() {
			k.receiver = zonesync.NewReceiver(w)
		}
		running.Go(func() { z.keepStream(ctx, client, k) })
	}
	running.Wait()
}

// The time before a broken stream is opened again grows with each attempt. A stream whose kind the other side does not
// know waits longest, until the other side is upgraded.
const (
	firstRetry   = 100 * time.Millisecond
	longestRetry = 10 * time.Second
	unknownRetry = time.Minute
)

// stableAfter is how long a stream must last to reset that time.
const stableAfter = longestRetry

// redial is the same for the connection of the streams.
var redial = backoff.Config{BaseDelay: firstRetry, Multiplier: 2, Jitter: 0.5, MaxDelay: longestRetry}

// keepStream opens a kind's stream again whenever it breaks. A stream that had no connection does not wait longer than
// until another one has it.
func (z *Zone) keepStream(ctx context.Context, client wire.ZoneSyncClient, k *zoneKind) {
	pause := firstRetry
	for ctx.Err() == nil {
		lasted, err := z.runStream(ctx, client, k)
		if ctx.Err() != nil {
			break
		}
		if lasted > stableAfter {
			pause = firstRetry
		}
		left := pause/2 + rand.N(pause)
		var connected <-chan struct{}
		switch code := status.Code(err); {
		case code == codes.Unimplemented:
			left = unknownRetry
		case code == codes.Unavailable && lasted == 0: // not one that breaks again and again
			connected = z.connected.Next()
		}
		k.recordDisconnected(err, z.Log)
		_ = wait.Change(ctx, connected, left)
		pause = min(2*pause, longestRetry)
	}
	k.recordDisconnected(context.Canceled, nil)
}

// runStream runs one stream, and returns how long it lasted.
func (z *Zone) runStream(ctx context.Context, client wire.ZoneSyncClient, k *zoneKind) (lasted time.Duration,
	err error) {
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

// peerKind returns the zone's side of a conversation. Its goroutines end with ctx, which is that of all streams.
func (z *Zone) peerKind(ctx context.Context, k *zoneKind) peerKind {
	info := k.kind.Describe()
	return peerKind{
		kind: k.kind, own: zonesync.Side{Kind: info.Name, Owner: z.self(), Instance: z.Instance, Release: z.Release},
		logs: z.logs, receiver: k.receiver, count: z.Count,
		apply: func(ctx context.Context, items []zonesync.Item) (mirror.Rows, []zonesync.Rejection) {
			return apply(ctx, z.Writer, z.logs.kinds[info.Name], items, func(zonesync.Item) error { return nil }, z.Log)
		},
		list: func() []zonesync.StoredItem {
			return z.logs.kinds[info.Name].storedItems(z.isOther)
		},
		heard: func(peer *zonesync.Side) {
			k.recordConnected(peer, z.Log)
			z.connected.Send()
		},
		stored: func(c *conversation, rows mirror.Rows) {
			k.localAcks.add(ctx, rows, c.receiver.Position())
		},
		progressed: k.recordProgress,
		nudge:      k.localAcks.positionChanged,
		nudged: func(c *conversation) {
			if c.receiver != nil {
				c.receiver.SetAcked(k.localAcks.acked())
			}
		},
	}
}

// recordConnected records that the other side has sent its hello.
func (k *zoneKind) recordConnected(peer *zonesync.Side, log *slog.Logger) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.status = Link{Connected: true, Since: time.Now(), Global: peer.Instance, Release: peer.Release}
	if k.kind.Describe().Name == kind.Meshes.Name { // logged once for all kinds
		log.Info("the zone is connected to the global control plane", "instance", peer.Instance, "release",
			peer.Release)
	}
}

// recordDisconnected records the loss of the connection and its reason. The same reason is logged once.
func (k *zoneKind) recordDisconnected(err error, log *slog.Logger) {
	k.mu.Lock()
	defer k.mu.Unlock()
	why := status.Convert(err).Message()
	if k.status.Connected || k.status.Problem != why {
		if log != nil && k.kind.Describe().Name == kind.Meshes.Name {
			log.Warn("the zone is not connected to the global control plane, and continues with its stored resources",
				"error", why)
		}
		since := k.status.Since
		if k.status.Connected {
			since = time.Now()
		}
		k.status = Link{Since: since, Problem: why}
	}
	k.moved.Send()
}

func (k *zoneKind) recordProgress(c *conversation) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.status.StreamState = c.state()
	k.moved.Send()
}

// acked returns whether all other zones have acked the rows of the kind, up to a position of its log.
func (l *Link) acked(rows []resource.Key, seq uint64) bool {
	return !slices.ContainsFunc(rows, func(row resource.Key) bool {
		return l.Sent.Acked.PositionOf(kind.MeshOf(row)) < seq
	})
}

// rejects returns whether global has rejected one of the rows.
func (l *Link) rejects(rows []resource.Key) bool {
	return slices.ContainsFunc(l.Rejects, func(rejected zonesync.Rejection) bool {
		return slices.ContainsFunc(rows, func(row resource.Key) bool {
			return row.Mesh == rejected.Key.Mesh && row.Name == rejected.Key.Name
		})
	})
}

// Links returns the state of each kind, by its name.
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

// AwaitConfirmed returns once every other zone runs with this zone's rows, as they are stored now or later. If ctx ends
// first, some zone may still run with former rows. It waits for a disconnected zone too, until the zone returns or is
// deleted.
func (z *Zone) AwaitConfirmed(ctx context.Context, rows ...resource.Key) error {
	rows = z.logs.traveling(rows)
	if err := z.logs.await(ctx, mirror.RowsOf(rows)); err != nil {
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

// confirmed waits for the rows of one kind, which are stored at a position of its log.
func (k *zoneKind) confirmed(ctx context.Context, rows []resource.Key, seq uint64) error {
	for {
		moved := k.moved.Next()
		k.mu.Lock()
		now := k.status
		k.mu.Unlock()
		if now.Connected && now.acked(rows, seq) && !now.rejects(rows) {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			if !now.Connected {
				return fmt.Errorf(
					"the global control plane is not connected (%s), so the other zones could not confirm it: %w",
					now.Problem, ctx.Err())
			}
			return fmt.Errorf("not every other zone has acked it; `weft inspect zones` on the global control plane "+
				"lists the pending zones: %w", ctx.Err())
		}
	}
}
