package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"weft/internal/traffic"
)

// external is a MeshExternalService at one endpoint.
func external(name, protocol string, port int, endpoint string) string {
	return fmt.Sprintf(`
---
type: MeshExternalService
mesh: default
name: %s
spec:
  match: {type: HostnameGenerator, port: %d, protocol: %s}
  endpoints: [%s]
`, name, port, protocol, endpoint)
}

// egress is a Dataplane that is a zone's way out, at an address of the test.
func egress(name string, host int) string {
	return fmt.Sprintf(`
---
type: Dataplane
mesh: default
name: %s
labels: {kuma.io/workload: egress}
networking: {zoneEgress: {address: NET.%d, port: 20300}}
`, name, host)
}

// lettingOut is a permission at the egresses for one caller.
func lettingOut(caller string) string {
	return fmt.Sprintf(`
---
type: MeshTrafficPermission
mesh: default
name: out
spec:
  targetRef: {kind: Dataplane, labels: {kuma.io/workload: egress}}
  rules: [{default: {allow: [{spiffeID: {type: Exact, value: "spiffe://default.default.mesh.local/workload/%s"}}]}}]
`, caller)
}

// outsideCaller reaches the external services "plain" and "echo" at 10001 and on.
func outsideCaller(name string, host int) string {
	outbounds := ""
	for i, service := range []string{"plain", "echo"} {
		outbounds += fmt.Sprintf("\n  - {address: NET.%d, port: %d, backendRef: {kind: MeshExternalService, name: %s, port: %d}}", host, 10001+i, service, 80+i)
	}
	return fmt.Sprintf("\n---\ntype: Dataplane\nmesh: default\nname: %[1]s\nlabels: {kuma.io/workload: %[1]s}\nnetworking:\n  address: NET.%[2]d\n  outbound:%[3]s", name, host, outbounds)
}

// goingOut is a mesh that uses what is outside: HTTP and bytes.
func goingOut(t *testing.T) *world {
	w := newWorld(t)
	w.service(50, 18090, "plain")
	w.echo(50, 18091)
	w.apply(withIdentity +
		external("plain", "http", 80, "{address: NET.50, port: 18090}") +
		external("echo", "tcp", 81, "{address: NET.50, port: 18091}") +
		lettingOut("client"))
	return w
}

// out is where a host reaches an external service over HTTP.
func (w *world) out(host, port int) string {
	return fmt.Sprintf("http://%s:%d/", w.address(host), port)
}

// What is outside is reached through the zone's egress alone, by whom its permissions name.
// (Mesh Scoped Zone Ingress and Zone Egress.)
func TestWhatIsOutsideIsReachedThroughTheEgress(t *testing.T) {
	w := goingOut(t)
	w.proxy("default", "client", outsideCaller("client", 8))
	w.proxy("default", "stranger", outsideCaller("stranger", 9))
	w.eventually("without an egress nothing goes out, and it is said", func() error {
		body, err := fetch(w.out(8, 10001))
		if err == nil || !strings.Contains(err.Error(), "503") {
			return fmt.Errorf("%v %s", err, body)
		}
		out, err := w.weft("inspect", "service", "plain")
		if err == nil && !strings.Contains(out, "egress") {
			err = fmt.Errorf("inspect says %s", out)
		}
		return err
	})
	w.proxy("default", "egress-1", egress("egress-1", 20))
	w.answers(fetch, w.out(8, 10001), "plain")
	w.eventually("the stranger is refused", func() error { return w.refused(w.out(9, 10001)) })
	if _, err := greet(w.address(8) + ":10002")(t.Context()); err != nil {
		t.Errorf("bytes do not come back: %v", err)
	}
	if _, err := greet(w.address(9) + ":10002")(t.Context()); err == nil {
		t.Error("bytes of the stranger go out")
	}
	if out, err := w.weft("get", "meshexternalservice", "plain", "-o", "yaml"); err != nil || !strings.Contains(out, "address: "+w.address(20)) {
		t.Errorf("its status does not name the egress: %v\n%s", err, out)
	}
	if out, err := w.weft("explain", "--from", "stranger", "--to", "plain"); err != nil || !strings.Contains(out, "egress-1") {
		t.Errorf("explain does not say where the stranger is refused: %v\n%s", err, out)
	}
}

// asksOut asks for everything that is outside in turn.
func (w *world) asksOut(host int) traffic.Ask {
	return inTurn(traffic.Get(w.out(host, 10001)), traffic.Post(w.out(host, 10001)), greet(fmt.Sprintf("%s:10002", w.address(host))))
}

// Egresses go, come and are replaced under traffic to the outside.
func TestDrillEgresses(t *testing.T) {
	w := goingOut(t)
	first := w.proxy("default", "egress-1", egress("egress-1", 20))
	second := w.proxy("default", "egress-2", egress("egress-2", 21))
	w.proxy("default", "client", outsideCaller("client", 8))
	w.eventually("a request goes out", func() error { return get(w.out(8, 10001)) })
	w.sharing("egress-1", "egress-2")

	d := w.drill("one of two egresses is killed", traffic.Get(w.out(8, 10001)))
	d.more(50)
	first.kill()
	d.more(100)
	d.end()

	d = w.drill("the egresses of a zone are replaced, one after the other", w.asksOut(8))
	d.more(50)
	w.proxy("default", "egress-3", egress("egress-3", 22))
	second.Process.Signal(syscall.SIGTERM)
	<-second.exited
	d.more(50)
	w.apply(strings.Replace(egress("egress-3", 22), "20300", "20301", 1))
	w.eventually("the place that it had is closed", func() error { return w.closed(w.address(22) + ":20300") })
	d.more(50)
	d.end()
}

// sharing waits until clients are sent to all of these egresses.
func (w *world) sharing(egresses ...string) {
	w.t.Helper()
	w.eventually("the egresses share the load", func() error {
		out, err := w.weft("inspect", "service", "plain")
		for _, name := range egresses {
			if err == nil && !strings.Contains(out, name) {
				err = fmt.Errorf("%s is not used: %s", name, out)
			}
		}
		return err
	})
}
