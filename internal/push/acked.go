package push

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"weft/internal/replica"
	"weft/internal/state"
	"weft/internal/table"
	"weft/internal/wait"
	"weft/internal/xds"
	"weft/kind"
	"weft/resource"
)

// recheckInterval is the time between checks of proxies that are disconnected or reject a resource, and between reports
// of the pending ones.
const recheckInterval = time.Second

// localWait waits for those clients of a wait that this instance has, and for disconnected ones.
type localWait struct {
	*Acks
	clients  kind.AckClients
	revision uint64
	rows     []resource.Key
	report   func(kind.PendingAcks)
	forOther bool // another instance began the wait, and names disconnected proxies
}

// localWaits has the part of an instance in each wait. Waits of global control planes are in package join.
var localWaits = map[kind.AckWait]func(*localWait, context.Context) error{
	kind.CertifiedApply:  func(w *localWait, ctx context.Context) error { return w.applied(ctx, w.certified) },
	kind.ProxiesApply:    func(w *localWait, ctx context.Context) error { return w.applied(ctx, w.proxiesOfMesh) },
	kind.ConnectedApply:  func(w *localWait, ctx context.Context) error { return w.applied(ctx, w.connected) },
	kind.EndpointRemoved: (*localWait).endpointRemoved,
	kind.ProxyDrained:    (*localWait).proxyDrained,
	kind.IngressForwards: (*localWait).ingressForwards,
}

// applied returns once none of the selected proxies may apply a former state, or with [replica.ErrMoved] where one has
// moved to another instance before it was in sync at this one.
func (w *localWait) applied(ctx context.Context, selected func(now time.Time) []state.ProxyKey) error {
	seen := map[state.ProxyKey]bool{}
	var reported []state.ProxyKey
	for {
		bounded, cancel := context.WithTimeout(ctx, recheckInterval)
		_, _ = w.callbacks.Waiter.WaitAcked(bounded, w.streams(), w.revision, nil) // what they apply is read below
		pending := w.pendingOf(selected(time.Now()))
		if len(pending) == 0 {
			cancel()
			return w.checkMoved(seen)
		}
		for _, key := range pending {
			seen[key] = true
		}
		if !slices.Equal(pending, reported) {
			w.report(kind.NewPendingAcks(resourcesOf(w.reported(pending))))
			reported = pending
		}
		<-bounded.Done()
		cancel()
		if ctx.Err() != nil {
			return pendingError(pending, ctx.Err())
		}
	}
}

// reported returns the pending proxies that this instance reports. Every instance waits for a disconnected proxy, and
// the one that began the wait reports it.
func (w *localWait) reported(pending []state.ProxyKey) []state.ProxyKey {
	if !w.forOther {
		return pending
	}
	return slices.DeleteFunc(slices.Clone(pending), func(key state.ProxyKey) bool {
		return w.proxies.streamOf(key) == nil
	})
}

// pendingOf returns those of the proxies that may apply a former state and that no other instance waits for, sorted.
// Proxies that their mesh does not admit do not count, since every server denies them.
func (w *localWait) pendingOf(proxies []state.ProxyKey) []state.ProxyKey {
	r := w.reader()
	pending := slices.DeleteFunc(proxies, func(key state.ProxyKey) bool {
		return w.proxies.inSyncAt(key, w.revision) || w.atOtherInstance(key) ||
			w.state.Identity.NotAdmittedReason(r, key) != ""
	})
	slices.SortFunc(pending, compareProxies)
	return slices.Compact(pending)
}

// checkMoved returns [replica.ErrMoved] where a proxy that was pending is at another instance now, which may have
// responded before the proxy came to it.
func (w *localWait) checkMoved(seen map[state.ProxyKey]bool) error {
	for key := range seen {
		if w.atOtherInstance(key) {
			return replica.ErrMoved
		}
	}
	w.report(kind.PendingAcks{})
	return nil
}

// concerns reports whether a proxy is of the mesh of the wait, or serves every mesh.
func (w *localWait) concerns(key state.ProxyKey) bool {
	return w.clients.Mesh == "" || key.Mesh == "" || key.Mesh == w.clients.Mesh
}

// streams returns the open streams of the proxies that the wait concerns.
func (w *localWait) streams() []*xds.Stream { return w.proxies.openStreams(w.concerns) }

// certified returns the proxies with a valid certificate, connected or not.
func (w *localWait) certified(now time.Time) []state.ProxyKey {
	r := w.reader()
	return w.withCertificate(func(_ state.ProxyKey, c *kind.DataplaneCertificates) bool {
		return w.state.Tables.HoldsValid(r, c, now)
	})
}

// proxiesOfMesh returns the proxies with a valid certificate, and those that are connected.
func (w *localWait) proxiesOfMesh(now time.Time) []state.ProxyKey {
	return append(w.certified(now), w.proxies.connected(w.concerns)...)
}

// connected returns the proxies that are connected, and those with a valid certificate that were lately: their Envoys
// may still send requests.
func (w *localWait) connected(now time.Time) []state.ProxyKey {
	r := w.reader()
	lately := w.withCertificate(func(key state.ProxyKey, c *kind.DataplaneCertificates) bool {
		return w.state.Tables.HoldsValid(r, c, now) && w.wasConnected(r, key, now.Add(-Bound))
	})
	return append(lately, w.proxies.connected(w.concerns)...)
}

// wasConnected reports whether a proxy has been connected since a time, or has left without a word.
func (w *localWait) wasConnected(r *table.Reader, key state.ProxyKey, since time.Time) bool {
	insight, ok := w.state.Tables.Insight(r, key)
	if !ok || len(insight.Spec.Subscriptions) == 0 {
		return false
	}
	last := insight.Spec.Subscriptions[len(insight.Spec.Subscriptions)-1].DisconnectTime
	return last == nil || last.After(since)
}

// withCertificate returns the proxies of the mesh, and the ZoneEgresses, whose certificates are selected.
func (w *localWait) withCertificate(selects func(state.ProxyKey, *kind.DataplaneCertificates) bool) (
	keys []state.ProxyKey) {
	add := func(key state.ProxyKey, row *resource.Object[kind.DataplaneCertificates]) {
		if selects(key, &row.Spec) {
			keys = append(keys, key)
		}
	}
	for _, row := range w.certificates() {
		add(state.ProxyKey{Mesh: row.Mesh, Name: row.Name}, row)
	}
	// A ZoneEgress serves every mesh.
	for row := range w.state.Tables.EgressCertificates.All(w.state.Tables.DB.Snapshot()) {
		add(state.ZoneEgressProxy(row.Name), row)
	}
	return keys
}

// certificates returns the certificates of the Dataplanes of the mesh, or of all meshes.
func (w *localWait) certificates() []*resource.Object[kind.DataplaneCertificates] {
	if w.clients.Mesh != "" {
		return w.state.Tables.CertificatesByRoot.List(w.reader(), state.MeshKey(w.clients.Mesh))
	}
	return slices.Collect(w.state.Tables.Certificates.All(w.state.Tables.DB.Snapshot()))
}

// endpointRemoved waits for the streams of this instance. A client whose stream ends, or that rejects a resource that
// concerns the rows, may still send requests by its former configuration. It counts until it has acked on another
// stream, at whatever instance, or ctx ends.
func (w *localWait) endpointRemoved(ctx context.Context) error {
	relevant := w.removals.relevantNACKs(w.rows)
	pending := w.unackedOf(w.proxies.connected(w.concerns), relevant)
	return w.whileReporting(ctx, pending, func(ctx context.Context) error {
		unsure, err := w.callbacks.Waiter.WaitAcked(ctx, w.streams(), w.revision, relevant)
		for err == nil && unsure > 0 {
			here := w.notMoved(pending())
			if len(here) == 0 {
				return movedIf(len(pending()) > 0)
			}
			err = wait.Sleep(ctx, recheckInterval)
		}
		return err
	})
}

// notMoved returns those of the proxies that are not connected to another instance.
func (w *localWait) notMoved(proxies []state.ProxyKey) []state.ProxyKey {
	return slices.DeleteFunc(proxies, w.atOtherInstance)
}

// proxyDrained waits for the streams of this instance. A stream that ends or rejects a resource does not count.
func (w *localWait) proxyDrained(ctx context.Context) error {
	none := func(xds.NACK) bool { return false }
	pending := w.unackedOf(w.proxies.connected(w.concerns), none)
	return w.whileReporting(ctx, pending, func(ctx context.Context) error {
		_, err := w.callbacks.Waiter.WaitAcked(ctx, w.streams(), w.revision, nil)
		return err
	})
}

// unackedOf returns a function that returns those of the proxies that have not acked the revision, or reject a relevant
// resource.
func (w *localWait) unackedOf(proxies []state.ProxyKey, relevant func(xds.NACK) bool) func() []state.ProxyKey {
	slices.SortFunc(proxies, compareProxies)
	return func() []state.ProxyKey {
		return slices.DeleteFunc(slices.Clone(proxies), func(key state.ProxyKey) bool {
			return w.proxies.ackedAt(key, w.revision, relevant)
		})
	}
}

// whileReporting waits, and meanwhile reports the pending proxies. The error names them.
func (w *localWait) whileReporting(ctx context.Context, pending func() []state.ProxyKey,
	await func(context.Context) error) error {
	done := make(chan error, 1)
	go func() { done <- await(ctx) }()
	recheck := time.NewTicker(recheckInterval)
	defer recheck.Stop()
	for {
		select {
		case err := <-done:
			if err != nil {
				return pendingError(pending(), err)
			}
			return nil
		case <-recheck.C:
			w.report(kind.NewPendingAcks(resourcesOf(pending())))
		}
	}
}

func resourcesOf(proxies []state.ProxyKey) []resource.Key {
	keys := make([]resource.Key, 0, len(proxies))
	for _, key := range proxies {
		keys = append(keys, key.Resource())
	}
	return keys
}

// pendingError returns the error of a wait that ended before some proxies had acked.
func pendingError(pending []state.ProxyKey, why error) error {
	if len(pending) == 0 {
		return why
	}
	return fmt.Errorf("no ack of %s: %w", kind.NewPendingAcks(resourcesOf(pending)), why)
}

func compareProxies(a, b state.ProxyKey) int {
	return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Mesh, b.Mesh), cmp.Compare(a.Name, b.Name))
}

// RunsOwn reports whether a proxy applies the present state of all its own resources: its inbounds and their rules.
func (a *Acks) RunsOwn(key state.ProxyKey) bool {
	_, inSyncAt := a.proxies.ownAcked(key)
	return inSyncAt
}

// AwaitOwn returns once [Acks.RunsOwn] is true, or ctx ends.
func (a *Acks) AwaitOwn(ctx context.Context, key state.ProxyKey) error {
	for {
		wait, inSyncAt := a.proxies.ownAcked(key)
		if inSyncAt {
			return nil
		}
		bounded, cancel := context.WithTimeout(ctx, recheckInterval)
		if wait == nil || wait(bounded) != nil {
			<-bounded.Done()
		}
		cancel()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}
