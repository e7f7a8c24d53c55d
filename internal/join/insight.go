package join

import (
	"cmp"
	"slices"
	"time"

	"github.com/google/uuid"

	"weft/internal/admission"
	"weft/internal/zonesync"
	"weft/kind"
	"weft/resource"
)

const (
	// grouped is how long what is known of a zone waits before it is stored, so that streams which come or go
	// together are one write; a connection that is back within it was never lost.
	grouped = time.Second
	// maxSubscriptions are kept, the last ones, and maxRefused resources are named.
	maxSubscriptions = 10
	maxRefused       = 100
)

// connection is what is known of a zone's streams to this instance.
type connection struct {
	streams int // that are open and on which the zone has said who it is
	current kind.ZoneSubscription
	lost    time.Time
	writing bool // somebody stores what changes
	changed bool
	done    bool // everything is stored that the zone has, so that what an operator confirmed is done
}

// met notes a stream of a zone that has said who it is.
func (g *Global) met(p *zonePeer, side *zonesync.Side) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := &p.insight
	if i.streams++; i.current.ID != "" {
		i.current.Version = releaseOf(side)
		return
	}
	i.current = kind.ZoneSubscription{
		ID: uuid.NewString(), ControlPlaneInstanceID: g.Instance, ConnectTime: kind.Time{Time: time.Now()}, Version: releaseOf(side),
	}
	g.Log.Info("a zone is connected", "zone", p.name, "release", side.Release)
	g.note(p)
}

func releaseOf(side *zonesync.Side) *kind.ZoneVersion {
	return &kind.ZoneVersion{ControlPlane: kind.ProgramVersion{Version: side.Release}}
}

// left notes that such a stream has ended.
func (g *Global) left(p *zonePeer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.insight.streams--; p.insight.streams == 0 {
		p.insight.lost = time.Now()
		g.note(p)
	}
}

// observe notes how far a stream is.
func (g *Global) observe(p *zonePeer, k *peerStream, c *conversation) {
	state := c.state()
	k.mu.Lock()
	differs := !slices.Equal(k.state.Rejected, state.Rejected) || !slices.Equal(k.state.Rejects, state.Rejects)
	k.state = state
	k.mu.Unlock()
	if differs {
		p.mu.Lock()
		g.note(p)
		p.mu.Unlock()
	}
}

// note has what is known of a zone stored soon. It is called with the zone's lock.
func (g *Global) note(p *zonePeer) {
	p.insight.changed = true
	if !p.insight.writing {
		p.insight.writing = true
		go g.write(p)
	}
}

// write stores what is known of a zone until it does not change any more.
func (g *Global) write(p *zonePeer) {
	for {
		select {
		case <-time.After(grouped):
		case <-g.ctx.Done():
			return
		}
		subscription, refused, done, ok := p.take(time.Now())
		if !ok {
			return
		}
		err := admission.Modify(g.ctx, g.Writer, kind.ZoneInsights, "", p.name, func(o *resource.Object[kind.ZoneInsight]) bool {
			o.Spec.Subscriptions = replaced(o.Spec.Subscriptions, subscription)
			o.Spec.Rejected = since(refused, o.Spec.Rejected)
			o.Spec.DoubtedDeletions = p.doubted()
			if done {
				o.Spec.Confirmed = nil
			}
			return true
		})
		if err != nil && resource.CodeOf(err) != resource.NotFound && g.ctx.Err() == nil {
			g.Log.Warn("what is known of a zone is not stored", "zone", p.name, "error", err)
		}
	}
}

// take answers what is to be stored, false where nothing is.
func (p *zonePeer) take(now time.Time) (_ kind.ZoneSubscription, _ []kind.RejectedItem, done, ok bool) {
	refused := p.refused(now)
	p.mu.Lock()
	defer p.mu.Unlock()
	i := &p.insight
	if !i.changed {
		i.writing = false
		return kind.ZoneSubscription{}, nil, false, false
	}
	i.changed = false
	done, i.done = i.done, false
	subscription := i.current
	if i.streams == 0 {
		subscription.DisconnectTime = &kind.Time{Time: i.lost}
		i.current = kind.ZoneSubscription{}
	}
	return subscription, refused, done, true
}

// doubted are the deletions that wait, by kind.
func (p *zonePeer) doubted() []kind.DoubtedDeletion {
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

// refused are the resources that one side did not take from the other, by kind and name.
func (p *zonePeer) refused(now time.Time) []kind.RejectedItem {
	var all []kind.RejectedItem
	for name, k := range p.kinds {
		k.mu.Lock()
		for _, r := range slices.Concat(k.state.Rejected, k.state.Rejects) {
			all = append(all, kind.RejectedItem{Kind: name, Mesh: r.Key.Mesh, Name: r.Key.Name, Reason: r.Reason, Time: kind.Time{Time: now}})
		}
		k.mu.Unlock()
	}
	slices.SortFunc(all, func(a, b kind.RejectedItem) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Mesh, b.Mesh), cmp.Compare(a.Name, b.Name))
	})
	return all[:min(len(all), maxRefused)]
}

// since keeps the time of a refusal that was known.
func since(refused, known []kind.RejectedItem) []kind.RejectedItem {
	for i := range refused {
		for _, k := range known {
			if k.Kind == refused[i].Kind && k.Mesh == refused[i].Mesh && k.Name == refused[i].Name && k.Reason == refused[i].Reason {
				refused[i].Time = k.Time
			}
		}
	}
	return refused
}

// replaced puts a subscription in the place of its earlier state, or last.
func replaced(all []kind.ZoneSubscription, one kind.ZoneSubscription) []kind.ZoneSubscription {
	if one.ID == "" {
		return all
	}
	if n := len(all); n > 0 && all[n-1].ID == one.ID {
		all = all[:n-1]
	}
	all = append(slices.Clone(all), one)
	return all[max(0, len(all)-maxSubscriptions):]
}

// Live answers how each kind of a zone stands with this instance, by its name; false where the zone is not
// connected to it.
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

// live answers how a stream stands now: a zone that takes nothing says nothing of it.
func (k *peerStream) live() (StreamState, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.current == nil {
		return StreamState{}, false
	}
	return k.state.now(), true
}
