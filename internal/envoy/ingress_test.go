package envoy

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"weft/internal/graph"
	"weft/internal/match"
	"weft/kind"
)

// A zone ingress beside an application leads to what has a server name, end to end, and to nothing else that
// its Envoy has: whoever dials it is from anywhere.
func TestWhereAnIngressLeads(t *testing.T) {
	const sni = "a0123456789abcdef.web.80.default.ms"
	east := newAuthority(t, domainEast)
	app, heard := listener(t)
	server := inboundTo(t, app, kind.TCP, match.Rule{Origin: "the client", Exact: clientID})
	local := &graph.Destination{Key: graph.DestinationKey{Mesh: "default", Zone: "east", Service: "local", Port: 80}, Protocol: kind.TCP}
	door := &graph.IngressListener{Address: "127.0.0.1", Port: freePort(t)}
	to := []graph.Endpoint{{Address: server.Address, Port: server.Port}}
	startEnvoy(t, append(behind(server),
		trust(east), identity(t, east.leaf(t, serverID)), Clusters(local, false, graph.Source{})[0],
		Assignment(&graph.Endpoints{Destination: local.Key, Endpoints: to}),
		Ingress(door), ClusterOfSNIRoute(sni), EndpointsOfSNIRoute(sni, to))...)

	at := fmt.Sprintf("127.0.0.1:%d", door.Port)
	for _, c := range []struct {
		name, sni string
		through   bool
	}{
		{"a passage", sni, true},
		{"a passage in capitals", strings.ToUpper(sni), true},
		{"an unknown name", "a0123456789abcdef.gone.80.default.ms", false},
		{"no name", "", false},
		{"the application behind the proxy", fmt.Sprintf("self_inbound_127.0.0.1_%d", server.Port), false},
		{"what the proxy itself calls", local.Key.String(), false},
		{"the agent", identityCluster, false},
		{"the ingress", fmt.Sprintf("self_ingress_127.0.0.1_%d", door.Port), false},
		{"a name with more behind it", sni + ".example", false},
		{"the suffix alone", "ms", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn, err := tls.DialWithDialer(&net.Dialer{Timeout: 5 * time.Second}, "tcp", at, naming(east.leaf(t, clientID), c.sni))
			if err == nil {
				defer conn.Close()
				_, _ = io.WriteString(conn, "x")
				_, err = io.ReadFull(conn, make([]byte, 1))
			}
			if got := err == nil; got != c.through || heard.Swap(0) > 0 != c.through {
				t.Errorf("gets through: %v (%v), want %v", got, err, c.through)
			}
		})
	}
	t.Run("without TLS", func(t *testing.T) {
		conn, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: "+sni+"\r\n\r\n")
		if rest, _ := io.ReadAll(conn); len(rest) > 0 {
			t.Errorf("is answered %q", rest)
		}
	})
	t.Run("as somebody whom the server does not let in", func(t *testing.T) {
		conn, err := tls.Dial("tcp", at, naming(east.leaf(t, clientID+"-2"), sni))
		if err == nil {
			defer conn.Close()
			_, _ = io.WriteString(conn, "x")
			_, err = io.ReadFull(conn, make([]byte, 1))
		}
		if err == nil || heard.Load() > 0 {
			t.Error("is answered: who calls is for the server to say, and the ingress must show it who that is")
		}
	})
}

// naming shows a certificate, asks for a server by name and believes any.
func naming(leaf tls.Certificate, sni string) *tls.Config {
	config := presenting(leaf)
	config.ServerName = sni
	return config
}
