package envoy

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"weft/internal/identity"
	"weft/internal/match"
	"weft/internal/proxy"
	"weft/internal/service"
	"weft/internal/testwait"
	"weft/kind"
)

// A zone ingress beside an application forwards, end to end, to services with an SNI, and to no other cluster of its
// Envoy: a client may dial from any network.
func TestWhereAnIngressLeads(t *testing.T) {
	const sni = "a0123456789abcdef.web.80.default.ms"
	east := newAuthority(t, domainEast)
	app, heard := listener(t)
	server := inboundTo(t, app, kind.TCP, match.Rule{Origin: "the client", IDPattern: kind.IDPattern{Exact: clientID}})
	local := &service.Destination{
		Key:      service.DestinationKey{Mesh: "default", Zone: "east", Service: "local", Port: 80},
		Protocol: kind.TCP,
	}
	ingress := &proxy.IngressListener{Address: "127.0.0.1", Port: freePort(t)}
	to := []service.Endpoint{{Address: server.Address, Port: server.Port}}
	startEnvoy(t, append(append(inboundResources(server), Ingress(ingress)...),
		trust(east), certificateSecret(t, east.certificate(t, serverID)), Clusters(local, false, identity.Source{})[0],
		Assignment(&service.Endpoints{Destination: local.Key, Endpoints: to}),
		ClusterOfSNIRoute(sni, service.Effective{}), EndpointsOfSNIRoute(sni, to))...)

	at := fmt.Sprintf("127.0.0.1:%d", ingress.Port)
	for _, c := range []struct {
		name, sni string
		through   bool
	}{
		{"an SNI route", sni, true},
		{"an SNI route in capitals", strings.ToUpper(sni), true},
		{"an unknown name", "a0123456789abcdef.gone.80.default.ms", false},
		{"no name", "", false},
		{"the application of the proxy", fmt.Sprintf("self_inbound_127.0.0.1_%d", server.Port), false},
		{"a destination of the proxy", local.Key.String(), false},
		{"the agent", identityCluster, false},
		{"the ingress", fmt.Sprintf("self_ingress_127.0.0.1_%d", ingress.Port), false},
		{"a name with more behind it", sni + ".example", false},
		{"the suffix alone", "ms", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn, err := tls.DialWithDialer(&net.Dialer{Timeout: testwait.Timeout}, "tcp", at,
				naming(east.certificate(t, clientID), c.sni))
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
			t.Errorf("the response is %q", rest)
		}
	})
	t.Run("as a client that the server denies", func(t *testing.T) {
		conn, err := tls.Dial("tcp", at, naming(east.certificate(t, clientID+"-2"), sni))
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

// naming returns a configuration that presents a certificate, sends an SNI and accepts any server.
func naming(certificate tls.Certificate, sni string) *tls.Config {
	config := presenting(certificate)
	config.ServerName = sni
	return config
}
