package zoneroute

import (
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// formerIngresses returns the ingresses of a zone that are dialed until a host name that it advertises has addresses.
func (s *Stage) formerIngresses(r *table.Reader, name, mesh, zone string) []Hop {
	row, ok := s.state.ResolvedNames.Find(r, "", name)
	if !ok {
		return nil
	}
	var ingresses []Hop
	for _, former := range row.Spec.Former {
		if former.Mesh != mesh || former.Zone != zone {
			continue
		}
		for _, ingress := range former.Ingresses {
			ingresses = append(ingresses, Hop{Address: ingress.Address, Port: ingress.Port, Zone: zone})
		}
	}
	return ingresses
}

// KeepIngresses returns the rows that have the former ingresses of another zone dialed, where the zone advertises host
// names now of which none is resolved yet: a change of address alone never empties a list that works. before is the
// table before the change.
func (s *Stage) KeepIngresses(before, after *table.Reader, mesh, zone string) []*resource.Object[kind.ResolvedName] {
	row, ok := s.state.ZoneAddress(after, mesh, zone)
	if !ok || len(s.Ingresses(after, mesh, zone)) > 0 {
		return nil
	}
	former := kind.FormerIngresses{Mesh: mesh, Zone: zone}
	for _, e := range s.Ingresses(before, mesh, zone) {
		former.Ingresses = append(former.Ingresses, kind.IngressEndpoint{Address: e.Address, Port: e.Port})
	}
	if len(former.Ingresses) == 0 {
		return nil
	}
	var rows []*resource.Object[kind.ResolvedName]
	for _, name := range s.state.HostNames(row) {
		kept := kind.ResolvedNames.Make("", name, kind.ResolvedName{})
		if stored, ok := s.state.ResolvedNames.Find(after, "", name); ok {
			*kept = *stored
		}
		if kept.Spec.Keep(former) {
			rows = append(rows, kept)
		}
	}
	return rows
}

// LookedUp returns the rows of the host names that MeshZoneAddresses have, and whether each name has addresses or,
// where no former ingress is dialed in its place, has been looked up. Keys of other kinds are ignored.
func (s *Stage) LookedUp(r *table.Reader, rows []resource.Key) (names []resource.Key, all bool) {
	all = true
	for _, key := range rows {
		o, ok := s.state.ZoneAddresses.Find(r, key.Mesh, key.Name)
		if key.Kind != kind.MeshZoneAddresses.Name || !ok {
			continue
		}
		for _, name := range s.state.HostNames(o) {
			all = all && s.lookedUp(r, name, o.Mesh, s.state.ZoneOf(&o.Meta))
			names = append(names, kind.ResolvedNames.Key("", name))
		}
	}
	return names, all
}

func (s *Stage) lookedUp(r *table.Reader, name, mesh, zone string) bool {
	row, ok := s.state.ResolvedNames.Find(r, "", name)
	if !ok {
		return false
	}
	return len(row.Spec.Addresses) > 0 || row.Spec.Problem != "" && len(s.formerIngresses(r, name, mesh, zone)) == 0
}
