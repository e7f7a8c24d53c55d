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

// Voucher is who vouches for a fact of a Dataplane (see [kind.Facts]).
type Voucher string

// The vouchers of a fact.
const (
	NoVoucher    Voucher = "none"
	ByOperator   Voucher = "operator"
	ByToken      Voucher = "token"
	ByAPIServer  Voucher = "API server" // of Kubernetes: the Dataplane is that of a Pod
	ByNetwork    Voucher = "vouchedNetworks"
	ByConnection Voucher = "connection of the agent"
)

// VouchesForAddress reports whether somebody vouches for an address of an inbound: the token of the proxy, an operator,
// the API server of Kubernetes, the settings, or the connection of its agent. address is an IP address; a Dataplane
// with a host name in its place has the address to which the name resolves.
func (s *Stage) VouchesForAddress(r *table.Reader, dp *resource.Object[kind.Dataplane], address string) bool {
	name := dp.Spec.Networking.Address
	return kind.Vouches(dp, kind.AddressFact(address)) ||
		kind.NeedsLookup(name) && kind.Vouches(dp, kind.AddressFact(name)) ||
		s.voucherOfSource(r, dp, address) != NoVoucher
}

// HadVoucherForAddress reports whether an address at which a Dataplane had an endpoint had a voucher in its record, see
// [kind.HadVoucher].
func (s *Stage) HadVoucherForAddress(dp *resource.Object[kind.Dataplane], address string) bool {
	name := dp.Spec.Networking.Address
	return kind.HadVoucher(dp, kind.AddressFact(address)) &&
		(!kind.NeedsLookup(name) || kind.HadVoucher(dp, kind.AddressFact(name)))
}

// voucherOfSource returns the voucher of an IP address that the record of a Dataplane lacks.
func (s *Stage) voucherOfSource(r *table.Reader, dp *resource.Object[kind.Dataplane], address string) Voucher {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return NoVoucher
	}
	ip = ip.Unmap()
	if slices.ContainsFunc(s.state.VouchedNetworks, func(n netip.Prefix) bool { return n.Contains(ip) }) {
		return ByNetwork
	}
	sources := s.Sources.Get(r, state.ProxyKey{Mesh: dp.Mesh, Name: dp.Name})
	if slices.ContainsFunc(sources, func(source string) bool {
		if source == address {
			return true
		}
		network, err := netip.ParsePrefix(source)
		return err == nil && network.Contains(ip)
	}) {
		return ByConnection
	}
	return NoVoucher
}

// VoucherOf returns who vouches for a fact of a Dataplane. A host name has the voucher of the address to which it
// resolves, unless it has one of its own. The record has the name of the Dataplane in its zone, also on global.
func (s *Stage) VoucherOf(r *table.Reader, dp *resource.Object[kind.Dataplane], fact string) Voucher {
	f := kind.ReadFact(fact)
	address := f.Address
	if f.Name != "" && !kind.Vouches(dp, fact) {
		fact = kind.NameFact(kind.OwnerName(&kind.Dataplanes.Info, &dp.Meta))
	}
	switch {
	case !kind.Vouches(dp, fact) && address == "":
		return NoVoucher
	case !kind.Vouches(dp, fact):
		if address == dp.Spec.Networking.Address {
			address = s.state.NetworkingOf(r, dp).Address
		}
		return s.voucherOfSource(r, dp, address)
	case dp.Label(kind.PodUIDLabel) != "":
		return ByAPIServer
	}
	if by, _ := dp.Vouched.Partition([]string{fact}); len(by.Token) > 0 {
		return ByToken
	}
	return ByOperator // also the one who wrote the Dataplane under an earlier release
}
