package kind

import (
	"fmt"
	"slices"
	"strings"

	"weft/resource"
)

// AckRequest requests that every replica reports when its clients have ACKed the configuration of some rows.
type AckRequest struct {
	Requester string         `json:"requester"`
	Rows      []resource.Key `json:"rows"`
	Clients   AckClients     `json:"clients"`
	AckedBy   []string       `json:"ackedBy,omitempty"` // the replicas whose clients have ACKed
	// MovedBy are those of AckedBy from which a pending client moved to another replica before it had ACKed.
	MovedBy []string      `json:"movedBy,omitempty"`
	Pending []PendingAcks `json:"pending,omitempty"` // of the replicas without an ACK
}

// AckClients are the clients that a wait is for. They are selected in the same way at every replica.
type AckClients struct {
	Wait AckWait `json:"wait,omitempty"`
	// Mesh selects the proxies of a mesh and the zone proxies that serve every mesh; empty: of all meshes.
	Mesh string `json:"mesh,omitempty"`
	// Proxy is the only client of [IngressForwards].
	Proxy *resource.Key `json:"proxy,omitempty"`
}

// MeshOf returns the mesh whose proxies a row configures: a Mesh belongs to itself. It is empty for a row that may
// configure the proxies of all meshes.
func MeshOf(row resource.Key) string {
	if row.Kind == Meshes.Name {
		return row.Name
	}
	return row.Mesh
}

// AckWait names what a wait waits for. A replica waits with [ProxiesApply] for one that it does not know, which is the
// strictest.
type AckWait string

const (
	// CertifiedApply waits until no proxy with a valid certificate may apply a former state: each has ACKed,
	// disconnected ones included, or its certificate has expired, or its Dataplane is deleted.
	CertifiedApply AckWait = "CertifiedApply"
	// ProxiesApply is CertifiedApply, and also waits for connected proxies without a certificate.
	ProxiesApply AckWait = "ProxiesApply"
	// ConnectedApply is ProxiesApply without the proxies that have been disconnected for long.
	ConnectedApply AckWait = "ConnectedApply"
	// EndpointRemoved waits until connected clients send no request to a removed endpoint. A client that disconnects,
	// or rejects a list that had the endpoint, counts until the caller's bound.
	EndpointRemoved AckWait = "EndpointRemoved"
	// ProxyDrained waits until connected clients have ACKed or rejected the removal of a proxy, or are disconnected.
	ProxyDrained AckWait = "ProxyDrained"
	// IngressForwards waits until one zone ingress applies a state, or no other zone dials it.
	IngressForwards AckWait = "IngressForwards"
	// ZonesApply waits, on global, for the zones that are connected to each replica.
	ZonesApply AckWait = "ZonesApply"
)

// AckWaits are all waits.
var AckWaits = []AckWait{CertifiedApply, ProxiesApply, ConnectedApply, EndpointRemoved, ProxyDrained,
	IngressForwards, ZonesApply}

// PendingAcks are the clients that a wait is still waiting for.
type PendingAcks struct {
	Replica string         `json:"replica,omitempty"` // empty: of several
	Clients []resource.Key `json:"clients"`           // at most [MaxNamedPending]
	Count   int            `json:"count"`             // of all
}

// AckRequests is the kind of [AckRequest].
var AckRequests = &resource.Kind[AckRequest]{
	Info: resource.Info{Name: "AckRequest", Plural: "ack-requests", Scope: resource.Global, ReadOnly: true,
		Hidden: true},
}

// MaxNamedPending is the number of pending clients that [PendingAcks] names.
const MaxNamedPending = 10

// NewPendingAcks returns clients as pending, sorted, of which it names the first.
func NewPendingAcks(clients []resource.Key) PendingAcks {
	sorted := slices.SortedFunc(slices.Values(clients), compareClients)
	return PendingAcks{Clients: sorted[:min(len(sorted), MaxNamedPending)], Count: len(sorted)}
}

// Join returns the clients of both. Those that both name count once.
func (p PendingAcks) Join(q PendingAcks) PendingAcks {
	named := slices.Compact(slices.SortedFunc(slices.Values(slices.Concat(p.Clients, q.Clients)), compareClients))
	twice := len(p.Clients) + len(q.Clients) - len(named)
	return PendingAcks{Clients: named[:min(len(named), MaxNamedPending)], Count: p.Count + q.Count - twice}
}

// Equal reports whether both have the same clients and number.
func (p PendingAcks) Equal(q PendingAcks) bool {
	return p.Count == q.Count && slices.Equal(p.Clients, q.Clients)
}

// String returns the named clients and the number of others, as "Dataplane default/web-1 and 3 more".
func (p PendingAcks) String() string {
	var names []string
	for _, client := range p.Clients {
		names = append(names, client.String())
	}
	text := strings.Join(names, ", ")
	if more := p.Count - len(p.Clients); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func compareClients(a, b resource.Key) int { return strings.Compare(a.String(), b.String()) }
