package envoy

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"weft/internal/identity"
	"weft/internal/proxy"
	"weft/internal/service"
	"weft/internal/zoneroute"
	"weft/kind"
)

const (
	multiZoneSNI = "a0123456789abcdef.server.80.default.mzms"
	westID       = "spiffe://" + domainWest + "/workload/server"
)

// zoneServer is a server of a zone as clients reach it: with mutual TLS, at its own address or through an ingress. It
// responds with its name, to a request or to a byte.
type zoneServer struct {
	at       service.Endpoint
	requests atomic.Int32 // number of requests
	sni      atomic.Value // SNI of the last handshake
	close    func()
}

func newZoneServer(t *testing.T, zone string, certificate tls.Certificate, protocol kind.Protocol) *zoneServer {
	t.Helper()
	s := &zoneServer{}
	config := &tls.Config{
		Certificates: []tls.Certificate{certificate}, ClientAuth: tls.RequireAnyClientCert,
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			s.sni.Store(hello.ServerName)
			return nil, nil
		},
	}
	var addr net.Addr
	if protocol.IsHTTP() {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			s.requests.Add(1)
		}))
		server.EnableHTTP2 = true // as an inbound does
		server.TLS, server.Config.ErrorLog = config, log.New(io.Discard, "", 0)
		server.StartTLS()
		addr, s.close = server.Listener.Addr(), func() { server.CloseClientConnections(); server.Close() }
	} else {
		l, err := tls.Listen("tcp", "127.0.0.1:0", config)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				go echo(conn, &s.requests)
			}
		}()
		addr, s.close = l.Addr(), func() { l.Close() }
	}
	t.Cleanup(s.close)
	at := addr.(*net.TCPAddr)
	s.at = service.Endpoint{Address: "127.0.0.1", Port: uint32(at.Port), Zone: zone}
	return s
}

// dead returns an address without a listener.
func dead(t *testing.T, zone string) service.Endpoint {
	return service.Endpoint{Address: "127.0.0.1", Port: freePort(t), Zone: zone}
}

// multiZoneClient returns the address at which a client's application reaches a service of the zones east (its own),
// west and north.
func multiZoneClient(t *testing.T, protocol kind.Protocol, east, west *authority, local,
	zones []service.Endpoint) string {
	t.Helper()
	d := &service.Destination{
		Key:      service.DestinationKey{Kind: service.MultiZoneService, Mesh: "default", Service: "server", Port: 80},
		Protocol: protocol,
		Local:    &service.Servers{Identities: []string{serverID}, TrustDomain: domainEast},
		Zones: []service.Servers{
			{Zone: "north", Way: zoneroute.ByIngress, SNI: multiZoneSNI, Identities: []string{serverID},
				TrustDomain: domainEast},
			{Zone: "west", Way: zoneroute.ByIngress, SNI: multiZoneSNI, Identities: []string{westID},
				TrustDomain: domainWest},
		},
	}
	outbound := &proxy.ExplicitOutbound{Address: "127.0.0.1", Port: freePort(t), Destination: d.Key, Protocol: protocol}
	resources := append(DomainBundles(trustOf(east, west)), trust(east, west),
		certificateSecret(t, east.certificate(t, clientID)), ExplicitListener(outbound, service.RouteTo(d)),
		Assignment(&service.Endpoints{Destination: d.Key.WithLocality(service.LocalLocality), Endpoints: local}),
		Assignment(&service.Endpoints{Destination: d.Key.WithLocality(service.RemoteLocality), Endpoints: zones}))
	startEnvoy(t, append(append(resources, Route(service.RouteTo(d))), Clusters(d, true, identity.Source{})...)...)
	return fmt.Sprintf("127.0.0.1:%d", outbound.Port)
}

// call sends a request, or a byte, and returns an error without a response.
func call(t *testing.T, protocol kind.Protocol, method, at string) error {
	t.Helper()
	if protocol.IsHTTP() {
		if response := do(t, method, "http://"+at+"/"); response.StatusCode != 200 {
			return fmt.Errorf("%s: %s", method, response.Status)
		}
		return nil
	}
	conn, err := net.Dial("tcp", at)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("x")); err != nil {
		return err
	}
	_, err = io.ReadFull(conn, make([]byte, 1))
	return err
}

var multiZoneProtocols = []kind.Protocol{kind.HTTP, kind.HTTP2, kind.TCP}

// Requests and connections stay in the client's zone while one server there responds. Without one, the first request
// already goes to another zone.
func TestTheOwnZoneFirst(t *testing.T) {
	for _, protocol := range multiZoneProtocols {
		t.Run(string(protocol), func(t *testing.T) {
			t.Parallel()
			east, west := newAuthority(t, domainEast), newAuthority(t, domainWest)
			here := newZoneServer(t, "", east.certificate(t, serverID), protocol)
			there := newZoneServer(t, "west", west.certificate(t, westID), protocol)
			at := multiZoneClient(t, protocol, east, west,
				[]service.Endpoint{here.at, dead(t, ""), dead(t, ""), dead(t, "")},
				[]service.Endpoint{dead(t, "north"), there.at})
			for i := range 20 {
				if err := call(t, protocol, "POST", at); err != nil {
					t.Fatalf("request %d while one server of the zone answers: %v", i, err)
				}
			}
			// The first requests may precede the ejection of dead endpoints.
			before := there.requests.Load()
			for range 20 {
				_ = call(t, protocol, "POST", at)
			}
			if got := there.requests.Load(); got > before {
				t.Errorf("%d of 20 left the zone, of which a server answers", got-before)
			}
			here.close()
			for i := range 20 {
				if err := call(t, protocol, "POST", at); err != nil {
					t.Errorf("request %d after the zone's last server died: %v", i, err)
				}
			}
			if got := there.sni.Load(); got != multiZoneSNI {
				t.Errorf("the other zone's ingress got the SNI %v, want %s", got, multiZoneSNI)
			}
		})
	}
}

// A zone without a responding server, at any address, loses no request.
func TestTheFirstRequestFindsAnotherZone(t *testing.T) {
	for _, protocol := range multiZoneProtocols {
		t.Run(string(protocol), func(t *testing.T) {
			t.Parallel()
			east, west := newAuthority(t, domainEast), newAuthority(t, domainWest)
			there := newZoneServer(t, "west", west.certificate(t, westID), protocol)
			at := multiZoneClient(
				t,
				protocol,
				east,
				west,
				[]service.Endpoint{
					dead(t, ""),
					dead(t, ""),
					dead(t, ""),
				},
				[]service.Endpoint{dead(t, "north"), there.at},
			)
			for i := range 20 {
				if err := call(t, protocol, "POST", at); err != nil {
					t.Errorf("request %d: %v", i, err)
				}
			}
		})
	}
}

// A zone's ingress must lead to servers of that zone: a server of another zone is not accepted, even for the same
// service.
func TestAZoneMustPresentItsOwnSPIFFEIDs(t *testing.T) {
	east, west := newAuthority(t, domainEast), newAuthority(t, domainWest)
	there := newZoneServer(t, "west", west.certificate(t, westID), kind.HTTP)
	astray := there.at
	astray.Zone = "north"
	at := multiZoneClient(t, kind.HTTP, east, west, nil, []service.Endpoint{astray})
	if err := call(t, kind.HTTP, "GET", at); err == nil {
		t.Error("a server of west was accepted as one of north")
	}
	if got := there.requests.Load(); got > 0 {
		t.Errorf("it got %d requests", got)
	}
}
