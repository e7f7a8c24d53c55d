package e2e

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"weft/internal/process"
)

// zoneIngress runs a ZoneIngress, which serves every mesh of a zone, with a zone token.
func (f *federation) zoneIngress(w *world, zone, name string, host int) *process.Process {
	f.t.Helper()
	token, err := f.global.weft("generate", "zone-token", "--zone", zone, "--scope", "ingress")
	if err != nil {
		f.t.Fatalf("%v\n%s", err, token)
	}
	document := fmt.Sprintf("{type: ZoneIngress, name: %s, networking: {address: NET.%[2]d, port: 20100, "+
		"advertisedAddress: NET.%[2]d, advertisedPort: 20100}}", name, host)
	return w.runZoneProxy("ingress", name, document, token)
}

// runZoneProxy runs a ZoneIngress or a ZoneEgress, with a zone token.
func (w *world) runZoneProxy(proxyType, name, document, token string) *process.Process {
	w.t.Helper()
	ready := freePorts(w.t, 1)[0]
	p := w.startOn(w.machine, name, "weft-dp", w.agent(name, document, token, ready).Args(append(w.agentFlags,
		"--proxy-type", proxyType)...)...)
	w.ready(w.machine, p, ready)
	return p
}

// closed returns an error while a process listens at an address.
func (w *world) closed(address string) error {
	conn, err := w.machine.dial(w.t.Context(), "tcp", address)
	if err == nil {
		conn.Close()
		return fmt.Errorf("%s takes connections", address)
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil
	}
	return err
}

// The only ingress of a zone moves, is replaced by a ZoneIngress, and replaces that again, under traffic from another
// zone.
func TestDrillIngresses(t *testing.T) {
	f := newFederation(t)
	east, west := f.eastAndWest()
	url := west.outbound(3, "http")
	first := east.processOf("ingress-1")

	d := west.drill("the only ingress of a zone moves", inTurn(west.get(url), west.post(url)))
	d.more(50)
	moved := fmt.Sprintf(`
type: Dataplane
mesh: default
name: ingress-1
labels: {kuma.io/workload: ingress-1}
networking: {zoneIngress: {address: NET.%[1]d, port: 20200, advertisedAddress: NET.%[1]d, advertisedPort: 20200}}
`, 10)
	east.apply(moved)
	east.eventually("its former place is closed", func() error { return east.closed(east.address(10) + ":20100") })
	d.more(50)
	d.end()

	d = west.drill("a ZoneEgress, which serves every mesh, takes over", inTurn(west.get(url), west.post(url)))
	d.more(50)
	old := f.zoneIngress(east, "east", "old", 11)
	east.stops(first)
	d.more(100)
	d.end()

	d = west.drill("the mesh's own ingress takes over again", inTurn(west.get(url), west.post(url)))
	d.more(50)
	east.proxy("default", "ingress-1", moved)
	east.stops(old)
	d.more(100)
	d.end()
}
