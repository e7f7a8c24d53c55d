package e2e

import (
	"fmt"
	"strings"
	"testing"

	"weft/internal/traffic"
)

// egressDataplane returns a zone egress at an address of the test.
func egressDataplane(name string, host int) string {
	return fmt.Sprintf(`
type: Dataplane
mesh: default
name: %[1]s
labels: {kuma.io/workload: %[1]s}
networking: {zoneEgress: {address: NET.%[2]d, port: 20300}}
`, name, host)
}

// routing returns the Mesh's routing of cross-zone traffic: through zone egresses, or directly.
func routing(throughEgress bool) string {
	return fmt.Sprintf("type: Mesh\nname: default\nrouting: {zoneEgress: %v}\n", throughEgress)
}

// goesThrough returns an error unless the explanation of the client's request contains the zone egress, or none for an
// empty name.
func (w *world) goesThrough(egress string) error {
	out, err := w.weft("explain", "--from", "client", "--to", "web:80")
	if err == nil && (strings.Contains(out, "zone egress") != (egress != "") || !strings.Contains(out, egress)) {
		err = fmt.Errorf("want the egress %q:\n%s", egress, out)
	}
	return err
}

// Cross-zone traffic goes through the egress of the client's zone, with mutual TLS between client and server. Without
// an egress it takes no other route. (Mesh Scoped Zone Ingress and Zone Egress.)
func TestCrossZoneTrafficUsesTheEgress(t *testing.T) {
	f := newFederation(t)
	_, west := f.eastAndWest()
	url := west.outbound(3, "http")
	f.global.apply(routing(true))
	west.eventually("without an egress the client reaches no other zone", func() error {
		_, err := west.machine.fetch(url)
		if err == nil || !strings.Contains(err.Error(), "503") {
			return fmt.Errorf("%v", err)
		}
		return nil
	})
	west.proxy("default", "egress-1", egressDataplane("egress-1", 11))
	west.passes(url, "web-1 By=spiffe://default.east.mesh.local/workload/web",
		"URI=spiffe://default.west.mesh.local/workload/client")
	west.eventually("the way leads through it", func() error { return west.goesThrough("egress-1") })
	f.global.apply(denying("spiffe://default.west.mesh.local/workload/client"))
	west.eventually("the server denies the client by its SPIFFE ID", func() error { return west.denied(url) })
}

// The route to other zones changes under traffic.
func TestDrillTheRouteToOtherZones(t *testing.T) {
	f := newFederation(t)
	_, west := f.eastAndWest()
	url := west.outbound(3, "http")
	tcp := fmt.Sprintf("%s:%d", west.address(3), webOutbounds["tcp"])
	first := west.proxy("default", "egress-1", egressDataplane("egress-1", 11))
	all := func() traffic.Send { return inTurn(west.get(url), west.post(url), greetBy(west.machine.dial, tcp)) }

	d := west.drill("cross-zone traffic switches to the egress", all())
	d.more(50)
	f.global.apply(routing(true))
	west.eventually("the way leads through it", func() error { return west.goesThrough("egress-1") })
	d.more(50)
	d.end()

	d = west.drill("an egress takes another's place", all())
	d.more(50)
	west.proxy("default", "egress-2", egressDataplane("egress-2", 12))
	west.stops(first)
	d.more(50)
	d.end()

	d = west.drill("cross-zone traffic switches back to the remote ingresses", all())
	d.more(50)
	f.global.apply(routing(false))
	west.eventually("the way leads there", func() error { return west.goesThrough("") })
	d.more(50)
	d.end()
}
