package graph

import (
	"slices"

	"weft/internal/table"
	"weft/kind"
)

// ZoneProxy answers the zone ingress of another zone that is dialled at an address, and its zone.
func (s *State) ZoneProxy(snapshot *table.Snapshot, mesh, address string, port uint32) (zone string, door kind.ZoneProxyAddress, ok bool) {
	r := table.Eval(snapshot)
	for o := range s.ZoneAddresses.From(snapshot, MeshKey(mesh), "") {
		zone := s.ZoneOf(&o.Meta)
		for _, door := range o.Spec.Ingresses {
			if zone != s.Zone && door.Port == port && slices.Contains(s.resolve(r, door.Address), address) {
				return zone, door, true
			}
		}
	}
	return "", kind.ZoneProxyAddress{}, false
}

func (s *State) reportIngresses(r *table.Reader, mesh, zone string) []IngressReport {
	doors, ok := s.ZoneAddresses.Find(r, mesh, s.zoneAddressName(zone))
	if !ok {
		return nil
	}
	var reports []IngressReport
	for _, a := range doors.Spec.Ingresses {
		report := IngressReport{Zone: zone, Name: a.Name, Address: a.Listener(), Healthy: a.Healthy, Legacy: a.Legacy}
		if zone != s.Zone && kind.NeedsLookup(a.Address) {
			report.Resolved = s.resolve(r, a.Address)
		}
		reports = append(reports, report)
	}
	return reports
}

// zoneAddressName is the name under which the doors of a zone are stored here.
func (s *State) zoneAddressName(zone string) string {
	return s.stored(&kind.MeshZoneAddresses.Info, zone, zone)
}
