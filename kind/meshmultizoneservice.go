package kind

import (
	"fmt"

	"weft/resource"
)

// MeshMultiZoneService is a destination that consists of MeshServices of several zones. Clients use the endpoints of
// their own zone, and those of other zones while their own has no ready endpoint.
type MeshMultiZoneService struct {
	// Selector is the selector of its MeshServices.
	Selector MultiZoneSelector `json:"selector" schema:"required"`
	// Ports are the ports that clients dial. A MeshService that lacks a port, or has it with another protocol, is
	// excluded from that port. (SNI in the resource definition.)
	Ports []ServicePort `json:"ports,omitempty" schema:"required minItems=1 maxItems=256" missing:"at least one port"`
}

// MultiZoneSelector selects MeshServices.
type MultiZoneSelector struct {
	MeshService *LabelSelector `json:"meshService,omitempty" schema:"required" missing:"the labels of the MeshServices; {matchLabels: {}} selects all"` // MeshServices by their labels
	// Namespaces are the namespaces whose MeshServices count, since labels are what the owner of a namespace writes.
	// The control plane adds that of the oldest selected MeshService where none is written. MeshServices without a
	// namespace count always.
	Namespaces []string `json:"namespaces,omitempty" schema:"maxItems=256 maxLength=63"`
}

// MaxMemberNamespaces is the maximum number of namespaces of a [MultiZoneSelector].
const MaxMemberNamespaces = 256

// OfEveryNamespace reports whether the selector reads nothing that the owner of a namespace writes, or names the
// namespace itself.
func (s *MultiZoneSelector) OfEveryNamespace() bool {
	return s.MeshService == nil || !StatesLabels(s.MeshService.MatchLabels)
}

// StatesLabels reports whether labels of a selector are what the owner of some namespace may write, without the
// namespace beside them.
func StatesLabels(selector map[string]string) bool {
	if selector[NamespaceLabel] != "" {
		return false
	}
	for name := range selector {
		if IsStatedByNamespace(name) {
			return true
		}
	}
	return false
}

// MeshMultiZoneServices is the kind of [MeshMultiZoneService].
var MeshMultiZoneServices = &resource.Kind[MeshMultiZoneService]{
	Info: resource.Info{
		Name: "MeshMultiZoneService", Plural: "meshmultizoneservices", ShortName: "mzsvc", Computed: []string{"snis"},
		Scope: resource.Mesh, Sync: resource.GlobalToZones,
		WrittenBy: resource.Operator,
	},
	Default:  func(o *resource.Object[MeshMultiZoneService]) { defaultPorts(o.Spec.Ports) },
	Validate: validateMeshMultiZoneService,
}

func validateMeshMultiZoneService(o *resource.Object[MeshMultiZoneService], found resource.Problems) resource.Problems {
	c := envelope(&o.Meta, found)
	if s := o.Spec.Selector.MeshService; s != nil {
		c.labels("spec.selector.meshService.matchLabels", s.MatchLabels)
	}
	for i, namespace := range o.Spec.Selector.Namespaces {
		if namespace == "" {
			c.add(fmt.Sprintf("spec.selector.namespaces[%d]", i), "is empty; write the name of a namespace")
		}
	}
	c.servicePorts("spec.ports", o.Spec.Ports)
	return c.problems
}

// MeshMultiZoneServiceStatus is the status of a MeshMultiZoneService; each control plane computes its own.
type MeshMultiZoneServiceStatus struct {
	// VIPs are its virtual IP addresses in this zone.
	VIPs []VIP `json:"vips,omitempty"`
	// Addresses are its host names.
	Addresses []Address `json:"addresses,omitempty"`
	// MeshServices are the selected MeshServices, sorted by zone and name.
	MeshServices []MatchedMeshService `json:"meshServices,omitempty"`
	// HostnameGenerators are the generators that select it, by name.
	HostnameGenerators []HostnameGeneratorStatus `json:"hostnameGenerators,omitempty"`
	// Conditions are VIPAssigned (False where no virtual IP is free) and PortsMatched (False where a selected
	// MeshService lacks a port, has it with another protocol, or is of a namespace that is not listed).
	Conditions []Condition `json:"conditions,omitempty"`
}

// MatchedMeshService references a MeshService that a [MeshMultiZoneService] selects.
type MatchedMeshService struct {
	Name      string `json:"name"`      // the name that its owner gave it
	Namespace string `json:"namespace"` // the namespace on Kubernetes; else empty
	Zone      string `json:"zone"`      // the zone of the MeshService
	Mesh      string `json:"mesh"`      // the mesh of both
}

// MeshMultiZoneServiceStatuses is the kind of [MeshMultiZoneServiceStatus].
var MeshMultiZoneServiceStatuses = &resource.Kind[MeshMultiZoneServiceStatus]{
	Info: resource.Info{Name: "MeshMultiZoneServiceStatus", Plural: "meshmultizoneservicestatuses",
		Scope: resource.Mesh, ReadOnly: true, Hidden: true, StatusOf: "MeshMultiZoneService"},
}
