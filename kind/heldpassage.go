package kind

import "weft/resource"

// HeldPassage is what zone ingresses pass on still though a service has it no more: server names of one of its
// ports, and the servers that were behind them. Other zones may send there until all of them have heard of it;
// then the row goes, or in time.
type HeldPassage struct {
	// Kind of the service: MeshService, or MeshMultiZoneService.
	Kind    string   `json:"kind"`
	Service string   `json:"service"`
	Port    uint32   `json:"port"`
	SNIs    []string `json:"snis"`
	// MultiZone are the MeshMultiZoneServices in which the port of a MeshService took part, whose server names lead there too.
	MultiZone []string       `json:"multiZone,omitempty"`
	Endpoints []HeldEndpoint `json:"endpoints"`
	Since     Time           `json:"since"`
}

// HeldPassages is the kind of [HeldPassage].
var HeldPassages = &resource.Kind[HeldPassage]{
	Info: resource.Info{Name: "HeldPassage", Plural: "held-passages", Scope: resource.Mesh, ReadOnly: true, Hidden: true},
}
