package join

import (
	"context"
	"encoding/json"
	"time"

	"weft/kind"
	"weft/resource"
)

// Replicas are the further instances of a global control plane on the same store. A zone is at one of them.
type Replicas interface {
	// WaitAcked returns once every other instance has answered with [Global.Here], or ctx ends.
	WaitAcked(ctx context.Context, rows []resource.Key) error
	// Expired says whether an instance is live no more, and when it was heard of last.
	Expired(instance string) (last time.Time, ended bool)
	// Changed is closed when one has come or gone.
	Changed() <-chan struct{}
}

// link is a zone's last connection, to whichever instance.
type link struct {
	instance string
	open     bool
	complete bool // global has had all of the zone since it began
	store    string
	// confirmed: an operator said that what the zone has now takes the place of what it had.
	confirmed bool
}

// storeOf answers the fingerprint of a zone's store; empty: it is not known.
func (l *logs) storeOf(zone string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.links[zone].store
}

func (l *logs) confirmed(zone string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.links[zone].confirmed
}

// putLink takes what is known of a zone's connection, and says whether that is news.
func (l *logs) putLink(o *resource.Object[stored]) bool {
	var row struct{ Spec kind.ZoneInsight }
	if json.Unmarshal(o.Spec.body, &row) != nil {
		return false
	}
	now := link{store: row.Spec.Store, confirmed: row.Spec.Confirmed != nil}
	if n := len(row.Spec.Subscriptions); n > 0 {
		last := row.Spec.Subscriptions[n-1]
		now.instance, now.open, now.complete = last.ControlPlaneInstanceID, last.DisconnectTime == nil, last.CompleteTime != nil
	}
	was := l.links[o.Name]
	l.links[o.Name] = now
	return was != now
}

// linksNow answers the last connection of each zone that ever had one.
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

// elsewhere says whether a zone is connected to another instance that lives.
func (g *Global) elsewhere(l link) bool {
	if g.Replicas == nil || !l.open || l.instance == g.Instance {
		return false
	}
	_, ended := g.Replicas.Expired(l.instance)
	return !ended
}

// survey counts in the zones whose proxies run with what this instance told them, or nobody else counts. A zone
// that is at another instance is that one's to count, and what it has is in the store once it has said so there.
// It answers how long until a zone will have been away for too long; 0: none will. It is called with the lock.
func (g *Global) survey(now time.Time) (next time.Duration) {
	for zone, link := range g.logs.linksNow() {
		p := g.zones[zone]
		here := p != nil && p.open()
		away := !here && g.elsewhere(link)
		enabled, _ := g.logs.zoneEnabled(zone)
		switch {
		case away && g.counted[zone]:
			g.discount(zone)
		case !away && enabled && !g.counted[zone]:
			g.count(zone)
		}
		if away && link.complete {
			g.complete(zone)
		}
		if left := g.expires(zone, here || away, now); left > 0 && (next == 0 || left < next) {
			next = left
		}
	}
	return next
}

// expires takes the ingresses of a zone from all others once it has been away for as long as is set, counted from
// when this instance saw it first. It answers how long that will be; 0: it is not away, has expired, or never does.
func (g *Global) expires(zone string, connected bool, now time.Time) (left time.Duration) {
	if g.Expiry == 0 {
		return 0
	}
	since, known := g.away[zone]
	switch {
	case connected:
		delete(g.away, zone)
		g.logs.expire(zone, false)
		return 0
	case !known:
		since = now
		g.away[zone] = since
	}
	if left = g.Expiry - now.Sub(since); left > 0 {
		return left
	}
	// Nobody waits any more for what the zone itself would say.
	g.logs.kinds[kind.MeshZoneAddresses.Name].log.Complete(kind.Owner{Zone: zone})
	if g.logs.expire(zone, true) {
		g.Log.Warn("a zone has been away for too long: other zones use its ingresses no more", "zone", zone, "away", g.Expiry)
	}
	return 0
}

func (p *zonePeer) open() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.insight.streams > 0
}

// complete ends what waits for a zone in the logs that go on to others.
func (g *Global) complete(zone string) {
	for _, k := range g.logs.kinds {
		if k.kind.Describe().Sync.Has(resource.ZoneToZones) {
			k.log.Complete(kind.Owner{Zone: zone})
			k.changed.Send()
		}
	}
}

// changed is closed when another instance has come or gone; never where there can be none.
func (g *Global) changed() <-chan struct{} {
	if g.Replicas == nil {
		return nil
	}
	return g.Replicas.Changed()
}

// askSiblings returns once the zones that are at other instances run with what rows say.
func (g *Global) askSiblings(ctx context.Context, rows []resource.Key) error {
	if g.Replicas == nil {
		return nil
	}
	return g.Replicas.WaitAcked(ctx, rows)
}
