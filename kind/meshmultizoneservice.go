package kind

import "weft/resource"

// MeshMultiZoneService is one destination made of the MeshServices of several zones: a client reaches those of
// its own zone, and those of other zones where its own has none that is ready.
type MeshMultiZoneService struct {
	// Selector says which MeshServices it is made of.
	Selector MultiZoneSelector `json:"selector" schema:"required"`
	// Ports are those that clients dial. A MeshService that lacks one, or has it with another protocol, takes
	// no part in it. (SNI in the resource definition.)
	Ports []ServicePort `json:"ports,omitempty" schema:"required minItems=1 maxItems=256"`
}

// MultiZoneSelector selects MeshServices.
type MultiZoneSelector struct {
	MeshService *LabelSelector `json:"meshService,omitempty" schema:"required"` // by their labels
}

// MeshMultiZoneServices is the kind of [MeshMultiZoneService].
var MeshMultiZoneServices = &resource.Kind[MeshMultiZoneService]{
	Info: resource.Info{
		Name: "MeshMultiZoneService", Plural: "meshmultizoneservices", ShortName: "mzsvc", Computed: []string{"snis"}, Scope: resource.Mesh, Sync: resource.GlobalToZones,
	},
	Default:  func(o *resource.Object[MeshMultiZoneService]) { defaultPorts(o.Spec.Ports) },
	Validate: validateMeshMultiZoneService,
}

func validateMeshMultiZoneService(o *resource.Object[MeshMultiZoneService]) resource.Problems {
	c := envelope(&o.Meta)
	if s := o.Spec.Selector.MeshService; s == nil {
		c.add("spec.selector.meshService", "is required: the labels of the MeshServices; {matchLabels: {}} selects all")
	} else {
		c.labels("spec.selector.meshService.matchLabels", s.MatchLabels)
	}
	if len(o.Spec.Ports) == 0 {
		c.add("spec.ports", "is required: at least one port")
	}
	c.servicePorts("spec.ports", o.Spec.Ports)
	return c.problems
}

// MeshMultiZoneServiceStatus is what a control plane knows of a MeshMultiZoneService; each works out its own.
type MeshMultiZoneServiceStatus struct {
	// VIPs are its virtual IP addresses in this zone.
	VIPs []VIP `json:"vips,omitempty"`
	// Addresses are its host names.
	Addresses []Address `json:"addresses,omitempty"`
	// MeshServices are those that it is made of, sorted by zone and name.
	MeshServices []MatchedMeshService `json:"meshServices,omitempty"`
	// HostnameGenerators are those that select it, by name.
	HostnameGenerators []HostnameGeneratorStatus `json:"hostnameGenerators,omitempty"`
	// Conditions are VIPAssigned, where there is no free virtual IP, and PortsMatched, which is False where a
	// selected MeshService lacks a port, or has it with another protocol.
	Conditions []Condition `json:"conditions,omitempty"`
}

// MatchedMeshService names a MeshService that is part of a [MeshMultiZoneService].
type MatchedMeshService struct {
	Name      string `json:"name"`      // as its owner calls it
	Namespace string `json:"namespace"` // on Kubernetes; else empty
	Zone      string `json:"zone"`      // where it lives
	Mesh      string `json:"mesh"`      // of both
}

// MeshMultiZoneServiceStatuses is the kind of [MeshMultiZoneServiceStatus].
var MeshMultiZoneServiceStatuses = &resource.Kind[MeshMultiZoneServiceStatus]{
	Info: resource.Info{Name: "MeshMultiZoneServiceStatus", Plural: "meshmultizoneservicestatuses", Scope: resource.Mesh, ReadOnly: true, Hidden: true, StatusOf: "MeshMultiZoneService"},
}
