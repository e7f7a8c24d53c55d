package join

import (
	"cmp"
	"slices"
	"time"

	"github.com/google/uuid"

	"weft/internal/admission"
	"weft/internal/wait"
	"weft/internal/zonesync"
	"weft/kind"
	"weft/resource"
)

const (
	// writeInterval is the time in which changes of a zone's insight are collected for one write. A connection that
	// returns within it counts as uninterrupted.
	writeInterval = time.Second
	// maxSubscriptions is the number of kept subscriptions, maxRejectedItems that of kept rejected resources.
	maxSubscriptions = 10
	maxRejectedItems = 100
)

// connection is the state of a zone's streams to this instance.
type connection struct {
	streams int // open streams whose hello was received
	current kind.ZoneSubscription
	lost    time.Time
	writing bool // a goroutine stores the changes
	changed bool
	used    time.Time // of the last confirmation by an operator that has taken effect
}

// recordConnected counts a stream of a zone whose hello was received.
func (g *Global) recordConnected(p *zonePeer, side *zonesync.Side) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := &p.insight
	if i.streams++; i.current.ID != "" {
		i.current.Version = releaseOf(side)
		return
	}
	i.current = kind.ZoneSubscription{
		ID: uuid.NewString(), ControlPlaneInstanceID: g.Instance, ConnectTime: kind.Time{Time: time.Now()},
		Version: releaseOf(side),
	}
	g.Log.Info("a zone is connected", "zone", p.name, "release", side.Release)
	g.storeSoon(p)
}

func releaseOf(side *zonesync.Side) *kind.ZoneVersion {
	return &kind.ZoneVersion{ControlPlane: kind.ProgramVersion{Version: side.Release}}
}

// recordDisconnected removes such a stream.
func (g *Global) recordDisconnected(p *zonePeer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.insight.streams--; p.insight.streams == 0 {
		p.insight.lost = time.Now()
		g.storeSoon(p)
	}
}

// recordState records the state of a stream.
func (g *Global) recordState(p *zonePeer, k *peerStream, c *conversation) {
	state := c.state()
	k.mu.Lock()
	differs := !slices.Equal(k.state.Rejected, state.Rejected) || !slices.Equal(k.state.Rejects, state.Rejects)
	k.state = state
	k.mu.Unlock()
	if differs {
		p.mu.Lock()
		g.storeSoon(p)
		p.mu.Unlock()
	}
}

// storeSoon stores the insight of a zone after the write interval. The caller holds the zone's lock.
func (g *Global) storeSoon(p *zonePeer) {
	p.insight.changed = true
	if !p.insight.writing {
		p.insight.writing = true
		go g.write(p)
	}
}

// write stores the insight of a zone until it no longer changes.
func (g *Global) write(p *zonePeer) {
	for {
		if wait.Sleep(g.ctx, writeInterval) != nil {
			return
		}
		subscription, rejected, used, ok := p.takeSnapshot(time.Now())
		if !ok {
			return
		}
		err := admission.Modify(g.ctx, g.Writer, kind.ZoneInsights, "", p.name,
			func(o *resource.Object[kind.ZoneInsight]) bool {
				o.Spec.Subscriptions = replaceSubscription(o.Spec.Subscriptions, subscription)
				o.Spec.Rejected = keepTimes(rejected, o.Spec.Rejected)
				o.Spec.DoubtedDeletions = p.doubtedDeletions()
				if o.Spec.Confirmed != nil && o.Spec.Confirmed.Equal(used) {
					o.Spec.Confirmed = nil
				}
				return true
			})
		if err != nil && resource.CodeOf(err) != resource.NotFound && g.ctx.Err() == nil {
			g.Log.Warn("storing the insight of a zone failed", "zone", p.name, "error", err)
		}
	}
}

// takeSnapshot returns the state to store; ok is false if nothing has changed.
func (p *zonePeer) takeSnapshot(now time.Time) (_ kind.ZoneSubscription, _ []kind.RejectedItem, used time.Time,
	ok bool) {
	rejected := p.rejected(now)
	p.mu.Lock()
	defer p.mu.Unlock()
	i := &p.insight
	if !i.changed {
		i.writing = false
		return kind.ZoneSubscription{}, nil, time.Time{}, false
	}
	i.changed = false
	subscription := i.current
	if i.streams == 0 {
		subscription.DisconnectTime = &kind.Time{Time: i.lost}
		i.current = kind.ZoneSubscription{}
	}
	return subscription, rejected, i.used, true
}

// doubtedDeletions returns the deletions that wait, by kind.
func (p *zonePeer) doubtedDeletions() []kind.DoubtedDeletion {
	var all []kind.DoubtedDeletion
	for _, k := range p.kinds {
		k.mu.Lock()
		if k.doubted != nil {
			all = append(all, *k.doubted)
		}
		k.mu.Unlock()
	}
	slices.SortFunc(all, func(a, b kind.DoubtedDeletion) int { return cmp.Compare(a.Kind, b.Kind) })
	return all
}

// rejected returns the resources that either side has rejected, by kind and name.
func (p *zonePeer) rejected(now time.Time) []kind.RejectedItem {
	var all []kind.RejectedItem
	for name, k := range p.kinds {
		k.mu.Lock()
		for _, r := range slices.Concat(k.state.Rejected, k.state.Rejects) {
			all = append(all, kind.RejectedItem{Kind: name, Mesh: r.Key.Mesh, Name: r.Key.Name, Reason: r.Reason,
				Time: kind.Time{Time: now}})
		}
		k.mu.Unlock()
	}
	slices.SortFunc(all, func(a, b kind.RejectedItem) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Mesh, b.Mesh), cmp.Compare(a.Name, b.Name))
	})
	return all[:min(len(all), maxRejectedItems)]
}

// keepTimes keeps the times of rejections that were known.
func keepTimes(rejected, known []kind.RejectedItem) []kind.RejectedItem {
	for i := range rejected {
		for _, k := range known {
			if k.Kind == rejected[i].Kind && k.Mesh == rejected[i].Mesh && k.Name == rejected[i].Name &&
				k.Reason == rejected[i].Reason {
				rejected[i].Time = k.Time
			}
		}
	}
	return rejected
}

// replaceSubscription replaces the earlier state of a subscription, or appends it.
func replaceSubscription(all []kind.ZoneSubscription, one kind.ZoneSubscription) []kind.ZoneSubscription {
	if one.ID == "" {
		return all
	}
	if n := len(all); n > 0 && all[n-1].ID == one.ID {
		all = all[:n-1]
	}
	all = append(slices.Clone(all), one)
	return all[max(0, len(all)-maxSubscriptions):]
}

// Live returns the state of each kind of a zone at this instance, by its name; false if the zone is not connected to
// it.
func (g *Global) Live(zone string) (map[string]StreamState, bool) {
	g.mu.Lock()
	p := g.zones[zone]
	g.mu.Unlock()
	if p == nil {
		return nil, false
	}
	states := map[string]StreamState{}
	for name, k := range p.kinds {
		if state, open := k.live(); open {
			states[name] = state
		}
	}
	return states, len(states) > 0
}

// live returns the state of a stream now. A zone that stores nothing sends no acks.
func (k *peerStream) live() (StreamState, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.current == nil {
		return StreamState{}, false
	}
	return k.state.now(), true
}
