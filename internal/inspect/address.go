package inspect

import (
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// AddressesOf returns the addresses of the proxy of a Dataplane, a ZoneIngress or a ZoneEgress, as its resource has
// them: those that it listens on, and those that others dial. A host name is followed by its address here, if it has
// one. Other resources have none. An address may be empty or occur twice.
func (w *World) AddressesOf(r *table.Reader, o resource.Any) []string {
	var n *kind.Networking
	var addresses []string
	switch o := o.(type) {
	case *resource.Object[kind.Dataplane]:
		if n = w.State.Tables.NetworkingOf(r, o); n.Address != o.Spec.Networking.Address {
			addresses = append(addresses, o.Spec.Networking.Address)
		}
	case *resource.Object[kind.ZoneIngress]:
		n = o.Spec.Dataplane()
	case *resource.Object[kind.ZoneEgress]:
		n = o.Spec.Dataplane()
	default:
		return nil
	}
	addresses = append(addresses, n.Address)
	for i := range n.Inbound {
		addresses = append(addresses, n.Inbound[i].Address)
	}
	if z := n.ZoneIngress; z != nil {
		addresses = append(addresses, z.Address, z.AdvertisedAddress)
	}
	if z := n.ZoneEgress; z != nil {
		addresses = append(addresses, z.Address)
	}
	return addresses
}
