package graph

import (
	"slices"

	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// ZoneProxy returns the zone ingress of a remote zone at a dialed address, and its zone.
func (s *State) ZoneProxy(snapshot *table.Snapshot, mesh, address string, port uint32) (zone string,
	proxy kind.ZoneProxyAddress, ok bool) {
	r := table.Eval(snapshot)
	for o := range s.ZoneAddresses.From(snapshot, state.MeshKey(mesh), "") {
		zone := s.ZoneOf(&o.Meta)
		for _, proxy := range o.Spec.Ingresses {
			if zone != s.Zone && proxy.Port == port && slices.Contains(s.Resolve(r, proxy.Address), address) {
				return zone, proxy, true
			}
		}
	}
	return "", kind.ZoneProxyAddress{}, false
}

// ZoneAddress returns the row with the zone ingresses of a zone, as other zones dial them for a mesh.
func (s *State) ZoneAddress(r *table.Reader, mesh, zone string) (*resource.Object[kind.MeshZoneAddress], bool) {
	return s.ZoneAddresses.Find(r, mesh, s.StoredName(&kind.MeshZoneAddresses.Info, zone, zone))
}
