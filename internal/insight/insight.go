// Package insight says how proxies, services and meshes are at one moment of the table: what the API's
// overviews and insights show.
//
// Everything is worked out when it is asked for and stored nowhere. A proxy costs two look-ups, a service
// those of its proxies, and a mesh a walk over them.
package insight

import (
	"iter"
	"slices"
	"strings"
	"time"

	"weft/internal/graph"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// Status is how a proxy or a service is.
type Status string

const (
	// Online: everything that it has may be used.
	Online Status = "online"
	// Offline: it can't be reached; of a service, no proxy may be used; of a proxy, an inbound takes no requests.
	// ("Adding inbounds in runtime")
	Offline Status = "offline"
	// PartiallyDegraded is a service of which a part of the proxies may not be used.
	PartiallyDegraded Status = "partially_degraded"
	// NotAvailable is a service that no proxy provides.
	NotAvailable Status = "not_available"
)

// World is one moment, with what is not in the table. All fields but Links are needed.
type World struct {
	State    *graph.State
	Snapshot *table.Snapshot
	// Expired says whether an instance of the control plane is live no more, and when it was heard of last.
	Expired func(instance string) (last time.Time, ended bool)
	// Links answers how each kind of a zone stands that is connected to this instance of the global control
	// plane, by its name; nil where the zone is not. Optional.
	Links func(zone string) map[string]KindLink
}

// Of answers the insight of a proxy; an empty one where it never connected. It is the caller's.
func (w *World) Of(key graph.ProxyKey) *kind.DataplaneInsight {
	r := table.Eval(w.Snapshot)
	insight := &kind.DataplaneInsight{}
	if stored, ok := w.State.Insight(r, key); ok {
		*insight = stored.Spec
		insight.Subscriptions = w.closed(insight.Subscriptions)
		insight.MTLS = mutualTLS(insight.Certificate)
	}
	if serving, ok := w.State.ListenerStatus(r, key); ok {
		insight.ReadyListeners = readyListeners(&serving.Spec)
	}
	insight.NotAdmitted = w.State.NotAdmittedReason(r, key)
	if id := w.State.Identity.Get(r, key); id != nil && id.Problem != "" {
		insight.CertificateProblem = id.Problem
	}
	if key.Type == kind.DataplaneProxy {
		insight.ServiceProblem = w.State.ServiceProblem(r, key)
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

// readyListeners are the addresses at which a proxy takes requests, "10.0.0.1:8080": not one that drains, nor one
// whose application is dead.
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

// closed ends, for the reader, the subscriptions to an instance that is no more.
func (w *World) closed(subscriptions []kind.Subscription) []kind.Subscription {
	own := slices.Clone(subscriptions)
	for i := range own {
		s := &own[i]
		last, ended := w.ended(s.ControlPlaneInstanceID)
		s.DisconnectTime = disconnected(last, ended, s.ConnectTime, s.DisconnectTime)
	}
	return own
}

// disconnected answers when a connection ended to an instance that may have ended; nil: it lasts. An instance
// that was killed could not write that.
func disconnected(last time.Time, ended bool, connect kind.Time, written *kind.Time) *kind.Time {
	switch {
	case written != nil || !ended:
		return written
	case last.Before(connect.Time):
		return &connect
	}
	return &kind.Time{Time: last}
}

// connected says whether one of a proxy's subscriptions lasts.
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

// ended says of the instance to which a proxy is connected whether it is live no more. What a global control
// plane knows of proxies came from their zones, which end it themselves.
func (w *World) ended(instance string) (last time.Time, ended bool) {
	if w.State.Zone == "" {
		return time.Time{}, false
	}
	return w.Expired(instance)
}

// known is what is known of one proxy.
type known struct {
	insight *kind.DataplaneInsight        // nil: it never connected
	serving *kind.DataplaneListenerStatus // nil: it never served
	// connected says that its proxy is.
	connected bool
}

func (w *World) knowing(insight *kind.DataplaneInsight, serving *kind.DataplaneListenerStatus) known {
	return known{insight, serving, insight != nil && w.connected(insight)}
}

func (w *World) known(r *table.Reader, mesh, name string) known {
	var insight *kind.DataplaneInsight
	var serving *kind.DataplaneListenerStatus
	if o, ok := w.State.Insights.Find(r, mesh, name); ok {
		insight = &o.Spec
	}
	if o, ok := w.State.ListenerStatuses.Find(r, mesh, name); ok {
		serving = &o.Spec
	}
	return w.knowing(insight, serving)
}

// proxies are the Dataplanes of a mesh, of all where it is empty, each with what is known of it. It walks three
// lists beside each other instead of looking up each row.
func (w *World) proxies(mesh string) iter.Seq2[*resource.Object[kind.Dataplane], known] {
	prefix := ""
	if mesh != "" {
		prefix = graph.MeshKey(mesh)
	}
	return func(yield func(*resource.Object[kind.Dataplane], known) bool) {
		insights := follower[kind.DataplaneInsight]{slices.Collect(w.State.Insights.From(w.Snapshot, prefix, ""))}
		statuses := follower[kind.DataplaneListenerStatus]{slices.Collect(w.State.ListenerStatuses.From(w.Snapshot, prefix, ""))}
		for dp := range w.State.Dataplanes.From(w.Snapshot, prefix, "") {
			if !yield(dp, w.knowing(insights.beside(dp), statuses.beside(dp))) {
				return
			}
		}
	}
}

// follower has the rows of a kind that were not read yet, in the order of their [graph.RowKey].
type follower[S any] struct{ rows []*resource.Object[S] }

// beside answers the row with the name of a Dataplane; nil where there is none. Dataplanes come in order.
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

// compareKeys orders as the [graph.RowKey] of each do.
func compareKeys(a, b *resource.Meta) int {
	if a.Mesh != b.Mesh {
		return strings.Compare(graph.MeshKey(a.Mesh), graph.MeshKey(b.Mesh))
	}
	return strings.Compare(a.Name, b.Name)
}

// Status returns the status of a proxy. One inbound that takes no requests makes its proxy offline, whether its owner
// says NotReady or its application fails its probe; the other inbounds stay endpoints. Ignored inbounds are not
// counted: with none but these the connection decides. (Adding inbounds in runtime.)
func (w *World) Status(dp *resource.Object[kind.Dataplane]) Status {
	return w.status(dp, w.known(table.Eval(w.Snapshot), dp.Mesh, dp.Name))
}

func (w *World) status(dp *resource.Object[kind.Dataplane], k known) Status {
	if !k.connected {
		return Offline
	}
	n := w.State.NetworkingOf(table.Eval(w.Snapshot), dp)
	for i := range n.Inbound {
		in := n.Effective(n.Inbound[i])
		if in.State == kind.NotReady || in.State == kind.Ready && k.dead(&in) {
			return Offline
		}
	}
	return Online
}

// dead says whether the proxy reports of an inbound that it takes no requests: its application fails its
// probe, or the proxy is going away.
func (k known) dead(in *kind.Inbound) bool {
	return k.serving != nil && (k.serving.Draining || slices.ContainsFunc(k.serving.Inbounds, func(served kind.ServedInbound) bool {
		return served.Unhealthy && served.Port == in.Port && served.Address == in.Address
	}))
}

// Counts are things by their status.
type Counts struct {
	Total             int `json:"total"`
	Online            int `json:"online"`
	Offline           int `json:"offline"`
	PartiallyDegraded int `json:"partiallyDegraded"`
}

func (c *Counts) add(s Status) {
	c.Total++
	switch s {
	case Online:
		c.Online++
	case PartiallyDegraded:
		c.PartiallyDegraded++
	default:
		c.Offline++
	}
}

// Total counts what has no status.
type Total struct {
	Total int `json:"total"`
}
