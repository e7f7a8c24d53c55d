package kind

import "weft/resource"

// RetainedSNIRoute is what zone ingresses pass on still though a service has it no more: server names of one of its
// ports, and the servers that were behind them. Other zones may send there until all of them have heard of it;
// then the row goes, or in time.
type RetainedSNIRoute struct {
	// Kind of the service: MeshService, or MeshMultiZoneService.
	Kind    string   `json:"kind"`
	Service string   `json:"service"`
	Port    uint32   `json:"port"`
	SNIs    []string `json:"snis"`
	// MultiZone are the MeshMultiZoneServices in which the port of a MeshService took part, whose server names lead there too.
	MultiZone []string           `json:"multiZone,omitempty"`
	Endpoints []RetainedEndpoint `json:"endpoints"`
	Since     Time               `json:"since"`
}

// RetainedSNIRoutes is the kind of [RetainedSNIRoute].
var RetainedSNIRoutes = &resource.Kind[RetainedSNIRoute]{
	Info: resource.Info{Name: "RetainedSNIRoute", Plural: "retained-sni-routes", Scope: resource.Mesh, ReadOnly: true, Hidden: true},
}
