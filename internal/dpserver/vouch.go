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
			kind.VouchToken(o, o, c.dataplane.ClaimedFacts(o))
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
	return slices.ContainsFunc(c.dataplane.ClaimedFacts(o), func(fact string) bool { return !o.Vouched.Has(fact) })
}

// Nodes are the Nodes of a cluster. They forward connections to a Service under their own addresses, unless it has
// externalTrafficPolicy: Local.
type Nodes interface {
	// HasAddress reports whether a Node has an address. known is false before the Nodes were read.
	HasAddress(address netip.Addr) (has, known bool)
}

// sourcesOf returns the address for which the connection of a caller vouches: the one from which it comes. A connection
// over the loopback interface comes from the machine of the control plane, so it has all addresses of that machine. The
// address of a load balancer is none of its clients, nor is that of a Node. On Kubernetes the machine of a control
// plane is its Pod, which runs no other proxy: an agent that comes from there was forwarded, such as by `kubectl
// port-forward`. On machines the setting LoopbackVouches says whether proxies run beside a control plane. The API
// server vouches for the address of a Pod.
func (s *Server) sourcesOf(ctx context.Context, c *caller) ([]string, error) {
	p, ok := grpcpeer.FromContext(ctx)
	if !ok || c.pod != nil {
		return nil, nil
	}
	from, err := netip.ParseAddrPort(p.Addr.String())
	if err != nil {
		return nil, nil
	}
	address := from.Addr().Unmap().WithZone("")
	switch {
	case slices.ContainsFunc(s.Forwarders, func(n netip.Prefix) bool { return n.Contains(address) }):
		return nil, nil
	case s.Pods != nil:
		return s.sourcesOnKubernetes(address)
	case address.IsLoopback() && s.LoopbackVouches:
		return append([]string{"127.0.0.0/8", "::1"}, MachineAddresses()...), nil
	case !s.LoopbackVouches && s.isControlPlane(address):
		return nil, nil
	}
	return []string{address.String()}, nil
}

// sourcesOnKubernetes returns the addresses for which a connection from an address vouches in a zone on Kubernetes.
func (s *Server) sourcesOnKubernetes(address netip.Addr) ([]string, error) {
	if address.IsLoopback() || s.isControlPlane(address) {
		return nil, nil
	}
	isNode, known := s.Nodes.HasAddress(address)
	switch {
	case !known:
		return nil, status.Error(codes.Unavailable,
			"the Nodes of the cluster are not known yet, whose addresses vouch for no proxy; try again")
	case isNode:
		return nil, nil
	}
	return []string{address.String()}, nil
}

// isControlPlane reports whether an address is one of the machine of a replica, this one or another.
func (s *Server) isControlPlane(address netip.Addr) bool {
	return slices.Contains(MachineAddresses(), address.String()) || s.Instance.IsPeerAddress(address.String())
}

// maxOwnAddresses bounds the addresses of the control plane's machine that a row has.
const maxOwnAddresses = 30

// MachineAddresses returns the addresses of the interfaces of this machine, except the loopback interface, sorted.
func MachineAddresses() []string {
	var own []string
	all, _ := net.InterfaceAddrs() // without them, none is known
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
