package proxy

import (
	"cmp"
	"net/netip"
	"slices"

	"weft/internal/service"
	"weft/internal/table"
)

// hosts returns the host names that the proxies of a group resolve, sorted and unique: those of the destinations that
// they reach at virtual IPs. A name has no addresses outside the group's IP families, and may be without addresses.
func (s *Stage) hosts(r *table.Reader, group Group) []service.Host {
	if !group.Transparent {
		return nil
	}
	var hosts []service.Host
	var last service.DestinationKey
	for _, key := range s.Reached.Get(r, group.ReachKey()) {
		if key = key.Of(); key == last { // the ports of a destination follow each other
			continue
		}
		last = key
		for _, host := range s.services.HostsOf.Get(r, key) {
			host.Addresses = ofFamilies(host.Addresses, group.IPFamilies)
			hosts = append(hosts, host)
		}
	}
	slices.SortStableFunc(hosts, func(a, b service.Host) int { return cmp.Compare(a.Name, b.Name) })
	return slices.CompactFunc(hosts, func(a, b service.Host) bool { return a.Name == b.Name })
}

// ofFamilies returns the addresses of the given IP families.
func ofFamilies(addresses []netip.Addr, families string) []netip.Addr {
	left := func(a netip.Addr) bool { return !HasFamily(families, a.Is6()) }
	if !slices.ContainsFunc(addresses, left) {
		return addresses
	}
	return slices.DeleteFunc(slices.Clone(addresses), left)
}
