package dpserver_test

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	grpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"weft/internal/admission"
	"weft/internal/dpserver"
	"weft/internal/replica"
	"weft/internal/store/memory"
	"weft/internal/testwait"
)

// TestSourcesOfConnections: a connection vouches for the address from which it comes, or over the loopback interface
// for those of the machine. A load balancer vouches for none, nor do Nodes and the Pods of the control planes on
// Kubernetes. The setting says whether the machines of control planes do.
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
	replica, peer := joined(t), "192.0.2.20"
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
		"its own address":                     {from: own, loopbackVouches: true, equals: []string{own}},
		"its own address, by the setting":     {from: own},
		"another replica":                     {from: peer, loopbackVouches: true, equals: []string{peer}},
		"another replica, by the setting":     {from: peer},
		"another replica as a Pod":            {from: peer, onKubernetes: true, loopbackVouches: true},
		"a replica that is gone":              {from: "192.0.2.30", equals: []string{"192.0.2.30"}},
		"a Node":                              {from: "192.0.2.40", onKubernetes: true},
		"a Node in the form of IPv6":          {from: "::ffff:192.0.2.40", onKubernetes: true},
		"that address outside of Kubernetes":  {from: "192.0.2.40", equals: []string{"192.0.2.40"}},
		"its own address as that of its Pod":  {from: own, onKubernetes: true},
		"its own address in the form of IPv6": {from: "::ffff:" + own, onKubernetes: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := &dpserver.Server{Config: dpserver.Config{LoopbackVouches: c.loopbackVouches, Instance: replica,
				Forwarders: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}}}
			if c.onKubernetes {
				s.Pods, s.Nodes = issued{}, nodes{"192.0.2.40"}
			}
			from := net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(c.from), 40000))
			got, err := s.SourcesOf(grpcpeer.NewContext(t.Context(), &grpcpeer.Peer{Addr: from}))
			if err != nil {
				t.Fatal(err)
			}
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

// TestNoSourceBeforeTheNodesAreKnown: the caller tries again, so that no stored address is replaced meanwhile.
func TestNoSourceBeforeTheNodesAreKnown(t *testing.T) {
	s := &dpserver.Server{Config: dpserver.Config{Instance: joined(t), Pods: issued{}, Nodes: nodes(nil)}}
	from := net.TCPAddrFromAddrPort(netip.MustParseAddrPort("192.0.2.7:40000"))
	got, err := s.SourcesOf(grpcpeer.NewContext(t.Context(), &grpcpeer.Peer{Addr: from}))
	if status.Code(err) != codes.Unavailable {
		t.Errorf("it vouches for %q (%v), want Unavailable", got, err)
	}
}

// nodes are the addresses of Nodes; nil: they are not known yet.
type nodes []string

func (n nodes) HasAddress(address netip.Addr) (has, known bool) {
	return slices.Contains(n, address.String()), n != nil
}

// joined is a replica beside one at 192.0.2.20. A third one, at 192.0.2.30, has left.
func joined(t *testing.T) *replica.Member {
	t.Helper()
	rows := memory.New(memory.Options{})
	t.Cleanup(func() { _ = rows.Close() })
	join := func(id, address string) (*replica.Member, func()) {
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		member, err := replica.Join(ctx, replica.Config{ID: id, Store: rows, Log: slog.New(slog.DiscardHandler),
			Writer: admission.New(rows, admission.Options{}), Addresses: func() []string { return []string{address} },
			HasLostClients: func(string) bool { return false }})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() { defer close(done); member.Run(ctx) }()
		return member, func() { cancel(); <-done }
	}
	_, leave := join("gone", "192.0.2.30")
	join("peer", "192.0.2.20")
	self, _ := join("self", "192.0.2.10")
	leave()
	testwait.UntilTrue(t, "one has left", func() bool { return self.Replicas() == 1 })
	if self.IsPeerAddress("192.0.2.10") {
		t.Error("it is its own peer")
	}
	return self
}
