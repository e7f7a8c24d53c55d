package inspect

import (
	"iter"
	"slices"
	"strings"
	"time"

	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// Status is the status of a proxy or a service.
type Status string

const (
	// Online means: the proxy, or every proxy of the service, is connected and serves.
	Online Status = "online"
	// Offline means: the proxy is disconnected or an inbound does not serve; no proxy of the service serves. ("Adding
	// inbounds in runtime")
	Offline Status = "offline"
	// PartiallyDegraded means: some proxies of the service do not serve.
	PartiallyDegraded Status = "partially_degraded"
	// NotAvailable means: no proxy provides the service.
	NotAvailable Status = "not_available"
	// NotKnown means: the zone of the proxy is not connected to this global control plane.
	NotKnown Status = "unknown"
)

// Insight returns a copy of the insight of a proxy, empty for a proxy that never connected.
func (w *World) Insight(key state.ProxyKey) *kind.DataplaneInsight {
	r := table.Eval(w.Snapshot)
	insight := &kind.DataplaneInsight{}
	if stored, ok := w.State.Tables.Insight(r, key); ok {
		*insight = stored.Spec
		insight.Subscriptions = w.closed(insight.Subscriptions)
		insight.MTLS = mutualTLS(insight.Certificate)
	}
	if serving, ok := w.State.Tables.ListenerStatus(r, key); ok {
		insight.ReadyListeners = readyListeners(&serving.Spec)
	}
	insight.NotAdmitted = w.State.Identity.NotAdmittedReason(r, key)
	if id := w.State.Identity.Identity.Get(r, key); id != nil && id.Problem != "" {
		insight.CertificateProblem = id.Problem
	}
	if key.Type == kind.DataplaneProxy {
		insight.ServiceProblem = w.State.Services.ServiceProblem(r, key)
	}
	return insight
}

func mutualTLS(c *kind.Certificate) *kind.ProxyMTLS {
	if c == nil {
		return nil
	}
	return &kind.ProxyMTLS{
		CertificateExpirationTime: c.Expiration, LastCertificateRegeneration: c.NotBefore,
		IssuedBackend: c.Issuer, SupportedBackends: []string{c.Issuer},
	}
}

// readyListeners returns the addresses at which a proxy serves, such as "10.0.0.1:8080". It omits listeners that drain,
// and listeners whose application fails its probe.
func readyListeners(serving *kind.DataplaneListenerStatus) []string {
	if serving.Draining {
		return nil
	}
	var addresses []string
	for _, in := range serving.Inbounds {
		if !in.Unhealthy {
			addresses = append(addresses, in.Listener())
		}
	}
	for i := range serving.Ingresses {
		addresses = append(addresses, serving.Ingresses[i].Listener())
	}
	for i := range serving.Egresses {
		addresses = append(addresses, serving.Egresses[i].Listener())
	}
	return addresses
}

// closed returns the subscriptions, with those to an expired replica closed.
func (w *World) closed(subscriptions []kind.Subscription) []kind.Subscription {
	own := slices.Clone(subscriptions)
	for i := range own {
		s := &own[i]
		last, ended := w.ended(s.ControlPlaneInstanceID)
		s.DisconnectTime = disconnected(last, ended, s.ConnectTime, s.DisconnectTime)
	}
	return own
}

// disconnected returns the end of a connection to a replica that may have expired, or nil for an open one. A killed
// replica could not record it.
func disconnected(last time.Time, ended bool, connect kind.Time, written *kind.Time) *kind.Time {
	if written != nil || !ended {
		return written
	}
	return EndOfConnection(last, connect)
}

// EndOfConnection returns the end of a connection to a replica that has expired, by the last renewal of its lease.
func EndOfConnection(last time.Time, connect kind.Time) *kind.Time {
	if last.Before(connect.Time) {
		return &connect
	}
	return &kind.Time{Time: last}
}

// connected reports whether one of a proxy's subscriptions is open.
func (w *World) connected(insight *kind.DataplaneInsight) bool {
	for i := range insight.Subscriptions {
		s := &insight.Subscriptions[i]
		if s.DisconnectTime != nil {
			continue
		}
		if _, ended := w.ended(s.ControlPlaneInstanceID); !ended {
			return true
		}
	}
	return false
}

// ended reports whether the lease of a proxy's replica has expired. For a global control plane it is false: the zones
// close subscriptions themselves.
func (w *World) ended(instance string) (last time.Time, ended bool) {
	if w.State.Tables.Zone == "" {
		return time.Time{}, false
	}
	return w.Expired(instance)
}

// known is the stored status of one proxy.
type known struct {
	insight *kind.DataplaneInsight        // nil: it never connected
	serving *kind.DataplaneListenerStatus // nil: it never served
	// connected states that the proxy is connected.
	connected bool
}

func (w *World) knowing(insight *kind.DataplaneInsight, serving *kind.DataplaneListenerStatus) known {
	return known{insight, serving, insight != nil && w.connected(insight)}
}

func (w *World) known(r *table.Reader, mesh, name string) known {
	var insight *kind.DataplaneInsight
	var serving *kind.DataplaneListenerStatus
	if o, ok := w.State.Tables.Insights.Find(r, mesh, name); ok {
		insight = &o.Spec
	}
	if o, ok := w.State.Tables.ListenerStatuses.Find(r, mesh, name); ok {
		serving = &o.Spec
	}
	return w.knowing(insight, serving)
}

// proxies returns the Dataplanes of a mesh, or of all meshes of the world for an empty name, each with its status.
func (w *World) proxies(mesh string) iter.Seq2[*resource.Object[kind.Dataplane], known] {
	switch {
	case mesh != "":
		return w.proxiesUnder(state.MeshKey(mesh))
	case w.Meshes.IsAll():
		return w.proxiesUnder("")
	}
	return func(yield func(*resource.Object[kind.Dataplane], known) bool) {
		for _, mesh := range w.meshesInOrder() {
			for dp, k := range w.proxiesUnder(state.MeshKey(mesh)) {
				if !yield(dp, k) {
					return
				}
			}
		}
	}
}

// proxiesUnder returns the Dataplanes whose keys have a prefix. It walks three sorted lists in parallel instead of
// looking up each row.
func (w *World) proxiesUnder(prefix string) iter.Seq2[*resource.Object[kind.Dataplane], known] {
	return func(yield func(*resource.Object[kind.Dataplane], known) bool) {
		insights := follower[kind.DataplaneInsight]{
			slices.Collect(w.State.Tables.Insights.RowsAfter(w.Snapshot, prefix, "")),
		}
		statuses := follower[kind.DataplaneListenerStatus]{
			slices.Collect(w.State.Tables.ListenerStatuses.RowsAfter(w.Snapshot,
				prefix, "")),
		}
		for dp := range w.State.Tables.Dataplanes.RowsAfter(w.Snapshot, prefix, "") {
			if !yield(dp, w.knowing(insights.beside(dp), statuses.beside(dp))) {
				return
			}
		}
	}
}

// Proxy is a Dataplane with what is stored about its proxy.
type Proxy struct {
	Dataplane *resource.Object[kind.Dataplane]
	known     known
}

// Insight returns the stored insight, nil for a proxy that never connected. Its subscriptions may be open to an expired
// replica.
func (p *Proxy) Insight() *kind.DataplaneInsight { return p.known.insight }

// Proxies returns the proxies of a mesh, or of all meshes for an empty name, in the order of [state.RowKey]. It costs
// less than a look-up of each.
func (w *World) Proxies(mesh string) iter.Seq[Proxy] {
	return func(yield func(Proxy) bool) {
		for dp, k := range w.proxies(mesh) {
			if !yield(Proxy{dp, k}) {
				return
			}
		}
	}
}

// StatusOf returns the [World.Status] of a proxy.
func (w *World) StatusOf(p *Proxy) Status { return w.status(p.Dataplane, p.known) }

// follower has the remaining rows of a kind, in the order of their [state.RowKey].
type follower[S any] struct{ rows []*resource.Object[S] }

// beside returns the row with the key of a Dataplane, or nil. It must be called with Dataplanes in their order.
func (f *follower[S]) beside(dp *resource.Object[kind.Dataplane]) *S {
	for len(f.rows) > 0 {
		row := f.rows[0]
		switch order := compareKeys(&row.Meta, &dp.Meta); {
		case order > 0:
			return nil
		case order == 0:
			return &row.Spec
		}
		f.rows = f.rows[1:]
	}
	return nil
}

// compareKeys compares by [state.RowKey].
func compareKeys(a, b *resource.Meta) int {
	if a.Mesh != b.Mesh {
		return strings.Compare(state.MeshKey(a.Mesh), state.MeshKey(b.Mesh))
	}
	return strings.Compare(a.Name, b.Name)
}

// Status returns the status of a proxy. One inbound that does not serve makes its proxy offline, whether its state is
// NotReady or its application fails its probe; the other inbounds stay endpoints. Ignored inbounds do not count: with
// only these, the connection decides. (Adding inbounds in runtime.)
func (w *World) Status(dp *resource.Object[kind.Dataplane]) Status {
	return w.status(dp, w.known(table.Eval(w.Snapshot), dp.Mesh, dp.Name))
}

func (w *World) status(dp *resource.Object[kind.Dataplane], k known) Status {
	if w.UnknownOf(&dp.Meta) != nil {
		return NotKnown
	}
	if !k.connected {
		return Offline
	}
	n := w.State.Tables.NetworkingOf(table.Eval(w.Snapshot), dp)
	for i := range n.Inbound {
		in := n.Effective(n.Inbound[i])
		if in.State == kind.NotReady || in.State == kind.Ready && k.dead(&in) {
			return Offline
		}
	}
	return Online
}

// dead reports whether the proxy reports that an inbound does not serve: its application fails its probe, or the proxy
// drains.
func (k known) dead(in *kind.Inbound) bool {
	return k.serving != nil &&
		(k.serving.Draining || slices.ContainsFunc(k.serving.Inbounds, func(served kind.ServedInbound) bool {
			return served.Unhealthy && served.Port == in.Port && served.Address == in.Address
		}))
}

// Counts are numbers by status.
type Counts struct {
	Total             int `json:"total"`
	Online            int `json:"online"`
	Offline           int `json:"offline"`
	PartiallyDegraded int `json:"partiallyDegraded"`
	// Unknown is the number of those whose zone is not connected to this global control plane.
	Unknown int `json:"unknown,omitempty"`
}

func (c *Counts) add(s Status) {
	c.Total++
	switch s {
	case Online:
		c.Online++
	case PartiallyDegraded:
		c.PartiallyDegraded++
	case NotKnown:
		c.Unknown++
	default:
		c.Offline++
	}
}

// Total is a number of things without a status.
type Total struct {
	Total int `json:"total"`
}
