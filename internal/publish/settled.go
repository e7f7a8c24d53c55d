package publish

import (
	"context"
	"errors"
	"slices"
	"time"

	"weft/internal/graph"
	"weft/internal/table"
	"weft/internal/xds"
	"weft/kind"
	"weft/resource"
)

// lookAgain is how soon the Hub looks again at proxies that are away, or that refuse what they are sent.
const lookAgain = time.Second

// WaitAcked returns once every proxy of a mesh that holds a valid certificate runs with what rows say that
// this hub has already published, whatever instance it is connected to, or ctx ends. It calls behind with
// those that it waits for here whenever they are others than before.
//
// A proxy that is away or refuses something runs with what it had, so that it counts for as long as its
// certificate is valid; one without a certificate counts for nothing, or, with everybody, while it is here.
func (h *Hub) WaitAcked(ctx context.Context, mesh string, everybody bool, rows []resource.Key, behind func([]graph.ProxyKey)) error {
	h.mu.Lock() // what is committed is published
	revision := h.catalog.Revision()
	h.mu.Unlock()
	asked := make(chan error, 1)
	go func() { asked <- h.outside.Replicas.WaitAcked(ctx, rows) }()
	var before []graph.ProxyKey
	for ctx.Err() == nil {
		bounded, cancel := context.WithTimeout(ctx, lookAgain)
		unsure, err := h.outside.Waiter.WaitAcked(bounded, revision, nil)
		missing := h.behind(mesh, revision, time.Now())
		if len(missing) == 0 && (!everybody || err == nil && unsure == 0) {
			cancel()
			return errors.Join(<-asked, ctx.Err())
		}
		if !slices.Equal(missing, before) {
			behind(missing)
			before = missing
		}
		<-bounded.Done()
		cancel()
	}
	return ctx.Err()
}

// behind are the proxies that hold a certificate and may run with what they had before a revision. Those that
// their mesh does not admit are refused by everybody anyway.
func (h *Hub) behind(mesh string, revision uint64, now time.Time) []graph.ProxyKey {
	r := h.reader()
	var missing []graph.ProxyKey
	look := func(key graph.ProxyKey, leaves *kind.DataplaneCertificates) {
		if leaves.Valid(now) && !h.runs(key, revision) && !h.elsewhere(r, key) && h.state.NotAdmittedReason(r, key) == "" && !slices.Contains(missing, key) {
			missing = append(missing, key)
		}
	}
	for _, row := range h.state.CertificatesByRoot.List(r, graph.MeshKey(mesh)) {
		look(graph.ProxyKey{Mesh: row.Mesh, Name: row.Name}, &row.Spec)
	}
	for row := range h.state.EgressCertificates.All(h.state.DB.Snapshot()) { // a ZoneEgress serves every mesh
		look(graph.ZoneEgressProxy(row.Name), &row.Spec)
	}
	return missing
}

// elsewhere says whether another instance has the stream of a proxy: that one is asked.
func (h *Hub) elsewhere(r *table.Reader, key graph.ProxyKey) bool {
	insight, ok := h.state.Insight(r, key)
	return ok && h.outside.Replicas.OtherInstance(insight.Spec.Subscriptions) != ""
}

// runs says whether a proxy is here and has everything up to a revision.
func (h *Hub) runs(key graph.ProxyKey, revision uint64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.proxies[key]
	if p == nil {
		return false
	}
	for s := range p.streams {
		if settled(s, revision) {
			return true
		}
	}
	return false
}

func settled(s *xds.Stream, revision uint64) bool {
	return s.InSync(revision) && len(s.NACKs()) == 0
}

// RunsOwn says whether a proxy runs with all that is its own, as it is now: its inbounds and their rules.
func (h *Hub) RunsOwn(key graph.ProxyKey) bool {
	_, runs := h.own(key)
	return runs
}

// AwaitOwn returns once [Hub.RunsOwn], or ctx ends.
func (h *Hub) AwaitOwn(ctx context.Context, key graph.ProxyKey) error {
	for {
		wait, runs := h.own(key)
		if runs {
			return nil
		}
		bounded, cancel := context.WithTimeout(ctx, lookAgain)
		if wait == nil || wait(bounded) != nil {
			<-bounded.Done()
		}
		cancel()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// own says whether a proxy runs with what is its own, and how to wait for it; nil where it has no stream, or has
// refused something of that.
func (h *Hub) own(key graph.ProxyKey) (wait func(context.Context) error, runs bool) {
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

// ofInbounds says whether a refusal may be of an inbound or its rules.
func ofInbounds(r xds.NACK) bool { return r.Type == xds.Listener || r.Type == xds.Extension }
