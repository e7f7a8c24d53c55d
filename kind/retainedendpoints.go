package kind

import (
	"net"
	"strconv"

	"weft/resource"
)

// RetainedEndpoints are the former servers of one port of a MeshService, which stay published because a
// change of membership alone would have emptied a working list. The row goes when the new members serve,
// or in time.
type RetainedEndpoints struct {
	Service   string             `json:"service"`
	Port      uint32             `json:"port"`
	Endpoints []RetainedEndpoint `json:"endpoints"`
	Since     Time               `json:"since"`
	// FirstServed is when the first of the new members served.
	FirstServed *Time `json:"firstServed,omitempty"`
}

// RetainedEndpoint is one of them.
type RetainedEndpoint struct {
	Dataplane string `json:"dataplane"`
	Address   string `json:"address"`
	Port      uint32 `json:"port"`
}

// Listener answers "address:port".
func (e *RetainedEndpoint) Listener() string {
	return net.JoinHostPort(e.Address, strconv.Itoa(int(e.Port)))
}

// RetainedEndpointsList is the kind of [RetainedEndpoints].
var RetainedEndpointsList = &resource.Kind[RetainedEndpoints]{
	Info: resource.Info{Name: "RetainedEndpoints", Plural: "retained-endpoints", Scope: resource.Mesh, ReadOnly: true, Hidden: true},
}
