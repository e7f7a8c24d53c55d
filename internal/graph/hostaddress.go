package graph

import (
	"net/netip"
	"slices"

	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// HostNames returns the host names of a resource that this zone resolves, sorted: networking.address of its own
// Dataplanes, and the addresses that other zones advertise. The global control plane resolves none.
func (s *State) HostNames(o resource.Any) []string {
	var addresses []string
	switch o := o.(type) {
	case *resource.Object[kind.Dataplane]:
		if s.Zone != "" && s.isOwn(&o.Meta) {
			addresses = append(addresses, o.Spec.Networking.Address)
		}
	case *resource.Object[kind.MeshZoneAddress]:
		if s.Zone != "" && !s.isOwn(&o.Meta) {
			for _, ingress := range o.Spec.Ingresses {
				addresses = append(addresses, ingress.Address)
			}
		}
	}
	names := slices.DeleteFunc(addresses, func(address string) bool { return !kind.NeedsLookup(address) })
	slices.Sort(names)
	return slices.Compact(names)
}

// hostNameKeys is the index function of the resources that have a host name, by the name.
func hostNameKeys[S any](s *State) func(*resource.Object[S]) []string {
	return func(o *resource.Object[S]) []string { return s.HostNames(o) }
}

func resolvedKeys(row *resource.Object[kind.ResolvedName]) []string {
	var keys []string
	for _, a := range row.Spec.Addresses {
		keys = append(keys, a.Address)
	}
	return keys
}

// Resolve returns the IP addresses that stand for an address, sorted: an IP address for itself, and for a host name
// those to which it resolves or, until clients have moved, did. It returns none of a host name that is not resolved.
// An address of the dialing machine itself is excluded, whatever is stored.
func (s *State) Resolve(r *table.Reader, address string) []string {
	if !kind.NeedsLookup(address) {
		return []string{address}
	}
	row, ok := s.ResolvedNames.Find(r, "", address)
	if !ok || kind.LocalEndpoint(address, s.LocalNetworks) != "" {
		return nil
	}
	var addresses []string
	for _, a := range row.Spec.Addresses {
		if s.dialable(a.Address) {
			addresses = append(addresses, a.Address)
		}
	}
	return addresses
}

func (s *State) dialable(address string) bool {
	ip, err := netip.ParseAddr(address)
	return err == nil && kind.LocalAddress(ip, s.LocalNetworks) == ""
}

// NetworkingOf returns the networking of a Dataplane with an IP address in the place of a host name: the first one to
// which it resolves now; with the host name while it is not resolved.
func (s *State) NetworkingOf(r *table.Reader, dp *resource.Object[kind.Dataplane]) *kind.Networking {
	n := &dp.Spec.Networking
	if !kind.NeedsLookup(n.Address) {
		return n
	}
	resolved := *n
	row, _ := s.ResolvedNames.Find(r, "", n.Address)
	for _, address := range s.Resolve(r, n.Address) {
		current := slices.ContainsFunc(row.Spec.Addresses, func(a kind.ResolvedAddress) bool {
			return a.Address == address && a.Until.IsZero()
		})
		if current {
			resolved.Address = address
			break
		}
	}
	return &resolved
}

// formerIngresses returns the ingresses of a zone that are dialed until a host name that it advertises has addresses.
func (s *State) formerIngresses(r *table.Reader, name, mesh, zone string) []Endpoint {
	row, ok := s.ResolvedNames.Find(r, "", name)
	if !ok {
		return nil
	}
	var endpoints []Endpoint
	for _, former := range row.Spec.Former {
		if former.Mesh != mesh || former.Zone != zone {
			continue
		}
		for _, ingress := range former.Ingresses {
			endpoints = append(endpoints, Endpoint{Address: ingress.Address, Port: ingress.Port, Zone: zone})
		}
	}
	return endpoints
}

// KeepIngresses returns the rows that have the former ingresses of another zone dialed, where the zone advertises host
// names now of which none is resolved yet: a change of address alone never empties a list that works. before is the
// table before the change.
func (s *State) KeepIngresses(before, after *table.Reader, mesh, zone string) []*resource.Object[kind.ResolvedName] {
	row, ok := s.ZoneAddress(after, mesh, zone)
	if !ok || len(s.ingressesOf(after, mesh, zone)) > 0 {
		return nil
	}
	former := kind.FormerIngresses{Mesh: mesh, Zone: zone}
	for _, e := range s.ingressesOf(before, mesh, zone) {
		former.Ingresses = append(former.Ingresses, kind.IngressEndpoint{Address: e.Address, Port: e.Port})
	}
	if len(former.Ingresses) == 0 {
		return nil
	}
	var rows []*resource.Object[kind.ResolvedName]
	for _, name := range s.HostNames(row) {
		kept := kind.ResolvedNames.Make("", name, kind.ResolvedName{})
		if stored, ok := s.ResolvedNames.Find(after, "", name); ok {
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
func (s *State) LookedUp(r *table.Reader, rows []resource.Key) (names []resource.Key, all bool) {
	all = true
	for _, key := range rows {
		o, ok := s.ZoneAddresses.Find(r, key.Mesh, key.Name)
		if key.Kind != kind.MeshZoneAddresses.Name || !ok {
			continue
		}
		for _, name := range s.HostNames(o) {
			all = all && s.lookedUp(r, name, o.Mesh, s.ZoneOf(&o.Meta))
			names = append(names, kind.ResolvedNames.Key("", name))
		}
	}
	return names, all
}

func (s *State) lookedUp(r *table.Reader, name, mesh, zone string) bool {
	row, ok := s.ResolvedNames.Find(r, "", name)
	if !ok {
		return false
	}
	return len(row.Spec.Addresses) > 0 || row.Spec.Problem != "" && len(s.formerIngresses(r, name, mesh, zone)) == 0
}
