package proxy

import (
	"cmp"
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
// virtual IPs. A name has the addresses that their machines dial, and may be without any.
func (s *Stage) hosts(r *table.Reader, of HostsKey) []service.Host {
	if of.Families == "" { // not transparent
		return nil
	}
	var hosts []service.Host
	var last service.DestinationKey
	for _, key := range s.Reached.Get(r, of.ReachKey) {
		if key = key.ServiceKey(); key == last { // the ports of a destination follow each other
			continue
		}
		last = key
		for _, host := range s.services.HostsOf.Get(r, key) {
			host.Addresses = kind.DialedVIPs(host.Addresses, of.Families)
			hosts = append(hosts, host)
		}
	}
	slices.SortStableFunc(hosts, func(a, b service.Host) int { return cmp.Compare(a.Name, b.Name) })
	return slices.CompactFunc(hosts, func(a, b service.Host) bool { return a.Name == b.Name })
}
