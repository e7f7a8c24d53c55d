package kind

import "weft/resource"

// MeshEgressAddress is where the zone egresses of this zone take connections for a mesh. There is one for each mesh,
// named after the zone, so that an egress that comes or goes is one write, whatever the number of services behind it.
// It never leaves the zone. (Mesh Scoped Zone Ingress and Zone Egress.)
type MeshEgressAddress struct {
	// Egresses are sorted by name. A healthy one has an identity, too.
	Egresses []ZoneProxyAddress `json:"egresses,omitempty" schema:"maxItems=1024"`
}

// Usable are those that are to be dialled: the healthy ones alone, since another way out would leave out their
// permissions.
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
	Info: resource.Info{Name: "MeshEgressAddress", Plural: "meshegressaddresses", Scope: resource.Mesh, ReadOnly: true, Hidden: true},
}
