package kind

import "weft/resource"

// MeshEgressAddress has the addresses of this zone's zone egresses for a mesh. The row has the name of the zone. A
// change of an egress is one write, whatever the number of services. The row never leaves the zone. (Mesh Scoped Zone
// Ingress and Zone Egress.)
type MeshEgressAddress struct {
	// Egresses are sorted by name. A healthy egress has an identity, too.
	Egresses []ZoneProxyAddress `json:"egresses,omitempty" schema:"maxItems=1024"`
}

// Usable returns the egresses that clients dial: the healthy ones, or those that drain where none is healthy. Without
// any there is none: another route would bypass their permissions.
func (m *MeshEgressAddress) Usable() []ZoneProxyAddress {
	var healthy, draining []ZoneProxyAddress
	for _, a := range m.Egresses {
		switch {
		case a.Healthy:
			healthy = append(healthy, a)
		case a.Draining:
			draining = append(draining, a)
		}
	}
	if len(healthy) == 0 {
		return draining
	}
	return healthy
}

// MeshEgressAddresses is the kind of [MeshEgressAddress].
var MeshEgressAddresses = &resource.Kind[MeshEgressAddress]{
	Info: resource.Info{Name: "MeshEgressAddress", Plural: "meshegressaddresses", Scope: resource.Mesh, ReadOnly: true,
		Hidden: true},
}
