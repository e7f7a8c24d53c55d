package kind

import "weft/resource"

// RetainedExternalService is one port of a removed MeshExternalService. Zone egresses serve it until every client has
// acked the removal; then the row is deleted, at the latest after a timeout.
type RetainedExternalService struct {
	// Zone is the zone that owned the service; empty: global.
	Zone string `json:"zone,omitempty"`
	// Service is the name that its owner gave it.
	Service string `json:"service"`
	// Longer is true where its row had the longer name ([LongerSyncedName]).
	Longer   bool             `json:"longer,omitempty"`
	Port     uint32           `json:"port"`
	Protocol Protocol         `json:"protocol"`
	SNIs     []string         `json:"snis"`
	Material ExternalMaterial `json:"material"`
	Since    Time             `json:"since"`
	// Labels are the labels of the service, and Sections the names of its port, by which policies target it.
	Labels   map[string]string `json:"labels,omitempty"`
	Sections []string          `json:"sections,omitempty"`
}

// RetainedExternalServices is the kind of [RetainedExternalService].
var RetainedExternalServices = &resource.Kind[RetainedExternalService]{
	Info: resource.Info{Name: "RetainedExternalService", Plural: "retained-external-services", Scope: resource.Mesh,
		ReadOnly: true, AdminOnly: true, Encrypted: true, Hidden: true},
}
