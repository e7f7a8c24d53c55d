package dpserver

import (
	"context"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"weft/internal/admission"
	"weft/internal/graph"
	"weft/internal/pki"
	"weft/internal/wire"
	"weft/kind"
	"weft/resource"
)

const (
	maxSubscriptions = 10 // the last ones are kept
	maxRefusals      = 20
	// insightWriters write at the same time, so that the store can commit what is of one moment together.
	insightWriters = 32
)

// change is one thing that happened to a proxy's connection.
type change func(*kind.DataplaneInsight)

// insights stores what happens, in the background: no stream waits for it, and what happens to one proxy
// while a write is under way is one further write.
type insights struct {
	writer *admission.Writer
	hub    Hub
	log    *slog.Logger
	wake   chan struct{}

	mu      sync.Mutex
	pending map[graph.ProxyKey][]change
}

func newInsights(w *admission.Writer, hub Hub, log *slog.Logger) *insights {
	return &insights{writer: w, hub: hub, log: log, wake: make(chan struct{}, 1), pending: map[graph.ProxyKey][]change{}}
}

func (i *insights) note(key graph.ProxyKey, c change) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.pending[key] = append(i.pending[key], c)
	select {
	case i.wake <- struct{}{}:
	default: // run looks anyway
	}
}

// run writes until ctx ends, and then once more what is left.
func (i *insights) run(ctx context.Context) {
	for {
		select {
		case <-i.wake:
			i.write(ctx)
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			i.write(last)
			return
		}
	}
}

func (i *insights) write(ctx context.Context) {
	i.mu.Lock()
	pending := i.pending
	i.pending = map[graph.ProxyKey][]change{}
	i.mu.Unlock()
	var writers errgroup.Group
	writers.SetLimit(insightWriters)
	for key, changes := range pending {
		writers.Go(func() error {
			err := i.writeOne(ctx, key, changes)
			if err != nil && ctx.Err() == nil && resource.CodeOf(err) != resource.NotFound {
				i.log.Warn("storing what happened to a proxy failed", "proxy", key, "error", err)
			}
			return nil
		})
	}
	writers.Wait()
}

func (i *insights) writeOne(ctx context.Context, key graph.ProxyKey, changes []change) error {
	known, _ := i.hub.Insight(key)
	return admission.ModifyKnown(ctx, i.writer, known, key.InsightKind(), key.Mesh, key.Name, func(o *resource.Object[kind.DataplaneInsight]) bool {
		before := o.Spec
		o.Spec.Subscriptions = slices.Clone(o.Spec.Subscriptions)
		for _, c := range changes {
			c(&o.Spec)
		}
		return !reflect.DeepEqual(before, o.Spec)
	})
}

// longGone is when a proxy that ended its connection to an instance matters no more, whatever that
// machine's clock says.
const longGone = 5 * time.Minute

// LostReplicas says whether a proxy that was last at an instance which is gone has come to no other one, as far as
// this instance's table knows. The global control plane has none: the proxies that it hears of are the zones'.
func LostReplicas(state *graph.State, gone func(instance string) bool) bool {
	if state.Zone == "" {
		return false
	}
	for _, insights := range []graph.Rows[kind.DataplaneInsight]{state.Insights, state.ZoneIngressInsights, state.ZoneEgressInsights} {
		for insight := range insights.All(state.DB.Snapshot()) {
			if strayed(&insight.Spec, gone, now()) {
				return true
			}
		}
	}
	return false
}

func strayed(i *kind.DataplaneInsight, gone func(instance string) bool, now time.Time) bool {
	if len(i.Subscriptions) == 0 {
		return false
	}
	last := i.Subscriptions[len(i.Subscriptions)-1]
	return gone(last.ControlPlaneInstanceID) &&
		(last.DisconnectTime == nil || last.DisconnectTime.After(now.Add(-longGone)))
}

// connected begins a subscription. A proxy has one stream, so that those which are open still belong to
// streams of which nobody could tell that they ended.
func connected(id, instance string, version *kind.ProxyVersion, at time.Time) change {
	return func(i *kind.DataplaneInsight) {
		for n := range i.Subscriptions {
			if i.Subscriptions[n].DisconnectTime == nil {
				i.Subscriptions[n].DisconnectTime = &kind.Time{Time: at}
			}
		}
		i.Subscriptions = append(i.Subscriptions, kind.Subscription{
			ID: id, ControlPlaneInstanceID: instance, ConnectTime: kind.Time{Time: at}, Version: version,
		})
		if n := len(i.Subscriptions); n > maxSubscriptions {
			i.Subscriptions = i.Subscriptions[n-maxSubscriptions:]
		}
		i.NACKs = nil
	}
}

func disconnected(id string, at time.Time) change {
	return func(i *kind.DataplaneInsight) {
		for n := range i.Subscriptions {
			if s := &i.Subscriptions[n]; s.ID == id && s.DisconnectTime == nil {
				s.DisconnectTime = &kind.Time{Time: at}
			}
		}
	}
}

func refused(refusals []kind.NACK) change {
	return func(i *kind.DataplaneInsight) { i.NACKs = refusals[:min(len(refusals), maxRefusals)] }
}

// seen notes a certificate that a proxy's agent saw its Envoy have from SPIRE, or why there is none.
func seen(id *graph.Identity, c *wire.Certificate) change {
	return func(i *kind.DataplaneInsight) {
		i.CertificateProblem = c.Problem
		if c.Problem != "" {
			return
		}
		i.Certificate = &kind.Certificate{
			SpiffeID: id.SpiffeID, Serial: c.Serial, Issuer: id.MeshIdentity,
			NotBefore: kind.Time{Time: time.Unix(c.NotBeforeUnix, 0).UTC()}, Expiration: kind.Time{Time: time.Unix(c.NotAfterUnix, 0).UTC()},
		}
	}
}

func certified(leaf *graph.NextCertificate, issuer string, c *pki.Certificate) change {
	return func(i *kind.DataplaneInsight) {
		i.CertificateProblem = ""
		i.Certificate = &kind.Certificate{
			SpiffeID: leaf.SpiffeID, Further: leaf.Further, Serial: c.Serial, Issuer: issuer,
			NotBefore: kind.Time{Time: c.NotBefore}, Expiration: kind.Time{Time: c.NotAfter},
		}
	}
}
