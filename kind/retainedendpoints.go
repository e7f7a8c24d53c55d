package kind

import (
	"weft/resource"
)

// RetainedEndpoints are former endpoints of one port of a MeshService. They stay published because a change of
// membership alone would have emptied the list. The row is deleted when the new members serve, or after a timeout.
type RetainedEndpoints struct {
	Service   string             `json:"service"`
	Port      uint32             `json:"port"`
	Endpoints []RetainedEndpoint `json:"endpoints"`
	Since     Time               `json:"since"`
	// FirstServed is the time at which the first new member served.
	FirstServed *Time `json:"firstServed,omitempty"`
}

// RetainedEndpoint is one retained endpoint.
type RetainedEndpoint struct {
	Dataplane string `json:"dataplane"`
	Address   string `json:"address"`
	Port      uint32 `json:"port"`
}

// Listener returns "address:port".
func (e *RetainedEndpoint) Listener() string {
	return HostPort(e.Address, e.Port)
}

// RetainedEndpointsList is the kind of [RetainedEndpoints].
var RetainedEndpointsList = &resource.Kind[RetainedEndpoints]{
	Info: resource.Info{Name: "RetainedEndpoints", Plural: "retained-endpoints", Scope: resource.Mesh, ReadOnly: true,
		Hidden: true},
}
