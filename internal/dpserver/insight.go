package dpserver

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"weft/internal/admission"
	"weft/internal/graph"
	"weft/internal/identity"
	"weft/internal/pki"
	"weft/internal/state"
	"weft/internal/wait"
	"weft/internal/wire"
	"weft/kind"
	"weft/resource"
)

const (
	maxSubscriptions = 10 // the newest ones are kept
	maxNACKs         = 20
	// insightWriters is the number of concurrent writes, which the store can commit together.
	insightWriters = 32
	// insightPeriod is the period of writes. An event is stored after one to two periods, in one write with the others
	// of its proxy: a proxy connects, gets its certificate, and its Envoy rejects a resource.
	insightPeriod = 500 * time.Millisecond
	// insightRetry is the pause before failed writes are repeated.
	insightRetry = 5 * time.Second
	// maxPendingChanges bounds the connections and disconnections of a proxy that wait for the store. The oldest ones
	// are dropped: newer connections replace what they say.
	maxPendingChanges = 1000
)

// insightChange is one event of a proxy's connection.
type insightChange struct {
	field insightField
	apply func(*kind.DataplaneInsight)
}

// insightField is the part of an insight that an event changes. A newer event of each part but the subscriptions
// replaces an older one.
type insightField int

const (
	changesSubscriptions insightField = iota
	changesNACKs
	changesCertificate
	changesCertificateProblem
)

// appendChanges returns the waiting events of a proxy with further ones, within their bound.
func appendChanges(waiting []insightChange, further ...insightChange) []insightChange {
	for _, c := range further {
		replaced := func(w insightChange) bool { return w.field == c.field }
		if c.field != changesSubscriptions {
			waiting = slices.DeleteFunc(waiting, replaced)
		} else if len(waiting) >= maxPendingChanges {
			oldest := slices.IndexFunc(waiting, replaced)
			waiting = slices.Delete(waiting, oldest, oldest+1)
		}
		waiting = append(waiting, c)
	}
	return waiting
}

// insights stores events in the background, so that no stream waits for a write. Events of a proxy during a write of
// its row are stored by one further write. A failed write is repeated until the row is stored or its proxy is gone: an
// event that is dropped would be missing for as long as the proxy stays connected.
type insights struct {
	writer *admission.Writer
	rows   Rows
	log    *slog.Logger
	wake   wait.Signal

	mu      sync.Mutex
	fresh   map[state.ProxyKey][]insightChange // of this period
	pending map[state.ProxyKey][]insightChange // which the next period stores
	failed  map[state.ProxyKey][]insightChange // of proxies that are in none of the others
}

func newInsights(w *admission.Writer, rows Rows, log *slog.Logger) *insights {
	return &insights{writer: w, rows: rows, log: log, wake: wait.NewSignal(),
		fresh: map[state.ProxyKey][]insightChange{}, pending: map[state.ProxyKey][]insightChange{},
		failed: map[state.ProxyKey][]insightChange{}}
}

func (i *insights) noteChange(key state.ProxyKey, c insightChange) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, waiting := range []map[state.ProxyKey][]insightChange{i.failed, i.pending} {
		if former, ok := waiting[key]; ok {
			waiting[key] = appendChanges(former, c)
			return
		}
	}
	i.fresh[key] = appendChanges(i.fresh[key], c)
	i.wake.Send()
}

// run writes until ctx ends, and then writes the remaining events.
func (i *insights) run(ctx context.Context) {
	var due, retry <-chan time.Time
	for {
		select {
		case <-i.wake:
			if due == nil {
				due = time.After(insightPeriod)
			}
			continue
		case <-due:
			due = nil
		case <-retry:
			i.resumeFailed()
			retry = nil
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			i.resumeFailed()
			i.write(last)
			i.write(last) // those of the last period
			return
		}
		if i.write(ctx) {
			due = cmp.Or(due, time.After(insightPeriod))
		}
		if retry == nil && i.hasFailed() {
			retry = time.After(insightRetry)
		}
	}
}

// resumeFailed has the next write repeat those that have failed.
func (i *insights) resumeFailed() {
	i.mu.Lock()
	defer i.mu.Unlock()
	maps.Copy(i.pending, i.failed)
	clear(i.failed)
}

func (i *insights) hasFailed() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.failed) > 0
}

// write stores the events of the period before the last one, and reports whether there are events of the last one.
func (i *insights) write(ctx context.Context) (more bool) {
	i.mu.Lock()
	pending := i.pending
	i.pending, i.fresh = i.fresh, map[state.ProxyKey][]insightChange{}
	more = len(i.pending) > 0
	i.mu.Unlock()
	keys := make(chan state.ProxyKey)
	var writers sync.WaitGroup
	for range min(insightWriters, len(pending)) {
		writers.Go(func() {
			for key := range keys {
				err := i.writeOne(ctx, key, pending[key])
				if err != nil && ctx.Err() == nil && resource.CodeOf(err) != resource.NotFound {
					i.keepFailed(key, pending[key], err)
				}
			}
		})
	}
	for key := range pending {
		keys <- key
	}
	close(keys)
	writers.Wait()
	return more
}

// keepFailed keeps events whose write has failed, before those that came meanwhile. Only the first failure of several
// is logged.
func (i *insights) keepFailed(key state.ProxyKey, changes []insightChange, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.failed) == 0 {
		i.log.Warn("storing what happened to a proxy failed, and is repeated, also for others", "proxy", key,
			"error", err)
	}
	i.failed[key] = appendChanges(appendChanges(changes, i.pending[key]...), i.fresh[key]...)
	delete(i.pending, key)
	delete(i.fresh, key)
}

func (i *insights) writeOne(ctx context.Context, key state.ProxyKey, changes []insightChange) error {
	known, _ := i.rows.Insight(key)
	return admission.ModifyKnown(ctx, i.writer, known, key.InsightKind(), key.Mesh, key.Name,
		func(o *resource.Object[kind.DataplaneInsight]) bool {
			before := o.Spec
			o.Spec.Subscriptions = slices.Clone(o.Spec.Subscriptions)
			for _, c := range changes {
				c.apply(&o.Spec)
			}
			return !reflect.DeepEqual(before, o.Spec)
		})
}

// renewInsights stores the subscriptions and NACKs of open streams again, where the insight was removed: that of a
// Dataplane that is deleted and written again while its Envoy stays connected. The write of a proxy that does not exist
// does nothing; one that is written later is renewed then.
func (s *Server) renewInsights(put []resource.Any, removed []resource.Key) {
	for _, key := range removed {
		if proxy, ok := state.ProxyOf(key); ok && key == proxy.InsightRow() {
			s.renewInsight(proxy)
		}
	}
	for _, o := range put {
		if proxy, ok := state.ProxyOf(o.Key()); ok && o.Key() == proxy.Resource() {
			s.renewInsight(proxy)
		}
	}
}

func (s *Server) renewInsight(key state.ProxyKey) {
	p := s.peerOf(key)
	if p == nil {
		return
	}
	isOwn := func(s kind.Subscription) bool { return s.ID == p.id }
	if insight, ok := s.Rows.Insight(key); ok && slices.ContainsFunc(insight.Spec.Subscriptions, isOwn) {
		return
	}
	p.noteConnected()
	if nacks, exceptions := p.noted(); len(nacks)+len(exceptions) > 0 {
		s.insights.noteChange(key, nacked(nacks, exceptions))
	}
}

// lostConnectionLife is the time after which a closed connection to a lost instance no longer matters. It allows for
// the clock of that machine.
const lostConnectionLife = 5 * time.Minute

// LostReplicas returns whether a proxy was last connected to an instance that is gone, and is connected to no other
// one, according to this instance's table. It is false on the global control plane, where all proxies belong to zones.
func LostReplicas(g *graph.State, gone func(instance string) bool) bool {
	if g.Tables.Zone == "" {
		return false
	}
	for _, insights := range []state.Rows[kind.DataplaneInsight]{g.Tables.Insights, g.Tables.ZoneIngressInsights,
		g.Tables.ZoneEgressInsights} {
		for insight := range insights.All(g.Tables.DB.Snapshot()) {
			if isLost(&insight.Spec, gone, now()) {
				return true
			}
		}
	}
	return false
}

func isLost(i *kind.DataplaneInsight, gone func(instance string) bool, now time.Time) bool {
	if len(i.Subscriptions) == 0 {
		return false
	}
	last := i.Subscriptions[len(i.Subscriptions)-1]
	return gone(last.ControlPlaneInstanceID) &&
		(last.DisconnectTime == nil || last.DisconnectTime.After(now.Add(-lostConnectionLife)))
}

// connected adds a subscription, unless a write that failed has stored it. A proxy has one stream, so it ends the open
// subscriptions, whose streams ended unnoticed.
func connected(id, instance string, version *kind.ProxyVersion, at time.Time) insightChange {
	return insightChange{changesSubscriptions, func(i *kind.DataplaneInsight) {
		if slices.ContainsFunc(i.Subscriptions, func(s kind.Subscription) bool { return s.ID == id }) {
			return
		}
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
	}}
}

func disconnected(id string, at time.Time) insightChange {
	return insightChange{changesSubscriptions, func(i *kind.DataplaneInsight) {
		for n := range i.Subscriptions {
			if s := &i.Subscriptions[n]; s.ID == id && s.DisconnectTime == nil {
				s.DisconnectTime = &kind.Time{Time: at}
			}
		}
	}}
}

func nacked(nacks []kind.NACK, exceptions []kind.Exception) insightChange {
	return insightChange{changesNACKs, func(i *kind.DataplaneInsight) { i.NACKs, i.Exceptions = nacks, exceptions }}
}

// certifiedBySPIRE records the certificate that an Envoy got from SPIRE, as its agent reports it, or the reason why it
// has none.
func certifiedBySPIRE(id *identity.Identity, c *wire.Certificate) insightChange {
	if c.Problem != "" {
		return insightChange{changesCertificateProblem, func(i *kind.DataplaneInsight) {
			i.CertificateProblem = c.Problem
		}}
	}
	return insightChange{changesCertificate, func(i *kind.DataplaneInsight) {
		i.CertificateProblem = ""
		i.Certificate = &kind.Certificate{
			SpiffeID: id.SpiffeID, Serial: c.Serial, Issuer: id.MeshIdentity,
			NotBefore:  kind.Time{Time: time.Unix(c.NotBeforeUnix, 0).UTC()},
			Expiration: kind.Time{Time: time.Unix(c.NotAfterUnix, 0).UTC()},
		}
	}}
}

func certified(next *identity.NextCertificate, issuer string, c *pki.Certificate) insightChange {
	return insightChange{changesCertificate, func(i *kind.DataplaneInsight) {
		i.CertificateProblem = ""
		i.Certificate = &kind.Certificate{
			SpiffeID: next.SpiffeID, Further: next.Further, Serial: c.Serial, Issuer: issuer,
			NotBefore: kind.Time{Time: c.NotBefore}, Expiration: kind.Time{Time: c.NotAfter},
		}
	}}
}
