package zoneroute

import (
	"slices"

	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
)

// Way is the route from clients to servers.
type Way string

// The ways to servers.
const (
	Direct    Way = ""          // clients dial them
	ByIngress Way = "ingress"   // through the ingresses of their zone
	ByEgress  Way = "egress"    // through the egresses of the clients' zone
	NoEgress  Way = "no egress" // through egresses, and none of them is ready
)

// Way returns the way to servers of remote zones.
func (s *Stage) Way(r *table.Reader, mesh string) Way {
	if s.ByEgress.Get(r, mesh) {
		return s.EgressRoute.Get(r, mesh).Way()
	}
	return ByIngress
}

// Proxies returns the zone proxies to dial for a remote zone: its ingresses, or the egresses of this zone,
// which forward to them.
func (s *Stage) Proxies(r *table.Reader, mesh, zone string) []Hop {
	if s.ByEgress.Get(r, mesh) {
		return s.EgressRoute.Get(r, mesh).Egresses
	}
	return s.Ingresses(r, mesh, zone)
}

// Ingresses returns the ingresses of a remote zone to dial, with every IP address of a host name. The zone decides
// which. An ingress stays in the list while no service of its zone is Available: it rejects connections without a
// server, and serves again before this zone learns of it.
func (s *Stage) Ingresses(r *table.Reader, mesh, zone string) []Hop {
	row, ok := s.state.ZoneAddress(r, mesh, zone)
	if !ok {
		return nil
	}
	var ingresses []Hop
	for _, ingress := range row.Spec.Usable() {
		addresses := s.state.Resolve(r, ingress.Address)
		if len(addresses) == 0 {
			ingresses = append(ingresses, s.formerIngresses(r, ingress.Address, mesh, zone)...)
		}
		for _, address := range addresses {
			ingresses = append(ingresses, Hop{Address: address, Port: ingress.Port, Zone: zone})
		}
	}
	return ingresses
}

// IngressAt returns the zone ingress of a remote zone at a dialed address, and its zone.
func (s *Stage) IngressAt(snapshot *table.Snapshot, mesh, address string, port uint32) (zone string,
	proxy kind.ZoneProxyAddress, ok bool) {
	r := table.Eval(snapshot)
	for o := range s.state.ZoneAddresses.RowsAfter(snapshot, state.MeshKey(mesh), "") {
		zone := s.state.ZoneOf(&o.Meta)
		for _, proxy := range o.Spec.Ingresses {
			if zone != s.state.Zone && proxy.Port == port &&
				slices.Contains(s.state.Resolve(r, proxy.Address), address) {
				return zone, proxy, true
			}
		}
	}
	return "", kind.ZoneProxyAddress{}, false
}
