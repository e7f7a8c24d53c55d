package dpserver_test

import (
	"net"
	"net/netip"
	"slices"
	"testing"

	grpcpeer "google.golang.org/grpc/peer"

	"weft/internal/dpserver"
)

// TestSourcesOfConnections: a connection vouches for the address from which it comes, or over the loopback interface
// for those of the machine. A load balancer, and on Kubernetes the Pod of the control plane, vouch for none.
func TestSourcesOfConnections(t *testing.T) {
	own := "127.0.0.1"
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		if network, err := netip.ParsePrefix(a.String()); err == nil && network.Addr().Is4() &&
			!network.Addr().IsLoopback() && !network.Addr().IsLinkLocalUnicast() {
			own = network.Addr().String()
		}
	}
	loopback := []string{"127.0.0.0/8", "::1"}
	for name, c := range map[string]struct {
		from             string
		onKubernetes     bool
		loopbackVouches  bool
		contains, equals []string
	}{
		"a machine":                           {from: "192.0.2.7", equals: []string{"192.0.2.7"}},
		"a machine, in a zone on Kubernetes":  {from: "192.0.2.7", onKubernetes: true, equals: []string{"192.0.2.7"}},
		"a load balancer":                     {from: "198.51.100.7"},
		"loopback":                            {from: "127.0.0.1", loopbackVouches: true, contains: loopback},
		"loopback, by the setting":            {from: "127.0.0.1", equals: []string{"127.0.0.1"}},
		"loopback of a Pod":                   {from: "127.0.0.1", onKubernetes: true, loopbackVouches: true},
		"loopback of a Pod, by the setting":   {from: "::1", onKubernetes: true},
		"its own address":                     {from: own, equals: []string{own}},
		"its own address as that of its Pod":  {from: own, onKubernetes: true},
		"its own address in the form of IPv6": {from: "::ffff:" + own, onKubernetes: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := &dpserver.Server{Config: dpserver.Config{LoopbackVouches: c.loopbackVouches,
				Forwarders: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}}}
			if c.onKubernetes {
				s.Pods = issued{}
			}
			from := net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(c.from), 40000))
			got := s.SourcesOf(grpcpeer.NewContext(t.Context(), &grpcpeer.Peer{Addr: from}))
			for _, want := range c.contains {
				if !slices.Contains(got, want) {
					t.Errorf("it vouches for %q, want %s too", got, want)
				}
			}
			if c.contains == nil && !slices.Equal(got, c.equals) {
				t.Errorf("it vouches for %q, want %q", got, c.equals)
			}
		})
	}
}
