package push

import (
	"context"
	"errors"
	"slices"
	"time"

	"weft/internal/state"
	"weft/internal/table"
	"weft/internal/xds"
	"weft/kind"
	"weft/resource"
)

// recheckInterval is the time between checks of proxies that are disconnected or reject a resource.
const recheckInterval = time.Second

// WaitAcked returns once every proxy of a mesh that has a valid certificate applies the state of rows that this hub has
// published, whatever instance it is connected to, or ctx ends. It calls pending with the proxies that it waits for at
// this instance whenever they change.
//
// A proxy that is disconnected or rejects a resource applies its former configuration, so it counts as long as its
// certificate is valid. A proxy without a certificate counts only with everybody, while it is connected.
func (h *Hub) WaitAcked(ctx context.Context, mesh string, everybody bool, rows []resource.Key,
	pending func([]state.ProxyKey)) error {
	h.mu.Lock() // what is committed is published
	revision := h.catalog.Revision()
	h.mu.Unlock()
	waits := make(chan error, 1)
	go func() { waits <- h.callbacks.Replicas.WaitAcked(ctx, rows) }()
	var before []state.ProxyKey
	for ctx.Err() == nil {
		bounded, cancel := context.WithTimeout(ctx, recheckInterval)
		unsure, err := h.callbacks.Waiter.WaitAcked(bounded, revision, nil)
		missing := h.pendingProxies(mesh, revision, time.Now())
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
func (h *Hub) pendingProxies(mesh string, revision uint64, now time.Time) []state.ProxyKey {
	r := h.reader()
	var missing []state.ProxyKey
	look := func(key state.ProxyKey, certificates *kind.DataplaneCertificates) {
		if certificates.Valid(now) && !h.inSyncAt(key, revision) && !h.atOtherInstance(r, key) &&
			h.state.NotAdmittedReason(r, key) == "" && !slices.Contains(missing, key) {
			missing = append(missing, key)
		}
	}
	for _, row := range h.state.CertificatesByRoot.List(r, state.MeshKey(mesh)) {
		look(state.ProxyKey{Mesh: row.Mesh, Name: row.Name}, &row.Spec)
	}
	for row := range h.state.EgressCertificates.All(h.state.DB.Snapshot()) { // a ZoneEgress serves every mesh
		look(state.ZoneEgressProxy(row.Name), &row.Spec)
	}
	return missing
}

// atOtherInstance reports whether another instance has the stream of a proxy, and waits for it.
func (h *Hub) atOtherInstance(r *table.Reader, key state.ProxyKey) bool {
	insight, ok := h.state.Insight(r, key)
	return ok && h.callbacks.Replicas.OtherInstance(insight.Spec.Subscriptions) != ""
}

// inSyncAt reports whether a proxy is connected to this instance and has acked everything up to a revision.
func (h *Hub) inSyncAt(key state.ProxyKey, revision uint64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.proxies[key]
	if p == nil {
		return false
	}
	for s := range p.streams {
		if inSync(s, revision) {
			return true
		}
	}
	return false
}

func inSync(s *xds.Stream, revision uint64) bool {
	return s.InSync(revision) && len(s.NACKs()) == 0
}

// RunsOwn reports whether a proxy applies the present state of all its own resources: its inbounds and their rules.
func (h *Hub) RunsOwn(key state.ProxyKey) bool {
	_, inSyncAt := h.ownAcked(key)
	return inSyncAt
}

// AwaitOwn returns once [Hub.RunsOwn] is true, or ctx ends.
func (h *Hub) AwaitOwn(ctx context.Context, key state.ProxyKey) error {
	for {
		wait, inSyncAt := h.ownAcked(key)
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

// ownAcked reports whether a proxy applies its own resources, and returns a function that waits for it; nil where the
// proxy has no stream or has rejected one of them.
func (h *Hub) ownAcked(key state.ProxyKey) (wait func(context.Context) error, inSyncAt bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.proxies[key]
	if p == nil {
		return nil, false
	}
	for s := range p.streams {
		switch {
		case !s.InSync(p.revision):
			revision := p.revision
			return func(ctx context.Context) error { return s.WaitAcked(ctx, revision) }, false
		case !slices.ContainsFunc(s.NACKs(), ofInbounds):
			return nil, true
		}
	}
	return nil, false
}

// ofInbounds reports whether a NACK may be of an inbound or its rules.
func ofInbounds(r xds.NACK) bool { return r.Type == xds.Listener || r.Type == xds.Extension }
