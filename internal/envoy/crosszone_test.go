package envoy

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"

	"weft/internal/graph"
	"weft/internal/match"
	"weft/internal/xds"
	"weft/kind"
)

// A zone egress that is an ingress too passes on by the same server name to other zones at the one listener and to
// its own zone at the other, unopened, and to nothing else that its Envoy has.
func TestWhereAnEgressLeadsAbroad(t *testing.T) {
	const (
		sni    = "a0123456789abcdef.web.80.default.mzms"
		remote = "a0123456789abcdef.remote.80.default.ms"
	)
	east := newAuthority(t, domainEast)
	app, heard := listener(t)
	server := inboundTo(t, app, kind.TCP, match.Rule{Origin: "the client", Exact: clientID})
	elsewhere, heardElsewhere := listener(t)
	other := inboundTo(t, elsewhere, kind.TCP, match.Rule{Origin: "the client", Exact: clientID})
	startEnvoy(t, append(behind(other), trust(east), identity(t, east.leaf(t, serverID)))...)

	door := &graph.IngressListener{Address: "127.0.0.1", Port: freePort(t)}
	out := freePort(t)
	here := []graph.Endpoint{{Address: server.Address, Port: server.Port}}
	there := []graph.Endpoint{{Address: other.Address, Port: other.Port}}
	startEnvoy(t, append(behind(server),
		trust(east), identity(t, east.leaf(t, serverID)),
		Ingress(door), ClusterOfSNIRoute(sni), EndpointsOfSNIRoute(sni, here),
		leadingAbroad(out),
		ClusterOfSNIRoute(sni+crossZoneSuffix), EndpointsOfSNIRoute(sni+crossZoneSuffix, there),
		ClusterOfSNIRoute(remote+crossZoneSuffix), EndpointsOfSNIRoute(remote+crossZoneSuffix, there))...)

	for _, c := range []struct {
		name        string
		port        uint32
		sni         string
		here, there bool
	}{
		{"the ingress", door.Port, sni, true, false},
		{"the egress", out, sni, false, true},
		{"the egress, in capitals", out, strings.ToUpper(sni), false, true},
		{"the egress, one zone's service", out, remote, false, true},
		{"the ingress, another zone's service", door.Port, remote, false, false},
		{"the ingress, a cluster of the egress", door.Port, sni + crossZoneSuffix, false, false},
		{"the egress, a cluster of its own", out, sni + crossZoneSuffix, false, false},
		{"the egress, an unknown name", out, "a0123456789abcdef.gone.80.default.ms", false, false},
		{"the egress, no name", out, "", false, false},
		{"the egress, the agent", out, identityCluster, false, false},
		{"the egress, the application beside it", out, fmt.Sprintf("self_inbound_127.0.0.1_%d", server.Port), false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			at := fmt.Sprintf("127.0.0.1:%d", c.port)
			conn, err := tls.DialWithDialer(&net.Dialer{Timeout: 5 * time.Second}, "tcp", at, naming(east.leaf(t, clientID), c.sni))
			if err == nil {
				defer conn.Close()
				_, _ = io.WriteString(conn, "x")
				_, err = io.ReadFull(conn, make([]byte, 1))
			}
			if through := err == nil; through != (c.here || c.there) || heard.Swap(0) > 0 != c.here || heardElsewhere.Swap(0) > 0 != c.there {
				t.Errorf("gets through: %v (%v), want here %v and there %v", through, err, c.here, c.there)
			}
		})
	}
}

// leadingAbroad is a listener that passes on to other zones alone.
func leadingAbroad(port uint32) *xds.Resource {
	name := fmt.Sprintf("self_egress_127.0.0.1_%d", port)
	return xds.NewResource(xds.Listener, name, &listenerv3.Listener{
		Name: name, Address: socketAddress("127.0.0.1", port),
		ListenerFilters: inspectTLS(), ListenerFiltersTimeout: duration(helloTimeout),
		FilterChains: []*listenerv3.FilterChain{abroadChain(name)},
	})
}
