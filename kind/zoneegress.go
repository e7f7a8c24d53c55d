package kind

import "weft/resource"

// ZoneEgress is the older form of a zone egress, which serves every mesh of its zone. A Dataplane with
// networking.zoneEgress is the newer form, and is preferred while it is ready.
type ZoneEgress struct {
	// Zone is the zone of the proxy; by default that of the control plane that it is written to.
	Zone string `json:"zone,omitempty" schema:"pattern=mesh"`
	// Networking is the addresses and ports of the proxy.
	Networking ZoneEgressNetworking `json:"networking" schema:"required"`
}

// ZoneEgressNetworking has the addresses and ports of a [ZoneEgress].
type ZoneEgressNetworking struct {
	Address string `json:"address" schema:"required ip" missing:"the IP address that its proxy listens on"` // the listener of the proxy, which clients dial
	Port    uint32 `json:"port" schema:"required port"`                                                     // the listener of the proxy
	Admin   *Admin `json:"admin,omitempty"`                                                                 // Envoy's administration interface
}

// ZoneEgresses is the kind of [ZoneEgress].
var ZoneEgresses = &resource.Kind[ZoneEgress]{
	Info: resource.Info{
		Name: "ZoneEgress", Plural: "zoneegresses", ShortName: "ze", Aliases: []string{"zone-egresses"},
		Scope: resource.Global, Flat: true, WrittenBy: resource.Operator,
		Sync: resource.ZoneToGlobal,
	},
	Default:  func(o *resource.Object[ZoneEgress]) { delete(o.Labels, ProxyTypeLabel) },
	Validate: validateZoneEgress,
}

// Dataplane returns the egress in the form of a Dataplane's networking.
func (z *ZoneEgress) Dataplane() *Networking {
	n := &z.Networking
	return &Networking{
		ZoneEgress: &ZoneEgressSection{Address: n.Address, Port: n.Port},
		Admin:      n.Admin,
	}
}

// ZoneEgressStatus is the status of a ZoneEgress.
type ZoneEgressStatus struct {
	// Conditions are Identity (False where the egress has no identity and serves no client) and Compatible (False where
	// it cannot serve some meshes).
	Conditions []Condition `json:"conditions,omitempty"`
}

// ZoneEgressStatuses is the kind of [ZoneEgressStatus].
var ZoneEgressStatuses = &resource.Kind[ZoneEgressStatus]{
	Info: resource.Info{Name: "ZoneEgressStatus", Plural: "zone-egress-statuses", Scope: resource.Global,
		ReadOnly: true, Hidden: true, StatusOf: "ZoneEgress"},
}

// ZoneEgressCertificatesList is the kind of the certificates that ZoneEgresses may present. A row belongs to the mesh
// of the identity, and has the name of the ZoneEgress.
var ZoneEgressCertificatesList = &resource.Kind[DataplaneCertificates]{
	Info: resource.Info{Name: "ZoneEgressCertificates", Plural: "zone-egress-certificates", Scope: resource.Mesh,
		ReadOnly: true, Hidden: true},
}

// ZoneEgressListenerStatuses is the kind of the listener statuses of ZoneEgresses.
var ZoneEgressListenerStatuses = &resource.Kind[DataplaneListenerStatus]{
	Info: resource.Info{Name: "ZoneEgressListenerStatus", Plural: "zone-egress-listener-statuses",
		Scope: resource.Global, ReadOnly: true, Hidden: true},
}

// ZoneEgressInsights is the kind of the insights of ZoneEgresses.
var ZoneEgressInsights = &resource.Kind[DataplaneInsight]{
	Info: resource.Info{Name: "ZoneEgressInsight", Plural: "zoneegressinsights",
		Aliases: []string{"zone-egress-insights"}, Scope: resource.Global, Sync: resource.ZoneToGlobal, Flat: true,
		ReadOnly: true},
}

func validateZoneEgress(o *resource.Object[ZoneEgress], found resource.Problems) resource.Problems {
	c := envelope(&o.Meta, found)
	n := &o.Spec.Networking
	c.adminOfGlobalScope(n.Address, n.Port, n.Admin)
	return c.problems
}
