package kind

import "weft/resource"

// ZoneEgress is the older form of a zone egress, which serves every mesh: the way out of a zone. A Dataplane with
// networking.zoneEgress is the newer one, and is preferred where it is ready.
type ZoneEgress struct {
	// Zone is the one that it belongs to; by default that of the control plane that it is written to.
	Zone string `json:"zone,omitempty" schema:"pattern=mesh"`
	// Networking is where it stands in the network.
	Networking ZoneEgressNetworking `json:"networking" schema:"required"`
}

// ZoneEgressNetworking is the network side of a [ZoneEgress].
type ZoneEgressNetworking struct {
	Address string `json:"address" schema:"required ip"` // where its proxy listens, and where others dial it
	Port    uint32 `json:"port" schema:"required port"`  // where its proxy listens
	Admin   *Admin `json:"admin,omitempty"`              // Envoy's administration interface
}

// ZoneEgresses is the kind of [ZoneEgress].
var ZoneEgresses = &resource.Kind[ZoneEgress]{
	Info: resource.Info{
		Name: "ZoneEgress", Plural: "zoneegresses", ShortName: "ze", Aliases: []string{"zone-egresses"}, Scope: resource.Global, Flat: true,
		Sync: resource.ZoneToGlobal,
	},
	Default:  func(o *resource.Object[ZoneEgress]) { delete(o.Labels, ProxyTypeLabel) },
	Validate: validateZoneEgress,
}

// Dataplane is the egress as a Dataplane would be one.
func (z *ZoneEgress) Dataplane() *Networking {
	n := &z.Networking
	return &Networking{
		ZoneEgress: &ZoneEgressSection{Address: n.Address, Port: n.Port},
		Admin:      n.Admin,
	}
}

// ZoneEgressStatus is what the control plane knows of a ZoneEgress.
type ZoneEgressStatus struct {
	// Conditions are Identity, whether it has one: without, it serves nobody; and Compatible, False where it can't serve
	// some meshes.
	Conditions []Condition `json:"conditions,omitempty"`
}

// ZoneEgressStatuses is the kind of [ZoneEgressStatus].
var ZoneEgressStatuses = &resource.Kind[ZoneEgressStatus]{
	Info: resource.Info{Name: "ZoneEgressStatus", Plural: "zone-egress-statuses", Scope: resource.Global, ReadOnly: true, Hidden: true, StatusOf: "ZoneEgress"},
}

// ZoneEgressLeavesList is the kind of the certificates that ZoneEgresses may present. They are of the mesh whose
// identity it is, and are named after the ZoneEgress.
var ZoneEgressLeavesList = &resource.Kind[DataplaneLeaves]{
	Info: resource.Info{Name: "ZoneEgressLeaves", Plural: "zone-egress-leaves", Scope: resource.Mesh, ReadOnly: true, Hidden: true},
}

// ZoneEgressServings is the kind of what the proxies of ZoneEgresses serve.
var ZoneEgressServings = &resource.Kind[DataplaneServing]{
	Info: resource.Info{Name: "ZoneEgressServing", Plural: "zone-egress-servings", Scope: resource.Global, ReadOnly: true, Hidden: true},
}

// ZoneEgressInsights is the kind of what the control plane knows of the connections of ZoneEgresses.
var ZoneEgressInsights = &resource.Kind[DataplaneInsight]{
	Info: resource.Info{Name: "ZoneEgressInsight", Plural: "zoneegressinsights", Aliases: []string{"zone-egress-insights"}, Scope: resource.Global, Sync: resource.ZoneToGlobal, Flat: true, ReadOnly: true},
}

func validateZoneEgress(o *resource.Object[ZoneEgress]) resource.Problems {
	c := envelope(&o.Meta)
	n := &o.Spec.Networking
	c.ofGlobalScope(o.Spec.Zone, n.Address, n.Port, n.Admin)
	return c.problems
}
