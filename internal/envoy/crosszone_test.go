package envoy

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"

	"weft/internal/match"
	"weft/internal/proxy"
	"weft/internal/service"
	"weft/internal/testwait"
	"weft/internal/xds"
	"weft/kind"
)

// A zone egress that is also an ingress forwards the same SNI to remote zones at the egress listener and to its own
// zone at the ingress listener. It forwards to no other cluster of its Envoy.
func TestWhereAnEgressForwardsCrossZone(t *testing.T) {
	const (
		sni    = "a0123456789abcdef.web.80.default.mzms"
		remote = "a0123456789abcdef.remote.80.default.ms"
	)
	east := newAuthority(t, domainEast)
	app, heard := listener(t)
	server := inboundTo(t, app, kind.TCP, match.Rule{Origin: "the client", IDPattern: kind.IDPattern{Exact: clientID}})
	otherApp, heardByOther := listener(t)
	other := inboundTo(t, otherApp, kind.TCP, match.Rule{Origin: "the client",
		IDPattern: kind.IDPattern{Exact: clientID}})
	startEnvoy(t, append(inboundResources(other), trust(east), certificateSecret(t, east.certificate(t, serverID)))...)

	proxy := &proxy.IngressListener{Address: "127.0.0.1", Port: freePort(t)}
	out := freePort(t)
	here := []service.Endpoint{{Address: server.Address, Port: server.Port}}
	there := []service.Endpoint{{Address: other.Address, Port: other.Port}}
	startEnvoy(t, append(slices.Concat(inboundResources(server), Ingress(proxy), crossZoneListener(out)),
		trust(east), certificateSecret(t, east.certificate(t, serverID)),
		ClusterOfSNIRoute(sni, service.Effective{}), EndpointsOfSNIRoute(sni, here),
		ClusterOfSNIRoute(sni+crossZoneSuffix, service.Effective{}), EndpointsOfSNIRoute(sni+crossZoneSuffix, there),
		ClusterOfSNIRoute(remote+crossZoneSuffix, service.Effective{}),
		EndpointsOfSNIRoute(remote+crossZoneSuffix, there))...)

	for _, c := range []struct {
		name        string
		port        uint32
		sni         string
		here, there bool
	}{
		{"the ingress", proxy.Port, sni, true, false},
		{"the egress", out, sni, false, true},
		{"the egress, in capitals", out, strings.ToUpper(sni), false, true},
		{"the egress, one zone's service", out, remote, false, true},
		{"the ingress, another zone's service", proxy.Port, remote, false, false},
		{"the ingress, a cluster of the egress", proxy.Port, sni + crossZoneSuffix, false, false},
		{"the egress, a cluster of its own", out, sni + crossZoneSuffix, false, false},
		{"the egress, an unknown name", out, "a0123456789abcdef.gone.80.default.ms", false, false},
		{"the egress, no name", out, "", false, false},
		{"the egress, the agent", out, identityCluster, false, false},
		{"the egress, the application beside it", out, fmt.Sprintf("self_inbound_127.0.0.1_%d", server.Port), false,
			false},
	} {
		t.Run(c.name, func(t *testing.T) {
			at := fmt.Sprintf("127.0.0.1:%d", c.port)
			conn, err := tls.DialWithDialer(&net.Dialer{Timeout: testwait.Timeout}, "tcp", at,
				naming(east.certificate(t, clientID), c.sni))
			if err == nil {
				defer conn.Close()
				_, _ = io.WriteString(conn, "x")
				_, err = io.ReadFull(conn, make([]byte, 1))
			}
			if through := err == nil; through != (c.here || c.there) || heard.Swap(0) > 0 != c.here ||
				heardByOther.Swap(0) > 0 != c.there {
				t.Errorf("gets through: %v (%v), want here %v and there %v", through, err, c.here, c.there)
			}
		})
	}
}

// crossZoneListener returns a listener that forwards to remote zones only.
func crossZoneListener(port uint32) []*xds.Resource {
	place := fmt.Sprintf("egress_127.0.0.1_%d", port)
	name := "self_" + place
	return append(crossZoneContents(place), xds.NewResource(xds.Listener, name, &listenerv3.Listener{
		Name: name, Address: socketAddress("127.0.0.1", port),
		ListenerFilters: inspectTLS(), ListenerFiltersTimeout: duration(helloTimeout),
		FilterChains: []*listenerv3.FilterChain{crossZoneChain(place)},
	}))
}
