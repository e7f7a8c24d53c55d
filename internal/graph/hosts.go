package graph

import (
	"cmp"
	"net/netip"
	"slices"

	"weft/internal/table"
)

// Host is a host name of a destination, with the virtual IPs that it stands for.
type Host struct {
	Name      string       // lower case, without a final dot
	Addresses []netip.Addr // in the order of the destination's; there may be none
}

func equalHosts(a, b []Host) bool {
	return slices.EqualFunc(a, b, func(a, b Host) bool {
		return a.Name == b.Name && slices.Equal(a.Addresses, b.Addresses)
	})
}

// hostsOf are the names of a destination, whose key is [DestinationKey.Of].
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

// hosts are the names that the proxies of a class find: those of what it reaches at virtual IPs, sorted, each
// once. A name has no addresses that the proxies' IP families leave out, and stays a name without them.
func (s *State) hosts(r *table.Reader, class ProxyGroup) []Host {
	if !class.Transparent {
		return nil
	}
	var hosts []Host
	var last DestinationKey
	for _, key := range s.Reached.Get(r, class) {
		if key = key.Of(); key == last { // the ports of a destination follow each other
			continue
		}
		last = key
		for _, host := range s.HostsOf.Get(r, key) {
			host.Addresses = ofFamilies(host.Addresses, class.IPFamilies)
			hosts = append(hosts, host)
		}
	}
	slices.SortStableFunc(hosts, func(a, b Host) int { return cmp.Compare(a.Name, b.Name) })
	return slices.CompactFunc(hosts, func(a, b Host) bool { return a.Name == b.Name })
}

// ofFamilies leaves out the addresses of a family that is not one of these.
func ofFamilies(addresses []netip.Addr, families string) []netip.Addr {
	left := func(a netip.Addr) bool { return !HasFamily(families, a.Is6()) }
	if !slices.ContainsFunc(addresses, left) {
		return addresses
	}
	return slices.DeleteFunc(slices.Clone(addresses), left)
}
