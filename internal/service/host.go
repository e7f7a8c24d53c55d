package service

import (
	"net/netip"
	"slices"

	"weft/internal/table"
)

// Host is a host name of a destination, with the virtual IPs that it resolves to.
type Host struct {
	Name      string       // lower case, without a final dot
	Addresses []netip.Addr // in the order of the destination's; may be empty
}

// EqualHosts returns whether two lists of host names are equal, in order and in the addresses.
func EqualHosts(a, b []Host) bool {
	return slices.EqualFunc(a, b, func(a, b Host) bool {
		return a.Name == b.Name && slices.Equal(a.Addresses, b.Addresses)
	})
}

// hostsOf returns the host names of a destination, whose key is [DestinationKey.ServiceKey].
func (s *Stage) hostsOf(r *table.Reader, key DestinationKey) []Host {
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
