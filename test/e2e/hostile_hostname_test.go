package e2e

import (
	"strings"
	"sync/atomic"
	"testing"
)

// The DNS server of a host name, of another zone's ingresses or of a Dataplane, leads no proxy to its own machine, its
// link or a cloud's metadata. A resolver that hangs costs no request.
func TestHostileHostNamesOnTheClientsMachine(t *testing.T) {
	a := newAttack(t, "a name of an ingress or a Dataplane leads to the client's own machine")
	f := newFederation(t)
	east, west := f.eastAndWestBy(crossZoneRules, "KUMA_HOST_NAMES_RESOLVERS="+resolverAddress,
		"KUMA_EGRESS_ALLOWED_LOCAL_NETWORKS=")
	names, _ := startResolverOn(t, west.machine, resolverAddress)
	url := west.outbound(3, "http")
	connections := west.countsConnections("127.0.0.1:20100", "127.0.0.1:20080", "[::1]:20100", "[::1]:20080")

	names.Set("lb.example", "A", east.address(10))
	names.Set("local.example", "A", "127.0.0.1")
	east.apply(ingressAt("ingress-1", 10, "lb.example"))
	west.eventually("the name is resolved", func() error { return west.resolves("lb.example", "") })
	west.passes(url, "web-1")
	west.proxy("default", "local-client", webClient("local-client", 4, "west", 80))
	west.apply(service("web", webPorts))
	west.apply(strings.Replace(webServer("local", 5), "address: NET.5\n  inbound", "address: local.example\n  inbound",
		1))

	for _, records := range []struct {
		kind      string
		addresses []string
	}{
		{"A", []string{"127.0.0.1", "169.254.169.254", "0.0.0.0"}},
		{"AAAA", []string{"::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1"}},
	} {
		names.Set("lb.example", "A")
		names.Set("lb.example", "AAAA")
		names.Set("lb.example", records.kind, records.addresses...)
		for _, address := range records.addresses {
			shown := strings.TrimPrefix(address, "::ffff:") // the IPv4 address that it maps
			west.eventually(address+" is found", func() error { return west.resolves("lb.example", shown+" is") })
			west.lacksAddress(a, address)
		}
		if body, err := west.machine.fetch(url); err != nil || !strings.Contains(body, "web-1") {
			a.fellTo("with %v no request gets to the ingress that was known before: %v %s", records.addresses, err,
				body)
		}
	}
	west.eventually("the name of the Dataplane is found", func() error {
		return west.resolves("local.example", "127.0.0.1 is a loopback address")
	})
	west.lacksAddress(a, "127.0.0.1:20080")
	if n := connections.Load(); n > 0 {
		a.fellTo("%d connections came to the client's own machine", n)
	}

	names.Silence(true)
	names.Set("lb.example", "A", east.address(10))
	if body, err := west.machine.fetch(url); err != nil {
		a.fellTo("a resolver that hangs costs a request: %v %s", err, body)
	}
	a.repelled()
}

// lacksAddress counts whether the Envoy of a client has an address.
func (w *world) lacksAddress(a *attack, address string) {
	w.t.Helper()
	for _, proxy := range []string{"client", "local-client"} {
		clusters := w.page(proxy, "clusters")
		switch {
		case strings.Contains(clusters, "::"+address+":") || strings.Contains(clusters, "::["+address+"]:") ||
			strings.Contains(clusters, "::"+address+"::"):
			a.fellTo("the Envoy of %s dials %s", proxy, address)
		default:
			a.repelled()
		}
	}
}

// countsConnections listens at addresses of the world's machine, and counts connections.
func (w *world) countsConnections(addresses ...string) *atomic.Int32 {
	w.t.Helper()
	connections := &atomic.Int32{}
	for _, address := range addresses {
		go countConnections(w.machine.listen(w.t, address), connections)
	}
	return connections
}
