package dpserver

import (
	"context"
	"net"
	"net/netip"
	"slices"

	"google.golang.org/grpc/codes"
	grpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"weft/internal/admission"
	"weft/internal/state"
	"weft/kind"
	"weft/resource"
)

// recordClaims records the facts of a Dataplane for which the token of a caller is the first voucher, as a registration
// would. So a proxy whose token is replaced need not register again.
func (s *Server) recordClaims(ctx context.Context, c *caller, key state.ProxyKey) error {
	if c.dataplane == nil {
		return nil
	}
	if known, ok := s.Rows.Dataplane(key); ok && !claimsMore(c, known) {
		return nil
	}
	var denied error
	err := admission.Modify(ctx, s.Writer, kind.Dataplanes, key.Mesh, key.Name,
		func(o *resource.Object[kind.Dataplane]) bool {
			if o.Version == "" || c.checkPermitted(o) != nil || o.Vouched.User {
				return false // it was deleted or changed meanwhile
			}
			if denied = c.admissionToken().Allows(o, o); denied != nil || !claimsMore(c, o) {
				return false
			}
			s.noteTakeover(ctx, c, o)
			kind.VouchToken(o, o, c.dataplane.Claimed(o))
			return true
		})
	if denied != nil {
		return status.Error(codes.PermissionDenied, denied.Error())
	}
	if err != nil {
		return s.statusError(err, "recording what the token of "+key.String()+" vouches for")
	}
	return nil
}

// claimsMore reports whether the token of a caller vouches for a fact that had no voucher before.
func claimsMore(c *caller, o *resource.Object[kind.Dataplane]) bool {
	return slices.ContainsFunc(c.dataplane.Claimed(o), func(fact string) bool { return !o.Vouched.Has(fact) })
}

// sourcesOf returns the address from which a connection comes. A connection over the loopback interface comes from the
// machine of the control plane, so it has all addresses of that machine, unless the settings end that. The address of a
// load balancer is none of its clients. On Kubernetes the machine is the Pod of the control plane, which runs no other
// proxy: an agent that comes from there was forwarded, such as by `kubectl port-forward`.
func (s *Server) sourcesOf(ctx context.Context) []string {
	p, ok := grpcpeer.FromContext(ctx)
	if !ok {
		return nil
	}
	from, err := netip.ParseAddrPort(p.Addr.String())
	if err != nil {
		return nil
	}
	address := from.Addr().Unmap().WithZone("")
	switch {
	case slices.ContainsFunc(s.Forwarders, func(n netip.Prefix) bool { return n.Contains(address) }):
		return nil
	case s.Pods != nil && (address.IsLoopback() || slices.Contains(ownAddresses(), address.String())):
		return nil
	case address.IsLoopback() && s.LoopbackVouches:
		return ownAddresses()
	}
	return []string{address.String()}
}

// maxOwnAddresses bounds the addresses of the control plane's machine that a row has.
const maxOwnAddresses = 32

// ownAddresses returns the loopback networks and the addresses of the interfaces of this machine, sorted.
func ownAddresses() []string {
	own := []string{"127.0.0.0/8", "::1"}
	all, _ := net.InterfaceAddrs() // without them, the loopback networks remain
	for _, a := range all {
		network, err := netip.ParsePrefix(a.String())
		if address := network.Addr().Unmap(); err == nil && !address.IsLoopback() && !address.IsLinkLocalUnicast() {
			own = append(own, address.String())
		}
	}
	slices.Sort(own)
	own = slices.Compact(own)
	return own[:min(len(own), maxOwnAddresses)]
}
