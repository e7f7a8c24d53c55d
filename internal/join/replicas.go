package join

import (
	"context"
	"encoding/json"
	"time"

	"weft/kind"
	"weft/resource"
)

// Replicas are the other instances of a global control plane with the same store. A zone is connected to one of them.
type Replicas interface {
	// WaitAcked returns once [Global.Here] has returned at every other instance, or ctx ends. The error names
	// the zones.
	WaitAcked(ctx context.Context, clients kind.AckClients, rows []resource.Key,
		pending func(kind.PendingAcks)) (waited bool, err error)
	// HasExpired returns whether the lease of an instance has expired, and when the instance was last live.
	HasExpired(instance string) (last time.Time, ended bool)
	// HasRenewed returns whether an instance has renewed its lease since this one started.
	HasRenewed(instance string) bool
	// NextChange is closed when an instance has joined, has renewed its lease, or left.
	NextChange() <-chan struct{}
}

// link is a zone's last connection to any instance.
type link struct {
	instance string
	open     bool
	complete bool // global has stored all resources of the zone since the connection began
	store    string
	// confirmed is the time at which an operator confirmed that the zone's present resources replace its former ones;
	// zero if no confirmation waits for them.
	confirmed time.Time
}

// storeOf returns the fingerprint of a zone's store; empty if it is not known.
func (l *logs) storeOf(zone string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.links[zone].store
}

func (l *logs) confirmed(zone string) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.links[zone].confirmed
}

// putLink sets the connection of a zone, and returns whether it has changed.
func (l *logs) putLink(o *resource.Object[stored]) bool {
	var row struct{ Spec kind.ZoneInsight }
	if json.Unmarshal(o.Spec.body, &row) != nil {
		return false
	}
	now := link{store: row.Spec.Store}
	if row.Spec.Confirmed != nil {
		now.confirmed = row.Spec.Confirmed.UTC()
	}
	if n := len(row.Spec.Subscriptions); n > 0 {
		last := row.Spec.Subscriptions[n-1]
		now.instance, now.open, now.complete = last.ControlPlaneInstanceID, last.DisconnectTime == nil,
			last.CompleteTime != nil
	}
	was := l.links[o.Name]
	l.links[o.Name] = now
	return was != now
}

// linksNow returns the last connection of each zone that has ever connected.
func (l *logs) linksNow() map[string]link {
	l.mu.Lock()
	defer l.mu.Unlock()
	links := map[string]link{}
	for zone, link := range l.links {
		if link.instance != "" {
			links[zone] = link
		}
	}
	return links
}

// joinedZones returns the zones that have ever connected. The store of such a zone is recorded before any resource of
// it, the connection only some time later.
func (l *logs) joinedZones() (zones []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for zone, link := range l.links {
		if link.store != "" || link.instance != "" {
			zones = append(zones, zone)
		}
	}
	return zones
}

// atOtherReplica returns whether a zone is connected to another live instance.
func (g *Global) atOtherReplica(l link) bool {
	if g.Replicas == nil || !l.open || l.instance == g.Instance {
		return false
	}
	_, ended := g.Replicas.HasExpired(l.instance)
	return !ended
}

// countZones adds zones to the trackers that this instance is responsible for: zones that are connected to it, or to no
// instance. A zone at another instance is that one's to track, and its resources are in the store once its link is
// complete. It returns the time until the next zone expires; 0: none will. The caller holds the lock.
func (g *Global) countZones(now time.Time) (next time.Duration) {
	for zone, link := range g.logs.linksNow() {
		p := g.zones[zone]
		here := p != nil && p.open()
		atOther := !here && g.atOtherReplica(link)
		enabled, _ := g.logs.zoneEnabled(zone)
		switch {
		case atOther && g.counted[zone]:
			g.removeFromTracker(zone)
		case !atOther && enabled && !g.counted[zone]:
			g.addToTracker(zone)
		}
		// An instance that ended before this one started may have completed the link in a later state of the store.
		if atOther && link.complete && g.Replicas.HasRenewed(link.instance) {
			g.completeLogs(zone)
		}
		if left := g.expireIngresses(zone, here || atOther, now); left > 0 && (next == 0 || left < next) {
			next = left
		}
	}
	return next
}

// expireIngresses removes the ingresses of a zone from all others once it has been disconnected for the time of Expiry
// since this instance first observed that. It returns the remaining time; 0: it is connected, has expired, or never
// does.
func (g *Global) expireIngresses(zone string, connected bool, now time.Time) (left time.Duration) {
	if g.Expiry == 0 {
		return 0
	}
	since, known := g.disconnected[zone]
	switch {
	case connected:
		delete(g.disconnected, zone)
		g.logs.expire(zone, false)
		return 0
	case !known:
		since = now
		g.disconnected[zone] = since
	}
	if left = g.Expiry - now.Sub(since); left > 0 {
		return left
	}
	// Nothing waits any longer for the items of the zone itself.
	g.logs.kinds[kind.MeshZoneAddresses.Name].log.Complete(kind.Owner{Zone: zone})
	if g.logs.expire(zone, true) {
		g.Log.Warn("a zone has been disconnected for too long: other zones no longer use its ingresses", "zone", zone,
			"disconnected", g.Expiry)
	}
	return 0
}

func (p *zonePeer) open() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.insight.streams > 0
}

// completeLogs ends the wait for a zone's items in the logs that are sent to other zones.
func (g *Global) completeLogs(zone string) {
	for _, k := range g.logs.kinds {
		if k.kind.Describe().Sync.Has(resource.ZoneToZones) {
			k.log.Complete(kind.Owner{Zone: zone})
			k.changed.Send()
		}
	}
}

// replicasChanged is closed when another instance has joined or left; nil if there can be none.
func (g *Global) replicasChanged() <-chan struct{} {
	if g.Replicas == nil {
		return nil
	}
	return g.Replicas.NextChange()
}

// awaitReplicas returns once the zones at other instances run with rows.
func (g *Global) awaitReplicas(ctx context.Context, rows []resource.Key) error {
	if g.Replicas == nil {
		return nil
	}
	_, err := g.Replicas.WaitAcked(ctx, kind.AckClients{Wait: kind.ZonesApply}, rows, nil)
	return err
}
