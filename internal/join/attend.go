package join

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"weft/internal/admission"
	"weft/internal/store"
	"weft/internal/zonesync"
	"weft/kind"
	"weft/resource"
)

// confirmEvery is the least time between two looks at who has settled on what.
const confirmEvery = 5 * time.Millisecond

// attend sees to whatever concerns several zones, until ctx ends.
func (g *Global) attend(ctx context.Context) {
	for name, t := range g.kinds {
		if g.logs.kinds[name].kind.Describe().Sync.Has(resource.ZoneToZones) {
			go g.confirmAll(ctx, name, t)
		}
	}
	for {
		zoned, remade, changed := g.logs.zoned.Next(), g.logs.remade.Next(), g.changed()
		var expiry <-chan time.Time
		if next := g.dismiss(); next > 0 {
			expiry = time.After(next)
		}
		select {
		case <-zoned:
		case <-changed:
		case <-expiry:
		case <-remade:
			g.beginAnew()
		case <-ctx.Done():
			return
		}
	}
}

// beginAnew has zones say what they have. What they sent of a mesh went with that mesh, and now that there is
// one of its name again they do not know that it is missing.
func (g *Global) beginAnew() {
	for _, p := range g.peers() {
		for _, k := range p.kinds {
			k.mu.Lock()
			k.anew = true
			k.mu.Unlock()
			k.stop(status.Error(codes.Aborted, "a mesh of this name was there before: the stream begins anew"))
		}
	}
}

// confirmAll tells each zone how far the others are with what it sent of a kind.
func (g *Global) confirmAll(ctx context.Context, name string, t *tracking) {
	for {
		moved := t.moved.Next()
		for _, p := range g.peers() {
			t.mu.Lock()
			confirmed := t.tracker.Confirmed(kind.Owner{Zone: p.name})
			t.mu.Unlock()
			p.kinds[name].settle(confirmed)
		}
		select {
		case <-time.After(confirmEvery):
		case <-ctx.Done():
			return
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return
		}
	}
}

func (k *peerStream) settle(confirmed zonesync.Position) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.confirmed != confirmed {
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

// dismiss ends the streams of zones that are no more or are disabled, and counts them out; others it counts in
// or out by where they are. It answers when to look again; 0: when something has changed.
func (g *Global) dismiss() (next time.Duration) {
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
				k.stop(why)
			}
		}
		delete(g.zones, zone)
		g.discount(zone)
		g.complete(zone)
	}
	for zone, p := range g.zones {
		if g.logs.confirmed(zone) {
			for _, k := range p.kinds {
				k.nudge.Send()
			}
		}
	}
	return g.survey(time.Now())
}

// count has what other zones settle on wait for a zone too; discount ends that. Both are called with the lock.
func (g *Global) count(zone string) {
	g.counted[zone] = true
	for _, t := range g.kinds {
		t.mu.Lock()
		t.tracker.Join(kind.Owner{Zone: zone})
		t.mu.Unlock()
	}
}

func (g *Global) discount(zone string) {
	delete(g.counted, zone)
	for _, t := range g.kinds {
		t.mu.Lock()
		t.tracker.Leave(kind.Owner{Zone: zone})
		t.mu.Unlock()
		t.moved.Send()
	}
}

// Confirmed returns once every zone runs with what rows of the global control plane's own say, as they are
// stored now or later, or ctx ends, upon which the error names the zones that are behind. A zone that is cut off
// counts until it is back, disabled or deleted.
func (g *Global) Confirmed(ctx context.Context, rows ...resource.Key) error {
	asked := make(chan error, 1)
	go func() { asked <- g.askSiblings(ctx, rows) }()
	return errors.Join(g.Here(ctx, rows), <-asked)
}

// Here is the same of the zones that are not at another instance: the answer to another instance's question.
func (g *Global) Here(ctx context.Context, rows []resource.Key) error {
	rows = g.logs.traveling(rows)
	if err := g.logs.await(ctx, rows); err != nil {
		return err
	}
	for _, row := range rows {
		if err := g.confirmed(ctx, row.Kind); err != nil {
			return err
		}
	}
	return nil
}

func (g *Global) confirmed(ctx context.Context, name string) error {
	t, head := g.kinds[name], g.logs.kinds[name].log.Head()
	t.mu.Lock()
	t.tracker.Forwarded(kind.Owner{}, head, head.Seq)
	t.mu.Unlock()
	for {
		moved := t.moved.Next()
		t.mu.Lock()
		done, behind := t.tracker.Confirmed(kind.Owner{}).Seq >= head.Seq, t.tracker.Pending(kind.Owner{})
		t.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			var names []string
			for _, zone := range behind {
				names = append(names, zone.Zone)
			}
			return fmt.Errorf("not settled: zones %s: %w", strings.Join(names, ", "), ctx.Err())
		}
	}
}

// Sweep removes what belonged to zones that are no more, until ctx ends. Of the instances the leader runs it.
func (g *Global) Sweep(ctx context.Context) {
	for {
		zoned := g.logs.zoned.Next()
		for _, zone := range g.logs.orphans() {
			if err := g.sweep(ctx, zone); err != nil && ctx.Err() == nil {
				g.Log.Warn("what belonged to a zone that was deleted can't be removed yet", "zone", zone, "error", err)
			}
		}
		select {
		case <-zoned:
		case <-time.After(sweepAgain):
		case <-ctx.Done():
			return
		}
	}
}

// sweepAgain is when it is looked for leftovers though no zone has gone: what came in at the very moment, or
// could not be removed.
const sweepAgain = time.Minute

// orphans are the zones that own something and of which there is no Zone.
func (l *logs) orphans() []string {
	owners := map[kind.Owner]bool{}
	for _, k := range l.kinds {
		k.mu.Lock()
		for owner := range k.held {
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
		return err // it has come back
	}
	owner, count := kind.Owner{Zone: zone}, 0
	for _, k := range g.logs.kinds {
		for _, row := range k.of(owner) {
			r := admission.Received{Kind: k.kind, Mesh: row.key.Mesh, Name: row.key.Name, Owner: owner}
			if err := g.Writer.RemoveReceived(ctx, r); err != nil {
				return err
			}
			count++
		}
	}
	if count > 0 {
		g.Log.Info("what belonged to a zone that was deleted is removed", "zone", zone, "resources", count)
	}
	return nil
}
