package kind

import "weft/resource"

// MeshEgressAddress has the addresses of this zone's zone egresses for a mesh. The row has the name of the zone. A
// change of an egress is one write, whatever the number of services. The row never leaves the zone. (Mesh Scoped Zone
// Ingress and Zone Egress.)
type MeshEgressAddress struct {
	// Egresses are sorted by name. A healthy egress has an identity, too.
	Egresses []ZoneProxyAddress `json:"egresses,omitempty" schema:"maxItems=1024"`
}

// Usable returns the egresses that clients dial: only healthy ones, since another route would bypass their permissions.
func (m *MeshEgressAddress) Usable() []ZoneProxyAddress {
	var usable []ZoneProxyAddress
	for _, a := range m.Egresses {
		if a.Healthy {
			usable = append(usable, a)
		}
	}
	return usable
}

// MeshEgressAddresses is the kind of [MeshEgressAddress].
var MeshEgressAddresses = &resource.Kind[MeshEgressAddress]{
	Info: resource.Info{Name: "MeshEgressAddress", Plural: "meshegressaddresses", Scope: resource.Mesh, ReadOnly: true,
		Hidden: true},
}
