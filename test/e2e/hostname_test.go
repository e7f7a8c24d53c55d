package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// resolverAddress is the address of each machine's own resolver in tests of host names.
const resolverAddress = "127.0.0.1:5353"

// ingressAt returns a zone ingress at a host, with the address that other zones dial.
func ingressAt(name string, host int, advertised string) string {
	return strings.Replace(ingress(name, host), fmt.Sprintf("advertisedAddress: NET.%d", host),
		"advertisedAddress: "+advertised, 1)
}

// dialsAt waits until the Envoy of a proxy has the address at, unless that is empty, and none of the addresses in left.
func (w *world) dialsAt(proxy, what string, at string, left ...string) {
	w.t.Helper()
	w.eventually(what, func() error {
		clusters, err := w.api("/meshes/default/dataplanes/" + proxy + "/clusters")
		if err != nil {
			return err
		}
		if !strings.Contains(clusters, at) {
			return fmt.Errorf("%s is not dialed", at)
		}
		for _, address := range left {
			if strings.Contains(clusters, address) {
				return fmt.Errorf("%s is dialed still", address)
			}
		}
		return nil
	})
}

// The addresses of zone ingresses become host names, these move, and no resolver responds, under traffic from another
// zone.
func TestDrillHostNamesMove(t *testing.T) {
	f := newFederation(t)
	east, west := f.eastAndWestBy(crossZoneRules, "KUMA_HOST_NAMES_RESOLVERS="+resolverAddress,
		"KUMA_HOST_NAMES_DRAIN_TIME=2s")
	names, _ := startResolverOn(t, west.machine, resolverAddress)
	first, second := east.address(10)+":20100", east.address(11)+":20100"
	url := west.outbound(3, "http")

	names.Silence(true)
	names.Set("lb.example", "A", east.address(10))
	d := west.drill("the address of an ingress becomes a host name", inTurn(west.get(url), west.post(url)))
	d.more(50)
	east.apply(ingressAt("ingress-1", 10, "lb.example"))
	west.eventually("the other zone looks it up", func() error {
		if names.Times("lb.example", "A") == 0 {
			return fmt.Errorf("it does not")
		}
		return nil
	})
	d.more(50)
	names.Silence(false)
	west.eventually("the name is resolved", func() error { return west.resolves("lb.example", "") })
	d.more(50)
	d.end()

	d = west.drill("a host name moves to another ingress", inTurn(west.get(url), west.post(url)))
	d.more(50)
	east.proxy("default", "ingress-2", ingressAt("ingress-2", 11, "lb.example"))
	names.Set("lb.example", "A", east.address(11))
	west.dialsAt("client", "the new address joins and the former one is drained", second, first)
	old := east.processOf("ingress-1")
	east.stops(old)
	d.more(50)
	d.end()

	names.Silence(true)
	d = west.drill("no resolver responds, and the control plane is restarted", inTurn(west.get(url), west.post(url)))
	d.more(50)
	west.plane.Kill()
	west.startPlane()
	west.eventually("it is said that the name is not resolved", func() error {
		return west.resolves("lb.example", "SERVFAIL")
	})
	west.dialsAt("client", "the last address remains", second, first)
	d.more(50)
	d.end()
}

// resolves returns an error unless the problem of a host name contains the text, or is absent for an empty text.
func (w *world) resolves(name, problem string) error {
	out, err := w.weft("check")
	found := strings.Contains(out, name)
	switch {
	case out == "":
		return err
	case problem == "" && found, problem != "" && (!found || !strings.Contains(out, problem)):
		return fmt.Errorf("weft check says %s", out)
	}
	return nil
}

// The host name of a Dataplane moves: its proxy listens at the new address, and clients follow, under traffic.
func TestDrillADataplaneAtAHostName(t *testing.T) {
	t.Parallel()
	w := newInstance(t, int(subnets.Add(1)))
	names, resolver := startResolver(t)
	w.env = append(w.env, "KUMA_HOST_NAMES_RESOLVERS="+resolver)
	w.startPlane()
	w.apply(secured + "---" + service("web", webPorts))
	w.service(3, 18080, "web-1")
	w.echo(3, 18081)
	names.Set("web-1.example", "A", w.address(3))
	document := strings.Replace(webServer("web-1", 3), "address: NET.3\n  inbound", "address: web-1.example\n  inbound",
		1)
	if !strings.Contains(document, "web-1.example") {
		t.Fatal("the Dataplane has no host name")
	}
	w.proxy("default", "web-1", document)
	w.proxy("default", "client", webClient("client", 8, "default", 80))
	w.passes(w.outbound(8, "http"), "web-1")

	d := w.drill("the host name of a Dataplane moves",
		inTurn(w.get(w.outbound(8, "http")), w.post(w.outbound(8, "http"))))
	d.more(50)
	names.Set("web-1.example", "A", w.address(4))
	w.dialsAt("client", "the client follows", w.address(4)+":20080", w.address(3)+":20080")
	w.eventually("the former listener is closed", func() error { return w.closed(w.address(3) + ":20080") })
	d.more(50)
	d.end()
}
