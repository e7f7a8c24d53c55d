package envoy

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"

	"weft/internal/envoy/envoytest"
	"weft/internal/identity"
	"weft/internal/proxy"
	"weft/internal/service"
	"weft/internal/testwait"
	"weft/internal/xds"
	"weft/kind"
)

// sniWorld is an Envoy with a destination whose connections a route sends to applications by their SNI.
type sniWorld struct {
	*adsEnvoy
	outbound *proxy.ExplicitOutbound
	backends []*xds.Resource // of the applications
}

func newSNIWorld(t *testing.T, applications ...string) *sniWorld {
	t.Helper()
	certificate := newAuthority(t, domainEast).certificate(t, serverID)
	w := &sniWorld{outbound: &proxy.ExplicitOutbound{Address: "127.0.0.1", Port: freePort(t),
		Destination: namedDB("db"), Protocol: kind.TLS}}
	for _, name := range applications {
		d := &service.Destination{Key: namedDB(name), Protocol: kind.TLS}
		w.backends = append(append(w.backends, Clusters(d, false, identity.Source{})...), Assignment(&service.Endpoints{
			Destination: d.Key, Endpoints: []service.Endpoint{endpointAt(eitherTLS(t, name, certificate))}}))
	}
	return w
}

func namedDB(name string) service.DestinationKey {
	return service.DestinationKey{Mesh: "default", Zone: "east", Service: name, Port: 5432}
}

// hello is the shortest message that tells plaintext from TLS: as long as the header of a TLS record.
const hello = "hello"

// eitherTLS runs an application that responds to each hello with its name and a line break, with TLS and without.
func eitherTLS(t *testing.T, name string, certificate tls.Certificate) net.Addr {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	config := &tls.Config{Certificates: []tls.Certificate{certificate}}
	go envoytest.ServeEitherTLS(l, config, len(hello), name+"\n")
	return l.Addr()
}

// route returns the resources of a route with the rules, each "SNI APPLICATION". Without an SNI, the rule is for all
// other connections; without an application, they are closed.
func (w *sniWorld) route(rules ...string) []*xds.Resource {
	route := &service.Route{Destination: namedDB("db"), Protocol: kind.TLS}
	for _, text := range rules {
		sni, application, _ := strings.Cut(text, " ")
		rule := service.RouteRule{SNI: sni}
		if application != "" {
			rule.Backends = []service.RouteBackend{{Destination: namedDB(application), Weight: 1}}
		}
		route.Rules = append(route.Rules, rule)
	}
	return append(SNIProxies(route), Route(route), ExplicitListener(w.outbound, route, route.SNIs()...))
}

func (w *sniWorld) dial(t *testing.T) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", kind.HostPort(w.outbound.Address, w.outbound.Port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(testwait.Deadline())
	return conn
}

// withTLS begins TLS with a server name on a connection.
func withTLS(conn net.Conn, sni string) net.Conn {
	return tls.Client(conn, &tls.Config{ServerName: sni, InsecureSkipVerify: true}) // the name says who responds
}

// open opens a connection, with TLS and a server name unless the protocol is plaintext, and returns it with the name of
// the application at its other end. It repeats that where a busy machine makes the client silent for so long that the
// listener does not wait for its first bytes.
func (w *sniWorld) open(t *testing.T, protocol kind.Protocol, sni string) (conn net.Conn, name string) {
	t.Helper()
	testwait.Until(t, "the first bytes of a connection come in time", func() error {
		before := w.timeouts()
		conn = w.dial(t)
		if protocol == kind.TLS {
			conn = withTLS(conn, sni)
		}
		name = servedBy(conn)
		if n := w.timeouts() - before; n > 0 {
			return fmt.Errorf("%d connections waited for the end of a time", n)
		}
		return nil
	})
	return conn, name
}

// timeouts returns the number of connections whose first bytes the listener did not wait for.
func (w *sniWorld) timeouts() int {
	w.t.Helper()
	return w.stat(fmt.Sprintf(`listener\.127\.0\.0\.1_%d\.downstream_pre_cx_timeout`, w.outbound.Port))
}

// servedBy returns the name of the application at the other end of a connection; "closed" where there is none.
func servedBy(conn net.Conn) string {
	if _, err := io.WriteString(conn, hello); err != nil {
		return "closed"
	}
	name, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return "closed"
	}
	return strings.TrimSpace(name)
}

// TestConnectionsFollowTheirSNI: a connection takes the filter chain of its SNI, or of the longest wildcard, and
// without one that of all others.
func TestConnectionsFollowTheirSNI(t *testing.T) {
	w := newSNIWorld(t, "exact", "below", "deeper", "others")
	w.adsEnvoy = serveEnvoy(t, append(w.backends, w.route("db.example.com exact", "closed.example.com ",
		"*.b.example.com deeper", "*.example.com below", " others")...)...)
	for sni, want := range map[string]string{
		"db.example.com": "exact", "DB.example.com": "exact", "closed.example.com": "closed", "b.example.com": "below",
		"x.y.example.com": "below", "a.b.example.com": "deeper", "a.x.b.example.com": "deeper", "example.com": "others",
		"db.example.org": "others", "": "others",
	} {
		if _, got := w.open(t, kind.TLS, sni); got != want {
			t.Errorf("a connection with the SNI %q is served by %q, want %q", sni, got, want)
		}
	}
	if _, got := w.open(t, kind.TCP, ""); got != "others" {
		t.Errorf("a connection without TLS is served by %q, want others", got)
	}
	before, silent := w.timeouts(), w.dial(t)
	testwait.UntilTrue(t, "the listener does not wait for a silent client", func() bool {
		return w.timeouts() > before
	})
	if got := servedBy(withTLS(silent, "db.example.com")); got != "others" {
		t.Errorf("a connection on which the client was silent is served by %q, want others", got)
	}
}

// TestSNIsComeAndGoAlone: an edit of the backends of an SNI changes no listener, another SNI drains no connection, and
// the removal of one drains its own connections.
func TestSNIsComeAndGoAlone(t *testing.T) {
	w := newSNIWorld(t, "a", "b", "others")
	w.adsEnvoy = serveEnvoy(t, append(w.backends, w.route("a.example.com a", "b.example.com b", " others")...)...)
	open := map[string]net.Conn{}
	for name, sni := range map[string]string{"a": "a.example.com", "b": "b.example.com", "others": "c.example.com"} {
		open[name], _ = w.open(t, kind.TLS, sni)
	}
	stay := func(when string) {
		t.Helper()
		for want, conn := range open {
			if got := servedBy(conn); got != want {
				t.Errorf("%s, an open connection is served by %q, want %q", when, got, want)
			}
		}
	}
	stay("at first")
	modified := func() int { return w.stat(`listener_manager\.listener_modified`) }
	inPlace := func() int { return w.stat(`listener_manager\.listener_in_place_updated`) }
	draining := func() int { return w.stat(`listener_manager\.total_filter_chains_draining`) }

	w.change(w.route("a.example.com others", "b.example.com b", " others"))
	if _, got := w.open(t, kind.TLS, "a.example.com"); got != "others" {
		t.Errorf("a new connection is served by %q, want others", got)
	}
	stay("after an edit of the backend of one SNI")
	if modified()+inPlace() != 0 {
		t.Error("the edit of a backend changed the listener")
	}

	w.change(w.route("a.example.com others", "b.example.com b", "c.example.com a", "*.example.com b", " others"))
	testwait.UntilTrue(t, "the listener has two more filter chains", func() bool { return inPlace() == 1 })
	testwait.UntilTrue(t, "a new SNI counts", func() bool {
		_, got := w.open(t, kind.TLS, "c.example.com")
		return got == "a"
	})
	stay("after two more SNIs")
	if got := draining(); got != 0 {
		t.Errorf("%d filter chains drain after two more SNIs, want none", got)
	}

	w.change(w.route("b.example.com b", "c.example.com a", "*.example.com b", " others"))
	testwait.UntilTrue(t, "the chain of the removed SNI drains", func() bool { return draining() > 0 })
	if got := draining(); got != 1 {
		t.Errorf("%d filter chains drain after the removal of one SNI", got)
	}
	testwait.UntilTrue(t, "it takes no new connection", func() bool {
		_, got := w.open(t, kind.TLS, "a.example.com")
		return got == "b"
	})
	stay("while the removed SNI drains")
}

// TestListenersWithoutSNIsDetectNothing: a route without SNIs has the listener of a destination without a route, so its
// connections wait for nothing.
func TestListenersWithoutSNIsDetectNothing(t *testing.T) {
	d := &service.Destination{Key: namedDB("db"), Protocol: kind.TLS, VIPs: []string{"241.0.0.1"}}
	without := VIPListeners(d, service.RouteTo(d), "DualStack", "")
	routed := service.RouteTo(d)
	routed.Rules[0] = service.RouteRule{Name: "rule_0", Backends: []service.RouteBackend{{Destination: namedDB("next"),
		Weight: 1}}}
	if with := VIPListeners(d, routed, "DualStack", ""); with[0].Version != without[0].Version {
		t.Error("a route without SNIs changes the listener")
	}
	if l := message(t, without[0]).(*listenerv3.Listener); len(l.ListenerFilters) > 0 ||
		l.ListenerFiltersTimeout != nil {
		t.Error("a listener without SNIs inspects first bytes")
	}
	if len(SNIProxies(routed)) != 0 {
		t.Error("a route without SNIs has TCP proxies of SNIs")
	}
}
