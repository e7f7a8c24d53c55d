package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weft/internal/testwait"
	"weft/internal/traffic"
	"weft/test/mesh"
)

const withIdentity = `
type: MeshIdentity
mesh: default
name: identity
spec: {selector: {dataplane: {matchLabels: {}}}, provider: {type: Bundled}}
`

var secured = withIdentity + "---" + allowing("spiffe://default.default.mesh.local/")

// allowing returns a permission for callers whose SPIFFE IDs have a prefix.
func allowing(ids string) string {
	return fmt.Sprintf(`
type: MeshTrafficPermission
mesh: default
name: all
spec: {rules: [{default: {allow: [{spiffeID: {type: Prefix, value: %q}}]}}]}
`, ids)
}

// server returns a Dataplane of the service "web" (or another tag), whose application listens on 18080.
func server(name, tag, protocol string, host, port int) string {
	return fmt.Sprintf(`
type: Dataplane
mesh: default
name: %s
labels: {kuma.io/workload: %s}
networking:
  address: NET.%d
  inbound: [{port: %d, servicePort: 18080, serviceAddress: NET.%d, protocol: %s, tags: {kuma.io/service: %s}}]
`, name, tag, host, port, host, protocol, tag)
}

// caller returns a Dataplane that reaches a service at port 10001 of its own address.
func caller(name string, host int, backend string) string {
	return fmt.Sprintf(`
type: Dataplane
mesh: default
name: %s
labels: {kuma.io/workload: %s}
networking:
  address: NET.%d
  outbound: [{address: NET.%d, port: 10001, %s}]
`, name, name, host, host, backend)
}

func TestEveryProtocolCrossesTwoEnvoysWithTheCallersName(t *testing.T) {
	w := newWorld(t)
	w.apply(secured)
	w.service(2, 18080, "web-1")
	protocols := []string{"http", "http2", "grpc"}
	inbounds, outbounds := "", ""
	for i, protocol := range protocols {
		inbounds += fmt.Sprintf("\n  - {port: %d, name: %s, servicePort: 18080, serviceAddress: NET.2, protocol: %s, "+
			"tags: {kuma.io/service: %s}}", 20080+i, protocol, protocol, protocol)
		outbounds += fmt.Sprintf("\n  - {address: NET.3, port: %d, tags: {kuma.io/service: %s}}", 10001+i, protocol)
	}
	w.proxy("default", "web-1",
		"type: Dataplane\nmesh: default\nname: web-1\nnetworking:\n  address: NET.2\n  inbound:"+inbounds)
	w.proxy("default", "client", "type: Dataplane\nmesh: default\nname: client\nlabels: {kuma.io/workload: "+
		"client}\nnetworking:\n  address: NET.3\n  outbound:"+outbounds)
	for i, protocol := range protocols {
		var body string
		w.eventually(protocol+" passes", func() (err error) {
			body, err = fetch(fmt.Sprintf("http://%s:%d/", w.address(3), 10001+i))
			return err
		})
		if want := "URI=spiffe://default.default.mesh.local/workload/client"; !strings.Contains(body, want) {
			t.Errorf("%s: the server saw %q, want %s", protocol, body, want)
		}
	}
}

func TestBytesOfAnyProtocolPassWithMutualTLS(t *testing.T) {
	w := newWorld(t)
	w.apply(secured)
	w.echo(2, 18080)
	w.proxy("default", "echo", server("echo", "echo", "tcp", 2, 20080))
	// The tag generates the service: no user wrote a MeshService.
	w.proxy("default", "client", caller("client", 3, "tags: {kuma.io/service: echo}"))
	w.eventually("bytes come back", func() error { return sendOnce(t, greet(w.address(3)+":10001")) })
	if out, err := w.weft("get", "meshservice", "echo", "-o", "yaml"); err != nil ||
		!strings.Contains(out, "kuma.io/managed-by: weft") {
		t.Errorf("the generated service is not marked: %v\n%s", err, out)
	}
}

// echo starts an application that echoes.
func (w *world) echo(host, port int) {
	w.t.Helper()
	w.echoAt(w.listen(host, port))
}

// echoAt is echo at a listener.
func (w *world) echoAt(l net.Listener) {
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				io.Copy(conn, conn)
			}()
		}
	}()
}

func TestAPlainEnvoyWithATokenIsServed(t *testing.T) {
	w := newWorld(t)
	w.service(2, 18080, "web-1")
	w.apply(server("web-1", "web", "http", 2, 20080))
	w.apply(caller("client", 3, "tags: {kuma.io/service: web}"))
	for i, name := range []string{"web-1", "client"} {
		w.start(name, envoy, "--disable-hot-restart", "--log-level", "warning", "--config-path",
			w.file(name+".json", w.bootstrap(name, i)))
	}
	w.eventually("a request passes", func() error {
		return get(fmt.Sprintf("http://%s:10001/", w.address(3)))
	})
	if out, err := w.weft("inspect", "dataplanes"); err != nil || !strings.Contains(out, w.address(2)+":20080") {
		t.Errorf("inspect does not say what the plain Envoy serves: %v\n%s", err, out)
	}
}

// bootstrap returns the Envoy bootstrap that a user without an agent writes.
func (w *world) bootstrap(name string, i int) string {
	return fmt.Sprintf(`{
  "node": {"id": "default.%[1]s", "cluster": "%[1]s"},
  "admin": {"address": {"socket_address": {"address": "%[5]s", "port_value": 9901}}},
  "bootstrap_extensions": [{"name": "envoy.bootstrap.internal_listener", "typed_config": {
    "@type": "type.googleapis.com/envoy.extensions.bootstrap.internal_listener.v3.InternalListener"}}],
  "dynamic_resources": {
    "ads_config": {"api_type": "DELTA_GRPC", "transport_api_version": "V3", "grpc_services": [{
      "envoy_grpc": {"cluster_name": "control_plane"},
      "initial_metadata": [{"key": "authorization", "value": "Bearer %[2]s"}]}]},
    "lds_config": {"ads": {}, "resource_api_version": "V3"},
    "cds_config": {"ads": {}, "resource_api_version": "V3"}
  },
  "static_resources": {"clusters": [{
    "name": "control_plane", "type": "STATIC", "connect_timeout": "5s",
    "typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
      "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
      "explicit_http_config": {"http2_protocol_options": {}}}},
    "load_assignment": {"cluster_name": "control_plane", "endpoints": [{"lb_endpoints": [{"endpoint": {
      "address": {"socket_address": {"address": "127.0.0.1", "port_value": %[3]d}}}}]}]},
    "transport_socket": {"name": "envoy.transport_sockets.tls", "typed_config": {
      "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
      "common_tls_context": {"validation_context": {"trusted_ca": {"filename": "%[4]s"}}}}}
  }]}
}`, name, w.token("default", name), w.plane.Ports.DataPlane, w.plane.CA(), w.address(100+i))
}

func TestDrillARestartedControlPlaneSendsNothingAndLosesNothing(t *testing.T) {
	w := newWorld(t)
	w.apply(secured)
	w.service(2, 18080, "web-1")
	w.proxy("default", "web-1", server("web-1", "web", "http", 2, 20080))
	w.proxy("default", "client", strings.Replace(caller("client", 3, "tags: {kuma.io/service: web}"), "networking:",
		"networking:\n  admin: {port: 20999}", 1))
	url := fmt.Sprintf("http://%s:10001/", w.address(3))
	w.eventually("a request passes", func() error { return get(url) })

	updates := func() string {
		stats, err := fetch("http://127.0.0.1:20999/stats?filter=update_(success|rejected)$")
		if err != nil {
			t.Fatal(err)
		}
		return stats
	}
	w.eventually("the client is in sync", func() error { return w.inSync("client") })
	before := updates()
	d := w.drill("the control plane is killed and restarted", traffic.Get(url))
	w.plane.Kill()
	w.startPlane()
	w.eventually("the client's Envoy is back", func() error {
		state, err := fetch("http://127.0.0.1:20999/stats?filter=control_plane.connected_state")
		if err == nil && !strings.Contains(state, "connected_state: 1") {
			err = fmt.Errorf("%s", state)
		}
		return err
	})
	w.eventually("both proxies are connected", func() error {
		out, err := w.weft("inspect", "dataplanes")
		if err == nil && strings.Count(out, "online") < 2 {
			err = fmt.Errorf("%s", out)
		}
		return err
	})
	d.more(50)
	d.end()
	if after := updates(); after != before {
		t.Errorf("nothing had changed, but Envoy was sent updates:\nbefore:\n%s\nafter:\n%s", before, after)
	}
	// A later change is counted, so the counters would have shown one.
	w.apply(strings.Replace(server("web-1", "web", "http", 2, 20080), "protocol:", "state: NotReady, protocol:", 1))
	w.eventually("a change reaches the client's Envoy", func() error {
		if updates() == before {
			return errors.New("no counter has moved")
		}
		return nil
	})
}

// An inbound moves to another port: clients get the new endpoint when it serves, and the old listener closes when no
// client can use it any more.
func TestDrillAnInboundMoves(t *testing.T) {
	w := newWorld(t)
	w.apply(secured)
	w.apply(`
type: MeshService
mesh: default
name: web
spec: {selector: {dataplaneTags: {kuma.io/service: web}}, ports: [{port: 80, targetPort: api, appProtocol: http}]}
`)
	w.service(2, 18080, "web-1")
	at := func(port int) string {
		return strings.Replace(server("web-1", "web", "http", 2, port), "protocol:", "name: api, protocol:", 1)
	}
	w.proxy("default", "web-1", at(20080))
	w.proxy("default", "client", caller("client", 3, "backendRef: {kind: MeshService, name: web, port: 80}"))
	url := fmt.Sprintf("http://%s:10001/", w.address(3))
	w.eventually("a request passes", func() error { return get(url) })
	d := w.drill("an inbound moves to another port, three times", traffic.Get(url))
	for i, port := range []int{20081, 20082, 20080} {
		w.apply(at(port))
		w.eventually(fmt.Sprintf("port %d serves alone", port), func() error {
			out, err := w.weft("inspect", "dataplanes")
			if err == nil &&
				(strings.Count(out, w.address(2)) != 1 ||
					!strings.Contains(out, fmt.Sprintf("%s:%d", w.address(2), port))) {
				err = fmt.Errorf("move %d: %s", i, out)
			}
			return err
		})
	}
	d.end()
}

// Blue and green: the service's selector changes to instances that have not served yet.
func TestDrillASelectorFlips(t *testing.T) {
	w := newWorld(t)
	w.apply(secured)
	selecting := func(color string) string {
		return fmt.Sprintf("type: MeshService\nmesh: default\nname: web\nspec: {selector: {dataplaneTags: "+
			"{kuma.io/service: %s}}, ports: [{port: 80, targetPort: 20080, appProtocol: http}]}", color)
	}
	w.apply(selecting("blue"))
	w.service(2, 18080, "blue")
	w.service(4, 18080, "green")
	w.proxy("default", "blue", server("blue", "blue", "http", 2, 20080))
	w.proxy("default", "client", caller("client", 3, "backendRef: {kind: MeshService, name: web, port: 80}"))
	url := fmt.Sprintf("http://%s:10001/", w.address(3))
	responds := func(color string) func() error {
		return func() error {
			body, err := fetch(url)
			if err == nil && !strings.HasPrefix(body, color) {
				err = fmt.Errorf("answered by %s", body)
			}
			return err
		}
	}
	w.eventually("blue answers", responds("blue"))
	d := w.drill("a selector switches to instances that do not serve yet, and back", traffic.Get(url))
	w.apply(selecting("green")) // there is no green instance yet
	d.more(50)
	w.proxy("default", "green", server("green", "green", "http", 4, 20080))
	w.eventually("green answers", responds("green"))
	w.apply(selecting("blue"))
	w.eventually("blue answers again", responds("blue"))
	d.more(50)
	d.end()
}

func TestDrillAProxyThatEndsDrainsFirst(t *testing.T) {
	w := newWorld(t)
	w.apply(secured)
	w.service(2, 18080, "web-1")
	w.service(4, 18080, "web-2")
	leaving := w.proxy("default", "web-1", server("web-1", "web", "http", 2, 20080))
	w.proxy("default", "web-2", server("web-2", "web", "http", 4, 20080))
	w.proxy("default", "client", caller("client", 3, "tags: {kuma.io/service: web}"))
	url := fmt.Sprintf("http://%s:10001/", w.address(3))
	w.eventually("a request passes", func() error { return get(url) })
	d := w.drill("weft-dp gets SIGTERM", inTurn(traffic.Get(url), traffic.Post(url)))
	d.more(100)
	w.stops(leaving)
	d.more(100)
	d.end()
	if code := leaving.State().ExitCode(); code != 0 {
		t.Errorf("weft-dp drained and ended with %d, want 0", code)
	}
}

func TestADeadApplicationIsNoEndpoint(t *testing.T) {
	w := newWorld(t)
	dying := w.service(2, 18080, "web-1")
	w.service(4, 18080, "web-2")
	w.proxy("default", "web-1", server("web-1", "web", "http", 2, 20080))
	w.proxy("default", "web-2", server("web-2", "web", "http", 4, 20080))
	w.proxy("default", "client", caller("client", 3, "tags: {kuma.io/service: web}"))
	w.endpoints(2, "both live")
	dying.Close()
	w.endpoints(1, "the dead one has left")
	w.service(2, 18080, "web-1")
	w.endpoints(2, "it is back")
}

// endpoints waits until the client has a number of endpoints of web.
func (w *world) endpoints(want int, why string) {
	w.t.Helper()
	w.eventually(why, func() error {
		out, err := w.weft("explain", "--from", "client", "--to", "web", "-o", "json")
		if got := strings.Count(out, `"proxy"`); err == nil && got != want {
			err = fmt.Errorf("%d endpoints: %s", got, out)
		}
		return err
	})
}

func TestWhatCannotWorkIsSaidAndEndsTheAgent(t *testing.T) {
	w := newWorld(t)
	dataplane := w.file("dp.yaml", w.expand(server("web-1", "web", "http", 2, 20080)))
	anotherMesh := w.file("another-mesh.yaml",
		w.expand(strings.Replace(server("web-1", "web", "http", 2, 20080), "mesh: default", "mesh: nowhere", 1)))
	good := w.file("good.token", w.token("default", "web-1"))
	other := w.file("other.token", w.token("default", "web-2"))
	garbage := w.file("garbage.token", "garbage")
	ca := w.plane.CA()
	stranger := newStrangersCA(t)
	for name, c := range map[string]struct {
		dataplane, token, ca, envoy string
		want                        string
	}{
		"a token that is none":             {dataplane, garbage, ca, envoy, "token"},
		"another proxy's token":            {dataplane, other, ca, envoy, "web-2"},
		"a mesh that does not exist":       {anotherMesh, good, ca, envoy, "nowhere"},
		"a control plane that is a fraud":  {dataplane, good, stranger, envoy, "certificate"},
		"an Envoy that is missing":         {dataplane, good, ca, "/nowhere/envoy", "/nowhere/envoy"},
		"an Envoy that is something else":  {dataplane, good, ca, "/bin/true", "/bin/true"},
		"a Dataplane file that is missing": {"/nowhere/dp.yaml", good, ca, envoy, "/nowhere/dp.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			flags := mesh.AgentFlags{Address: w.cpAddress, CA: c.ca, Dataplane: c.dataplane, Token: c.token,
				Envoy: c.envoy}
			cmd := exec.CommandContext(testwait.Context(t), filepath.Join(binaries, "weft-dp"), flags.Args()...)
			out, err := cmd.CombinedOutput()
			if err == nil {
				t.Fatalf("weft-dp ended well:\n%s", out)
			}
			if !strings.Contains(string(out), c.want) {
				t.Errorf("weft-dp said\n%s\nwant it to name %q", out, c.want)
			}
		})
	}
}

func TestASecondControlPlaneSaysWhichPortIsTaken(t *testing.T) {
	w := newWorld(t)
	out, err := w.weft("cp", "run", "--data-dir", filepath.Join(w.dir, "second"))
	if err == nil || !strings.Contains(err.Error(), fmt.Sprint(w.plane.Ports.API)) {
		t.Errorf("a second control plane on the same ports: %v %s", err, out)
	}
	if _, err := os.Stat(filepath.Join(w.dir, "second", "weft.db")); err == nil {
		t.Error("it left a database behind")
	}
}

// Certificates are valid for minutes: each proxy's certificate is replaced under traffic, twice in the long form.
func TestDrillCertificatesAreRenewed(t *testing.T) {
	w := newWorld(t)
	w.apply(strings.Replace(secured, "provider: {type: Bundled}",
		"provider: {type: Bundled, bundled: {certificateParameters: {expiry: LIFE}}}", 1))
	w.service(2, 18080, "web-1")
	w.proxy("default", "web-1", server("web-1", "web", "http", 2, 20080))
	w.proxy("default", "client", caller("client", 3, "tags: {kuma.io/service: web}"))
	url := fmt.Sprintf("http://%s:10001/", w.address(3))
	w.eventually("a request passes", func() error { return get(url) })
	serial := func(name string) (string, error) {
		var overview struct {
			DataplaneInsight struct {
				Certificate struct{ Serial string }
			}
		}
		out, err := w.api("/meshes/default/dataplanes/" + name + "/_overview")
		if err == nil {
			err = json.Unmarshal([]byte(out), &overview)
		}
		if err == nil && overview.DataplaneInsight.Certificate.Serial == "" {
			err = errors.New(out)
		}
		return overview.DataplaneInsight.Certificate.Serial, err
	}
	name, want := "every certificate is renewed", 2
	if *showDrills {
		name, want = "every certificate is renewed twice", 3
	}
	seen := map[string]map[string]bool{"web-1": {}, "client": {}} // by proxy: the serials of its certificates
	d := w.drill(name, traffic.Get(url))
	w.eventually(fmt.Sprintf("each proxy has had %d certificates", want), func() error {
		for proxy, serials := range seen {
			n, err := serial(proxy)
			if err != nil {
				return err
			}
			serials[n] = true
		}
		for proxy, serials := range seen {
			if len(serials) < want {
				testwait.Pass(time.Second, "a certificate is renewed after a minute")
				return fmt.Errorf("%s has had %d", proxy, len(serials))
			}
		}
		return nil
	})
	d.more(50)
	d.end()
}
