package kind

import "weft/resource"

// RetainedSNIRoute has SNIs of a deleted service or port, and their former servers. Zone ingresses serve the SNI routes
// until all other zones have removed them; then the row is deleted, at the latest after a timeout.
type RetainedSNIRoute struct {
	// Kind is the service's kind: MeshService or MeshMultiZoneService.
	Kind    string   `json:"kind"`
	Service string   `json:"service"`
	Port    uint32   `json:"port"`
	SNIs    []string `json:"snis"`
	// MultiZone are the MeshMultiZoneServices with the port of a MeshService. Their SNIs lead to the same servers.
	MultiZone []string           `json:"multiZone,omitempty"`
	Endpoints []RetainedEndpoint `json:"endpoints"`
	Since     Time               `json:"since"`
}

// RetainedSNIRoutes is the kind of [RetainedSNIRoute].
var RetainedSNIRoutes = &resource.Kind[RetainedSNIRoute]{
	Info: resource.Info{Name: "RetainedSNIRoute", Plural: "retained-sni-routes", Scope: resource.Mesh, ReadOnly: true,
		Hidden: true},
}
