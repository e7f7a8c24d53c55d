package proxy

import (
	"cmp"
	"net/netip"
	"slices"

	"weft/internal/service"
	"weft/internal/table"
	"weft/kind"
)

// HostsKey identifies the host names that proxies resolve.
type HostsKey struct {
	ReachKey
	Families kind.IPFamilies // as [Group.IPFamilies] has them
}

// HostsKey returns the key of the host names that the proxies of the group resolve.
func (g Group) HostsKey() HostsKey { return HostsKey{g.ReachKey(), g.IPFamilies} }

// hosts returns the host names that proxies resolve, sorted and unique: those of the destinations that they reach at
// virtual IPs. A name has no addresses outside their IP families, and may be without addresses.
func (s *Stage) hosts(r *table.Reader, of HostsKey) []service.Host {
	if of.Families == "" { // not transparent
		return nil
	}
	var hosts []service.Host
	var last service.DestinationKey
	for _, key := range s.Reached.Get(r, of.ReachKey) {
		if key = key.Of(); key == last { // the ports of a destination follow each other
			continue
		}
		last = key
		for _, host := range s.services.HostsOf.Get(r, key) {
			host.Addresses = ofFamilies(host.Addresses, of.Families)
			hosts = append(hosts, host)
		}
	}
	slices.SortStableFunc(hosts, func(a, b service.Host) int { return cmp.Compare(a.Name, b.Name) })
	return slices.CompactFunc(hosts, func(a, b service.Host) bool { return a.Name == b.Name })
}

// ofFamilies returns the addresses of the given IP families.
func ofFamilies(addresses []netip.Addr, families kind.IPFamilies) []netip.Addr {
	left := func(a netip.Addr) bool { return !families.Has(a.Is6()) }
	if !slices.ContainsFunc(addresses, left) {
		return addresses
	}
	return slices.DeleteFunc(slices.Clone(addresses), left)
}
