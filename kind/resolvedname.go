package kind

import (
	"net/netip"
	"slices"

	"weft/resource"
)

// NeedsLookup reports whether an address of a resource is a host name, which is resolved before it is dialed.
func NeedsLookup(address string) bool {
	_, err := netip.ParseAddr(address)
	return address != "" && err != nil
}

// ResolvedName has the IP addresses of a host name that is the address of a resource: networking.address of a Dataplane
// of this zone, or advertisedAddress of a zone ingress of another zone. The row has the host name as its name. The
// leader of the zone writes it, since a name may resolve differently in each zone.
type ResolvedName struct {
	Addresses []ResolvedAddress `json:"addresses,omitempty"` // sorted by address
	// Former are the ingresses that this zone dialed before their zone advertised the name. Clients dial them until
	// the name has addresses.
	Former []FormerIngresses `json:"former,omitempty"`
	// Problem is the reason for which the last resolution returned no usable address, or the excluded addresses. Empty
	// without a problem. The addresses of the previous resolution remain.
	Problem string `json:"problem,omitempty"`
	// Since is the start of the problem.
	Since Time `json:"since,omitzero"`
}

// ResolvedAddress is one IP address of a [ResolvedName].
type ResolvedAddress struct {
	Address string `json:"address"`
	// Until is the time at which clients stop using the address, where the name no longer resolves to it.
	Until Time `json:"until,omitzero"`
}

// FormerIngresses are the ingresses of one zone that clients of a mesh dialed.
type FormerIngresses struct {
	Mesh      string            `json:"mesh"`
	Zone      string            `json:"zone"`
	Ingresses []IngressEndpoint `json:"ingresses"`
}

// Keep records the ingresses of a zone and a mesh, which clients dial until the name has addresses. It returns false
// where it has some already.
func (n *ResolvedName) Keep(former FormerIngresses) bool {
	if len(n.Addresses) > 0 {
		return false
	}
	n.Former = append(slices.DeleteFunc(slices.Clone(n.Former), func(f FormerIngresses) bool {
		return f.Mesh == former.Mesh && f.Zone == former.Zone
	}), former)
	return true
}

// ResolvedNames is the kind of [ResolvedName].
var ResolvedNames = &resource.Kind[ResolvedName]{
	Info: resource.Info{Name: "ResolvedName", Plural: "resolved-names", Scope: resource.Global, ReadOnly: true,
		Hidden: true},
}
