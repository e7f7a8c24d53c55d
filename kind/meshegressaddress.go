package kind

import (
	"net"
	"strconv"

	"weft/resource"
)

// MeshEgressAddress is where the zone egresses of this zone take connections for a mesh. There is one for each mesh,
// named after the zone, so that an egress that comes or goes is one write, whatever the number of services behind it.
// It never leaves the zone. (Mesh Scoped Zone Ingress and Zone Egress.)
type MeshEgressAddress struct {
	// Egresses are sorted by name.
	Egresses []EgressAddress `json:"egresses,omitempty"`
}

// EgressAddress is one zone egress.
type EgressAddress struct {
	Name    string `json:"name"` // of its Dataplane or ZoneEgress
	Address string `json:"address"`
	Port    uint32 `json:"port"`
	// Healthy says that its proxy is there, has an identity and serves: nobody dials another.
	Healthy bool `json:"healthy,omitempty"`
	// Legacy says that it is a ZoneEgress, of global scope.
	Legacy bool `json:"legacy,omitempty"`
}

// Listener answers "address:port".
func (a *EgressAddress) Listener() string {
	return net.JoinHostPort(a.Address, strconv.Itoa(int(a.Port)))
}

// Usable are those that are to be dialled.
func (m *MeshEgressAddress) Usable() []EgressAddress {
	var usable []EgressAddress
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
