package graph

import (
	"slices"

	"weft/internal/table"
	"weft/kind"
)

// ZoneProxy returns the zone ingress of a remote zone at a dialed address, and its zone.
func (s *State) ZoneProxy(snapshot *table.Snapshot, mesh, address string, port uint32) (zone string,
	proxy kind.ZoneProxyAddress, ok bool) {
	r := table.Eval(snapshot)
	for o := range s.ZoneAddresses.From(snapshot, MeshKey(mesh), "") {
		zone := s.ZoneOf(&o.Meta)
		for _, proxy := range o.Spec.Ingresses {
			if zone != s.Zone && proxy.Port == port && slices.Contains(s.resolve(r, proxy.Address), address) {
				return zone, proxy, true
			}
		}
	}
	return "", kind.ZoneProxyAddress{}, false
}

func (s *State) reportIngresses(r *table.Reader, mesh, zone string) []IngressReport {
	proxies, ok := s.ZoneAddresses.Find(r, mesh, s.zoneAddressName(zone))
	if !ok {
		return nil
	}
	var reports []IngressReport
	for _, a := range proxies.Spec.Ingresses {
		report := IngressReport{Zone: zone, Name: a.Name, Address: a.Listener(), Healthy: a.Healthy, Legacy: a.Legacy}
		if zone != s.Zone && kind.NeedsLookup(a.Address) {
			report.Resolved = s.resolve(r, a.Address)
		}
		reports = append(reports, report)
	}
	return reports
}

// zoneAddressName returns the stored name of a zone's addresses.
func (s *State) zoneAddressName(zone string) string {
	return s.storedName(&kind.MeshZoneAddresses.Info, zone, zone)
}
