package join

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"weft/internal/admission"
	"weft/internal/mirror"
	"weft/internal/store"
	"weft/internal/wait"
	"weft/kind"
	"weft/resource"
)

// confirmEvery is the minimum time between two updates of the zones' confirmations.
const confirmEvery = 5 * time.Millisecond

// superviseZones handles events that concern several zones, until ctx ends.
func (g *Global) superviseZones(ctx context.Context) {
	for name, t := range g.kinds {
		if g.logs.kinds[name].kind.Describe().Sync.Has(resource.ZoneToZones) {
			go g.sendConfirmations(ctx, name, t)
		}
	}
	for {
		zoned, remade, changed := g.logs.zonesChanged.Next(), g.logs.meshRecreated.Next(), g.replicasChanged()
		var expiry <-chan time.Time
		if next := g.endStreams(); next > 0 {
			expiry = time.After(next)
		}
		select {
		case <-zoned:
		case <-changed:
		case <-expiry:
		case <-remade:
			g.restartStreams()
		case <-ctx.Done():
			return
		}
	}
}

// restartStreams ends the streams of all zones, so that each sends its digest again. Items of a mesh are deleted with
// the mesh. Once a mesh of that name exists again, the zones do not know that their items are missing.
func (g *Global) restartStreams() {
	for _, p := range g.peers() {
		for _, k := range p.kinds {
			k.mu.Lock()
			k.outdated = true
			k.mu.Unlock()
			k.endStream(status.Error(codes.Aborted, "a mesh of this name was there before: the stream begins anew"))
		}
	}
}

// sendConfirmations tells each zone which of its changes of a kind all other zones have acked.
func (g *Global) sendConfirmations(ctx context.Context, name string, t *tracking) {
	for {
		moved := t.moved.Next()
		for _, p := range g.peers() {
			t.mu.Lock()
			confirmed := t.tracker.ConfirmedPositions(kind.Owner{Zone: p.name})
			t.mu.Unlock()
			p.kinds[name].setConfirmed(confirmed)
		}
		if wait.Sleep(ctx, confirmEvery) != nil {
			return
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return
		}
	}
}

func (k *peerStream) setConfirmed(confirmed ackedPositions) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.confirmed.Equal(confirmed) {
		k.confirmed = confirmed
		k.nudge.Send()
	}
}

func (g *Global) peers() []*zonePeer {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := make([]*zonePeer, 0, len(g.zones))
	for _, p := range g.zones {
		all = append(all, p)
	}
	return all
}

// endStreams ends the streams of zones that are deleted or disabled, and removes those zones from the trackers. It
// returns the time until it must be called again; 0: only after a change.
func (g *Global) endStreams() (next time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for zone := range g.counted {
		enabled, exists := g.logs.zoneEnabled(zone)
		if enabled {
			continue
		}
		why := status.Errorf(codes.PermissionDenied, "the zone %q was disabled on the global control plane", zone)
		if !exists {
			why = status.Errorf(codes.PermissionDenied, "the Zone %q was deleted on the global control plane", zone)
		}
		if p := g.zones[zone]; p != nil {
			for _, k := range p.kinds {
				k.endStream(why)
			}
		}
		delete(g.zones, zone)
		g.removeFromTracker(zone)
		g.completeLogs(zone)
	}
	for zone, p := range g.zones {
		if !g.logs.confirmed(zone).IsZero() {
			for _, k := range p.kinds {
				k.nudge.Send()
			}
		}
	}
	return g.countZones(time.Now())
}

// addToTracker makes confirmations wait for a zone; removeFromTracker ends that. The caller holds the lock.
func (g *Global) addToTracker(zone string) {
	g.counted[zone] = true
	for _, t := range g.kinds {
		t.mu.Lock()
		t.tracker.Join(kind.Owner{Zone: zone})
		t.mu.Unlock()
	}
}

func (g *Global) removeFromTracker(zone string) {
	delete(g.counted, zone)
	for _, t := range g.kinds {
		t.mu.Lock()
		t.tracker.Leave(kind.Owner{Zone: zone})
		t.mu.Unlock()
		t.moved.Send()
	}
}

// AwaitConfirmed returns once the proxies of every zone run with the global control plane's rows, as they are stored
// now or later. If ctx ends first, the error names the pending zones. It waits for a disconnected zone too, until the
// zone returns, is disabled or is deleted.
func (g *Global) AwaitConfirmed(ctx context.Context, rows ...resource.Key) error {
	others := make(chan error, 1)
	go func() { others <- g.awaitReplicas(ctx, rows) }()
	return errors.Join(g.here(ctx, rows, func(kind.PendingAcks) {}), <-others)
}

// Here is Confirmed for the zones that are not connected to another replica. Other replicas call it. It calls pending
// with the zones that it waits for.
func (g *Global) Here(ctx context.Context, _ kind.AckClients, rows []resource.Key,
	pending func(kind.PendingAcks)) error {
	return g.here(ctx, rows, pending)
}

func (g *Global) here(ctx context.Context, rows []resource.Key, pending func(kind.PendingAcks)) error {
	rows = g.logs.traveling(rows)
	if err := g.logs.await(ctx, mirror.RowsOf(rows)); err != nil {
		return err
	}
	for _, row := range rows {
		if err := g.confirmed(ctx, row, pending); err != nil {
			return err
		}
	}
	return nil
}

func (g *Global) confirmed(ctx context.Context, row resource.Key, report func(kind.PendingAcks)) error {
	t, head := g.kinds[row.Kind], g.logs.kinds[row.Kind].log.Head()
	for {
		moved := t.moved.Next()
		t.mu.Lock()
		pending := t.tracker.PendingZones(kind.Owner{}, head.Seq, kind.MeshOf(row))
		t.mu.Unlock()
		if len(pending) == 0 {
			return nil
		}
		zones := pendingZones(pending)
		report(zones)
		select {
		case <-moved:
		case <-ctx.Done():
			return fmt.Errorf("not acked by %s: %w", zones, ctx.Err())
		}
	}
}

func pendingZones(owners []kind.Owner) kind.PendingAcks {
	var zones []resource.Key
	for _, owner := range owners {
		zones = append(zones, kind.Zones.Key("", owner.Zone))
	}
	return kind.NewPendingAcks(zones)
}

// Sweep removes the resources of deleted zones, until ctx ends. The leader of the replicas runs it.
func (g *Global) Sweep(ctx context.Context) {
	for {
		zoned := g.logs.zonesChanged.Next()
		for _, zone := range g.logs.zonesToSweep() {
			if err := g.sweep(ctx, zone); err != nil && ctx.Err() == nil {
				g.Log.Warn("resources of a deleted zone can't be removed yet", "zone", zone, "error", err)
			}
		}
		if wait.Change(ctx, zoned, sweepAgain) != nil {
			return
		}
	}
}

// sweepAgain is the time between two sweeps without a deleted zone. They remove resources that arrived during a sweep,
// or that could not be removed.
const sweepAgain = time.Minute

// zonesToSweep returns the owners of stored resources that have no Zone.
func (l *logs) zonesToSweep() []string {
	owners := map[kind.Owner]bool{}
	for _, k := range l.kinds {
		k.mu.Lock()
		for owner := range k.hashes {
			owners[owner] = true
		}
		k.mu.Unlock()
	}
	var zones []string
	for owner := range owners {
		if _, exists := l.zoneEnabled(owner.Zone); !exists && !owner.Global() {
			zones = append(zones, owner.Zone)
		}
	}
	return zones
}

func (g *Global) sweep(ctx context.Context, zone string) error {
	if _, err := g.Store.Get(ctx, kind.Zones.Key("", zone)); !errors.Is(err, store.ErrNotFound) {
		return err // the Zone exists again
	}
	owner, count := kind.Owner{Zone: zone}, 0
	for _, k := range g.logs.kinds {
		for _, row := range k.rowsOfOwner(owner) {
			r := admission.Received{Kind: k.kind, Mesh: row.key.Mesh, Name: row.key.Name, Owner: owner}
			if err := g.Writer.RemoveReceived(ctx, r); err != nil {
				return err
			}
			count++
		}
	}
	if count > 0 {
		g.Log.Info("the resources of a deleted zone are removed", "zone", zone, "resources", count)
	}
	return nil
}
