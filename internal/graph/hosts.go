package graph

import (
	"cmp"
	"net/netip"
	"slices"

	"weft/internal/table"
)

// Host is a host name of a destination, with the virtual IPs that it resolves to.
type Host struct {
	Name      string       // lower case, without a final dot
	Addresses []netip.Addr // in the order of the destination's; may be empty
}

func equalHosts(a, b []Host) bool {
	return slices.EqualFunc(a, b, func(a, b Host) bool {
		return a.Name == b.Name && slices.Equal(a.Addresses, b.Addresses)
	})
}

// hostsOf returns the host names of a destination, whose key is [DestinationKey.Of].
func (s *State) hostsOf(r *table.Reader, key DestinationKey) []Host {
	at := s.places(r, key)
	var addresses []netip.Addr
	for _, vip := range at.VIPs {
		if address, err := netip.ParseAddr(vip.IP); err == nil {
			addresses = append(addresses, address)
		}
	}
	var hosts []Host
	for _, name := range at.Addresses {
		hosts = append(hosts, Host{name.Hostname, addresses})
	}
	return hosts
}

// hosts returns the host names that the proxies of a group resolve, sorted and unique: those of the destinations that
// they reach at virtual IPs. A name has no addresses outside the group's IP families, and may be without addresses.
func (s *State) hosts(r *table.Reader, group ProxyGroup) []Host {
	if !group.Transparent {
		return nil
	}
	var hosts []Host
	var last DestinationKey
	for _, key := range s.Reached.Get(r, group) {
		if key = key.Of(); key == last { // the ports of a destination follow each other
			continue
		}
		last = key
		for _, host := range s.HostsOf.Get(r, key) {
			host.Addresses = ofFamilies(host.Addresses, group.IPFamilies)
			hosts = append(hosts, host)
		}
	}
	slices.SortStableFunc(hosts, func(a, b Host) int { return cmp.Compare(a.Name, b.Name) })
	return slices.CompactFunc(hosts, func(a, b Host) bool { return a.Name == b.Name })
}

// ofFamilies returns the addresses of the given IP families.
func ofFamilies(addresses []netip.Addr, families string) []netip.Addr {
	left := func(a netip.Addr) bool { return !HasFamily(families, a.Is6()) }
	if !slices.ContainsFunc(addresses, left) {
		return addresses
	}
	return slices.DeleteFunc(slices.Clone(addresses), left)
}
