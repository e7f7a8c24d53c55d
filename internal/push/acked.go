package push

import (
	"context"
	"errors"
	"slices"
	"time"

	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// recheckInterval is the time between checks of proxies that are disconnected or reject a resource.
const recheckInterval = time.Second

// WaitAcked returns once every proxy of a mesh that has a valid certificate applies the state of rows that this
// instance has published, whatever instance it is connected to, or ctx ends. It calls pending with the proxies that it
// waits for at this instance whenever they change.
//
// A proxy that is disconnected or rejects a resource applies its former configuration, so it counts as long as its
// certificate is valid. A proxy without a certificate counts only with everybody, while it is connected.
func (a *Acks) WaitAcked(ctx context.Context, mesh string, everybody bool, rows []resource.Key,
	pending func([]state.ProxyKey)) error {
	revision := a.revision()
	waits := make(chan error, 1)
	go func() { waits <- a.callbacks.Replicas.WaitAcked(ctx, rows) }()
	var before []state.ProxyKey
	for ctx.Err() == nil {
		bounded, cancel := context.WithTimeout(ctx, recheckInterval)
		unsure, err := a.callbacks.Waiter.WaitAcked(bounded, revision, nil)
		missing := a.pendingProxies(mesh, revision, time.Now())
		if len(missing) == 0 && (!everybody || err == nil && unsure == 0) {
			cancel()
			return errors.Join(<-waits, ctx.Err())
		}
		if !slices.Equal(missing, before) {
			pending(missing)
			before = missing
		}
		<-bounded.Done()
		cancel()
	}
	return ctx.Err()
}

// pendingProxies returns the proxies that have a valid certificate and may apply the configuration before a revision.
// Proxies that their mesh does not admit do not count, since every server denies them.
func (a *Acks) pendingProxies(mesh string, revision uint64, now time.Time) []state.ProxyKey {
	r := a.reader()
	var missing []state.ProxyKey
	look := func(key state.ProxyKey, certificates *kind.DataplaneCertificates) {
		if certificates.Valid(now) && !a.proxies.inSyncAt(key, revision) && !a.atOtherInstance(r, key) &&
			a.state.Identity.NotAdmittedReason(r, key) == "" && !slices.Contains(missing, key) {
			missing = append(missing, key)
		}
	}
	for _, row := range a.state.Tables.CertificatesByRoot.List(r, state.MeshKey(mesh)) {
		look(state.ProxyKey{Mesh: row.Mesh, Name: row.Name}, &row.Spec)
	}
	// A ZoneEgress serves every mesh.
	for row := range a.state.Tables.EgressCertificates.All(a.state.Tables.DB.Snapshot()) {
		look(state.ZoneEgressProxy(row.Name), &row.Spec)
	}
	return missing
}

// atOtherInstance reports whether another instance has the stream of a proxy, and waits for it.
func (a *Acks) atOtherInstance(r *table.Reader, key state.ProxyKey) bool {
	insight, ok := a.state.Tables.Insight(r, key)
	return ok && a.callbacks.Replicas.OtherInstance(insight.Spec.Subscriptions) != ""
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
