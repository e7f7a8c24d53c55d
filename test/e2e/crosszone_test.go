package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"weft/internal/testwait"
	"weft/internal/traffic"
	"weft/test/mesh"
)

// webOutbounds are the ports at which the client in the other zone reaches web's ports.
var webOutbounds = map[string]int{"http": 10001, "grpc": 10002, "tcp": 10003}

const webPorts = `{port: 80, targetPort: 20080, appProtocol: http}, {port: 81, targetPort: 20081, appProtocol: ` +
	`grpc}, {port: 82, targetPort: 20082, appProtocol: tcp}`

// webServer returns an instance of web with an inbound for each of its ports.
func webServer(name string, host int) string {
	return fmt.Sprintf(`
type: Dataplane
mesh: default
name: %[1]s
labels: {kuma.io/workload: web}
networking:
  address: NET.%[2]d
  inbound:
  - {port: 20080, servicePort: 18080, serviceAddress: NET.%[2]d, protocol: http, tags: {kuma.io/service: web}}
  - {port: 20081, servicePort: 18080, serviceAddress: NET.%[2]d, protocol: grpc, tags: {kuma.io/service: web}}
  - {port: 20082, servicePort: 18081, serviceAddress: NET.%[2]d, protocol: tcp, tags: {kuma.io/service: web}}
`, name, host)
}

// webClient returns a client that reaches the ports of a zone's web, from 10001 on.
func webClient(name string, host int, zone string, ports ...int) string {
	outbounds := ""
	for i, port := range ports {
		outbounds += fmt.Sprintf("\n  - {address: NET.%d, port: %d, backendRef: {kind: MeshService, labels: "+
			"{kuma.io/display-name: web, kuma.io/zone: %s}, port: %d}}", host, 10001+i, zone, port)
	}
	return fmt.Sprintf(`
type: Dataplane
mesh: default
name: %[1]s
labels: {kuma.io/workload: %[1]s}
networking:
  address: NET.%[2]d
  outbound:%[3]s
`, name, host, outbounds)
}

// eastAndWest starts two zones: web in east behind an ingress, and its client in west.
func (f *federation) eastAndWest() (east, west *world) { return f.eastAndWestBy(crossZoneRules) }

// eastAndWestBy is eastAndWest with other identities and permissions, and with further settings of both zones.
func (f *federation) eastAndWestBy(rules string, settings ...string) (east, west *world) {
	f.t.Helper()
	zones := f.join(settings, "east", "west")
	east, west = zones[0], zones[1]
	f.obtain(zones, rules)
	east.apply(service("web", webPorts))
	east.service(3, 18080, "web-1")
	east.echo(3, 18081)
	east.proxies("default", webServer("web-1", 3), ingress("ingress-1", 10))
	west.proxy("default", "client", webClient("client", 3, "east", 80, 81, 82))
	west.passes(west.outbound(3, "http"), "web-1")
	return east, west
}

// has returns an error unless a list contains the name.
func (w *world) has(what, name string) error {
	out, err := w.weft("get", what)
	if err == nil && !strings.Contains(out, name) {
		err = fmt.Errorf("%s is not there: %s", name, out)
	}
	return err
}

// outbound returns the address at which the client at a host reaches web by a protocol.
func (w *world) outbound(host int, protocol string) string {
	return fmt.Sprintf("http://%s:%d/", w.address(host), webOutbounds[protocol])
}

func TestARequestCrossesZones(t *testing.T) {
	f := newFederation(t)
	east, west := f.eastAndWest()
	t.Run("by every protocol, with the caller's name", func(t *testing.T) {
		for _, protocol := range []string{"http", "grpc"} {
			west.passes(west.outbound(3, protocol), "web-1 By=spiffe://default.east.mesh.local/workload/web",
				"URI=spiffe://default.west.mesh.local/workload/client")
		}
		echo := greetBy(west.machine.dial, fmt.Sprintf("%s:%d", west.address(3), webOutbounds["tcp"]))
		west.eventually("bytes come back", func() error { return sendOnce(t, echo) })
	})
	t.Run("as a permission on global says", func(*testing.T) {
		f.global.apply(denying("spiffe://default.west.mesh.local/workload/client"))
		west.eventually("the client is denied", func() error { return west.denied(west.outbound(3, "http")) })
		f.global.apply(crossZoneRules)
		west.passes(west.outbound(3, "http"), "web-1")
	})
	t.Run("unless global's Mesh evicts the client", func(*testing.T) {
		f.global.apply(
			"type: Mesh\nname: default\ndataplaneProxyMembership: {blocked: [{tags: {kuma.io/workload: client}}]}\n")
		west.eventually("the other zone's server denies its certificate", func() error {
			return west.denied(west.outbound(3, "http"))
		})
		f.global.apply("type: Mesh\nname: default\n")
		west.passes(west.outbound(3, "http"), "web-1")
	})
	t.Run("and no other zone knows a Dataplane", func(t *testing.T) {
		if err := f.global.has("dataplanes", "web-1"); err != nil {
			t.Errorf("global does not know web-1 of east: %v", err)
		}
		for zone, others := range map[*world][]string{west: {"web-1", "ingress-1"}, east: {"client"}} {
			all, err := zone.api("/dataplanes")
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range others {
				if strings.Contains(all, name) {
					t.Errorf("a zone knows the Dataplane %s of another: %s", name, all)
				}
			}
		}
	})
	t.Run("but nothing else passes an ingress", func(t *testing.T) { strangersAtIngress(t, east, west) })
	t.Run("and a zone without a good token does not join", f.strangers)
}

// denied returns an error unless the response is 403.
func (w *world) denied(url string) error {
	body, err := w.machine.fetch(url)
	switch {
	case err == nil:
		return fmt.Errorf("it is answered %q", body)
	case !strings.Contains(err.Error(), "403"):
		return err
	}
	return nil
}

// strangersAtIngress dials an ingress from another zone with connections that it must not forward.
func strangersAtIngress(t *testing.T, east, west *world) {
	service, err := east.weft("get", "meshservice", "web", "-o", "yaml")
	if err != nil {
		t.Fatal(err)
	}
	sni := regexp.MustCompile(`value: "?(\S+\.ms)\b`).FindStringSubmatch(service)
	if sni == nil {
		t.Fatalf("web has no SNI: %s", service)
	}
	ingress := east.address(10) + ":20100"
	if presented, err := west.presented(ingress, sni[1]); presented != "spiffe://default.east.mesh.local/workload/web" {
		t.Fatalf("for %s the ingress shows %q, %v: what follows would show nothing", sni[1], presented, err)
	}
	d := west.drill("strangers at a zone's ingress", west.get(west.outbound(3, "http")))
	clusters := east.page("ingress-1", "clusters")
	names := []string{"", "unknown.ms", "a0000000000000000.web.80.default.ms", "a0000000000000000.web.80.default.mzms",
		"ms", ".ms", "web", "x" + sni[1], sni[1] + ".ms"}
	for line := range strings.Lines(clusters) {
		if name, _, ok := strings.Cut(line, "::"); ok && !strings.HasSuffix(name, ".ms") {
			names = append(names, name)
		}
	}
	for _, name := range names {
		if presented, err := west.presented(ingress, name); presented != "" || err == nil {
			t.Errorf("for the SNI %q the ingress shows %q, %v", name, presented, err)
		}
	}
	for what, bytes := range map[string]string{"HTTP": "GET / HTTP/1.1\r\nHost: web\r\n\r\n",
		"zeros": strings.Repeat("\x00", 4096)} {
		if response, err := west.say(ingress, bytes); len(response) > 0 {
			t.Errorf("%s without TLS is answered %q, %v", what, response, err)
		}
	}
	d.more(20)
	d.end()
}

// presented returns the SPIFFE ID that the server at an address presents for an SNI. The error is that of the
// handshake, which never completes: the caller has no certificate.
func (w *world) presented(address, serverName string) (id string, err error) {
	conn, err := w.machine.dial(w.t.Context(), "tcp", address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	conn.SetDeadline(testwait.Deadline())
	client := tls.Client(conn, &tls.Config{ServerName: serverName, InsecureSkipVerify: true,
		VerifyPeerCertificate: func(raw [][]byte, _ [][]*x509.Certificate) error {
			certificate, err := x509.ParseCertificate(raw[0])
			if err == nil && len(certificate.URIs) > 0 {
				id = certificate.URIs[0].String()
			}
			return errors.New("seen")
		}})
	return id, client.Handshake()
}

// say sends bytes and returns the response up to the end of the connection.
func (w *world) say(address, bytes string) (string, error) {
	conn, err := w.machine.dial(w.t.Context(), "tcp", address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	conn.SetDeadline(testwait.Deadline())
	if _, err := io.WriteString(conn, bytes); err != nil {
		return "", err
	}
	response, err := io.ReadAll(conn)
	return string(response), err
}

// strangers starts zones that global rejects, and checks the reason in their logs.
func (f *federation) strangers(t *testing.T) {
	otherToken, err := mesh.ZoneToken(t.Context(), f.global.plane.Admin, "east")
	if err != nil {
		t.Fatal(err)
	}
	ingressToken, err := f.global.weft("generate", "zone-token", "--zone", "north", "--scope", "ingress")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ token, want string }{
		"garbage":                {"garbage", "zone-token"},
		"another zone's token":   {otherToken, "east"},
		"the token of a gateway": {ingressToken, "cp"},
	} {
		t.Run(name, func(t *testing.T) {
			w := f.place(fmt.Sprintf("stranger-%d", f.zones),
				f.global.plane.ZoneBy("north", f.global.file("north.token", strings.TrimSpace(c.token)))...)
			w.t = t
			w.startPlane() // it serves its own zone nevertheless
			w.eventually("the zone says why it is not let in", func() error {
				return wrote(w.plane.Process, "not connected", c.want)
			})
			if err := f.global.zoneOnline("north"); err == nil {
				t.Error("global lets it in")
			}
			w.plane.Kill()
		})
	}
}

// Traffic from one zone to the other, while the components between them stop, start and change.
func TestDrillZones(t *testing.T) {
	f := newFederation(t)
	east, west := f.eastAndWest()
	second := east.proxy("default", "ingress-2", ingress("ingress-2", 11))
	west.proxy("default", "witness", webClient("witness", 4, "east", 80))
	east.proxy("default", "neighbor", webClient("neighbor", 4, "east", 80))
	west.passes(west.outbound(4, "http"), "web-1")
	east.passes(east.outbound(4, "http"), "web-1")
	url := west.outbound(3, "http")
	f.linkCut(east, west)

	first := east.processOf("ingress-1")
	d := west.drill("one of two ingresses is killed", west.get(url))
	d.more(100)
	first.Kill()
	d.more(100)
	d.end()

	// The remaining ingress is stopped once the new one is ready.
	d = west.drill("the ingress of a zone is replaced", inTurn(west.get(url), west.post(url)))
	d.more(50)
	east.proxy("default", "ingress-3", ingress("ingress-3", 12))
	east.stops(second)
	d.more(100)
	d.end()

	f.rollout(east, west)
	f.portComesAndGoes(east, west)
}

// linkCut disconnects global from both zones.
func (f *federation) linkCut(east, west *world) {
	f.t.Helper()
	cut := 3 * time.Second
	if *showDrills {
		cut = 25 * time.Second // zones and global detect the loss after 15 s, and connect again and again
	}
	echo := greetBy(west.machine.dial, fmt.Sprintf("%s:%d", west.address(3), webOutbounds["tcp"]))
	// A TCP connection is a handshake each time, which costs as much as many requests.
	sends := append(slices.Repeat([]traffic.Send{west.get(west.outbound(3, "http")),
		west.post(west.outbound(3, "grpc"))}, 20), echo)
	across := west.drillAmong(4, "the link to global is cut: across zones", inTurn(sends...))
	within := east.drillAmong(4, "the link to global is cut: in a zone", east.get(east.outbound(4, "http")))
	across.more(20)
	f.cut("global")
	f.global.apply(denying("spiffe://default.west.mesh.local/workload/witness"))
	across.sendFor(cut, "the link is cut for a while")
	if body, err := west.machine.fetch(west.outbound(4, "http")); err != nil {
		f.t.Errorf("the witness is denied before the link is back: %v %s", err, body)
	}
	f.mend("global")
	west.eventually("what global was told meanwhile has come", func() error {
		return west.denied(west.outbound(4, "http"))
	})
	across.more(20)
	across.end()
	within.end()
}

// rollout replaces the servers behind the ingress, one after the other. An ingress balances connections and not
// requests, so the new server may get none while the old one exists.
func (f *federation) rollout(east, west *world) {
	f.t.Helper()
	url := west.outbound(3, "http")
	east.service(5, 18080, "web-2")
	east.echo(5, 18081)
	d := west.drill("the servers behind an ingress are replaced", inTurn(west.get(url), west.post(url)))
	d.more(50)
	old := east.processOf("web-1")
	east.proxy("default", "web-2", webServer("web-2", 5))
	old.Signal(syscall.SIGTERM)
	west.eventually("the new instance answers alone", func() error { return west.respondedBy(url, "web-2") })
	d.more(100)
	d.end()
}

// portComesAndGoes adds a port to a service and removes it, under traffic to another port. The new port serves from its
// first response on. After its removal, the client's own proxy responds with an error.
func (f *federation) portComesAndGoes(east, west *world) {
	f.t.Helper()
	west.apply(webClient("client", 3, "east", 80, 81, 82, 83))
	d := west.drill("a port of a service comes and goes", west.get(west.outbound(3, "http")))
	d.more(50)
	added := fmt.Sprintf("http://%s:10004/", west.address(3))
	east.apply(service("web", webPorts+", {port: 83, targetPort: 20080, appProtocol: http}"))
	west.eventually("the new port answers", func() error {
		_, err := west.machine.fetch(added)
		if err != nil && !errors.Is(err, syscall.ECONNREFUSED) {
			f.t.Errorf("the new port fails before it works: %v", err)
		}
		return err
	})
	fresh := west.drill("a port of a service has come", west.get(added))
	fresh.more(50)
	fresh.end()
	east.apply(service("web", webPorts))
	west.eventually("the port has gone", func() error {
		_, err := west.machine.fetch(added)
		if err == nil {
			return errors.New("it answers")
		}
		// The client's own proxy has no endpoint, then no cluster, then no listener: it dials no server.
		if strings.Contains(err.Error(), "upstream connect error") {
			f.t.Errorf("the port fails before clients are told: %v", err)
		}
		return nil
	})
	d.more(50)
	d.end()
}
