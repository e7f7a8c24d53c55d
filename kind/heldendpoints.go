package kind

import (
	"net"
	"strconv"

	"weft/resource"
)

// HeldEndpoints are the former servers of one port of a MeshService, which stay published because a
// change of membership alone would have emptied a working list. The row goes when the new members serve,
// or in time.
type HeldEndpoints struct {
	Service   string         `json:"service"`
	Port      uint32         `json:"port"`
	Endpoints []HeldEndpoint `json:"endpoints"`
	Since     Time           `json:"since"`
	// FirstServed is when the first of the new members served.
	FirstServed *Time `json:"firstServed,omitempty"`
}

// HeldEndpoint is one of them.
type HeldEndpoint struct {
	Dataplane string `json:"dataplane"`
	Address   string `json:"address"`
	Port      uint32 `json:"port"`
}

// Listener answers "address:port".
func (e *HeldEndpoint) Listener() string {
	return net.JoinHostPort(e.Address, strconv.Itoa(int(e.Port)))
}

// HeldEndpointsList is the kind of [HeldEndpoints].
var HeldEndpointsList = &resource.Kind[HeldEndpoints]{
	Info: resource.Info{Name: "HeldEndpoints", Plural: "held-endpoints", Scope: resource.Mesh, ReadOnly: true, Hidden: true},
}
