package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"weft/internal/traffic"
)

// wayOut is a zone egress at an address of the test.
func wayOut(name string, host int) string {
	return fmt.Sprintf(`
type: Dataplane
mesh: default
name: %[1]s
labels: {kuma.io/workload: %[1]s}
networking: {zoneEgress: {address: NET.%[2]d, port: 20300}}
`, name, host)
}

// sending says by which way what goes to other zones goes.
func sending(throughEgress bool) string {
	return fmt.Sprintf("type: Mesh\nname: default\nrouting: {zoneEgress: %v}\n", throughEgress)
}

// goesThrough fails unless an explanation of the client's request names a zone egress, or none where that is empty.
func (w *world) goesThrough(egress string) error {
	out, err := w.weft("explain", "--from", "client", "--to", "web:80")
	if err == nil && (strings.Contains(out, "zone egress") != (egress != "") || !strings.Contains(out, egress)) {
		err = fmt.Errorf("want the egress %q:\n%s", egress, out)
	}
	return err
}

// What goes to another zone goes through the egress of the client's, with the mutual TLS of client and server, and by
// no other way while there is none. (Mesh Scoped Zone Ingress and Zone Egress.)
func TestTheWayToOtherZonesIsTheEgress(t *testing.T) {
	f := newFederation(t)
	_, west := f.eastAndWest()
	url := west.outbound(3, "http")
	f.global.apply(sending(true))
	west.eventually("without an egress the client reaches no other zone", func() error {
		_, err := west.machine.fetch(url)
		if err == nil || !strings.Contains(err.Error(), "503") {
			return fmt.Errorf("%v", err)
		}
		return nil
	})
	west.proxy("default", "egress-1", wayOut("egress-1", 11))
	west.passes(url, "web-1 By=spiffe://default.east.mesh.local/workload/web", "URI=spiffe://default.west.mesh.local/workload/client")
	west.eventually("the way leads through it", func() error { return west.goesThrough("egress-1") })
	f.global.apply(denying("spiffe://default.west.mesh.local/workload/client"))
	west.eventually("the server knows whom it refuses", func() error { return west.refused(url) })
}

// The way to other zones changes under traffic.
func TestDrillTheWayToOtherZones(t *testing.T) {
	f := newFederation(t)
	_, west := f.eastAndWest()
	url := west.outbound(3, "http")
	tcp := fmt.Sprintf("%s:%d", west.address(3), webOutbounds["tcp"])
	first := west.proxy("default", "egress-1", wayOut("egress-1", 11))
	all := func() traffic.Send { return inTurn(west.get(url), west.post(url), greetBy(west.machine.dial, tcp)) }

	d := west.drill("what goes to other zones begins to go through the egress", all())
	d.more(50)
	f.global.apply(sending(true))
	west.eventually("the way leads through it", func() error { return west.goesThrough("egress-1") })
	d.more(50)
	d.end()

	d = west.drill("an egress takes another's place", all())
	d.more(50)
	west.proxy("default", "egress-2", wayOut("egress-2", 12))
	first.Process.Signal(syscall.SIGTERM)
	<-first.exited
	d.more(50)
	d.end()

	d = west.drill("what goes to other zones goes to their ingresses again", all())
	d.more(50)
	f.global.apply(sending(false))
	west.eventually("the way leads there", func() error { return west.goesThrough("") })
	d.more(50)
	d.end()
}
