package identity

import (
	"net/netip"
	"slices"

	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// exemption returns what the Mesh exempts; a missing one exempts everything.
func (s *Stage) exemption(r *table.Reader, mesh string) kind.Exemption {
	o, ok := s.state.Meshes.Find(r, "", mesh)
	if !ok {
		return kind.Exemption{Tags: true, Addresses: true}
	}
	return kind.ExemptionOf(o, r.Past)
}

// sources returns where the last session of a proxy came from.
func (s *Stage) sources(r *table.Reader, key state.ProxyKey) []string {
	row, ok := s.state.ListenerStatuses.Find(r, key.Mesh, key.Name)
	if !ok {
		return nil
	}
	return row.Spec.Sources
}

// VouchesForAddress reports whether somebody vouches for an address of an inbound: the token of the proxy, an operator,
// the API server of Kubernetes, or the connection of its agent. address is an IP address; a Dataplane with a host name
// in its place has the address to which the name resolves.
func (s *Stage) VouchesForAddress(r *table.Reader, dp *resource.Object[kind.Dataplane], address string) bool {
	name := dp.Spec.Networking.Address
	if kind.Vouches(dp, kind.AddressFact(address)) ||
		kind.NeedsLookup(name) && kind.Vouches(dp, kind.AddressFact(name)) {
		return true
	}
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return false
	}
	ip = ip.Unmap()
	return slices.ContainsFunc(s.state.VouchedNetworks, func(n netip.Prefix) bool { return n.Contains(ip) }) ||
		slices.ContainsFunc(s.Sources.Get(r, state.ProxyKey{Mesh: dp.Mesh, Name: dp.Name}), func(source string) bool {
			if source == address {
				return true
			}
			network, err := netip.ParsePrefix(source)
			return err == nil && network.Contains(ip)
		})
}
