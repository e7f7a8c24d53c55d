package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
)

// SNIs move to another format and back under traffic from another zone, to a MeshService and to a MeshMultiZoneService.
// A zone whose control plane does not respond holds that up, and is reported.
func TestDrillServerNamesMove(t *testing.T) {
	f := newFederation(t)
	east, west := f.eastAndWest()
	f.global.apply(everywhere)
	east.proxy("default", "ingress-2", ingress("ingress-2", 11))
	west.proxy("default", "caller",
		caller("caller", 4, "backendRef: {kind: MeshMultiZoneService, name: web, port: 80}"))
	ofMany := fmt.Sprintf("http://%s:10001/", west.address(4))
	west.passes(ofMany, "web-1")
	echo := greetBy(west.machine.dial, fmt.Sprintf("%s:%d", west.address(3), webOutbounds["tcp"]))
	send := inTurn(west.get(west.outbound(3, "http")), west.post(west.outbound(3, "grpc")), west.get(ofMany), echo)

	d := west.drill("SNIs move to another format", send)
	d.more(50)
	f.namesMove("v2")
	f.named("b")
	d.more(50)
	d.end()

	// The proxies of a zone with a stopped control plane keep their configuration.
	d = west.drill("SNIs return to the former format while a control plane is stopped", send)
	d.more(50)
	stoppedPlane := west.plane
	stoppedPlane.Signal(syscall.SIGSTOP)
	t.Cleanup(func() { stoppedPlane.Signal(syscall.SIGCONT) }) // it could not exit
	if _, err := f.global.weft("sni", "migrate", "--to", "v1"); err != nil {
		t.Fatal(err)
	}
	f.global.eventually("its zone is waited for", func() error { return f.global.waits("east") })
	d.more(100)
	f.named("b")
	stoppedPlane.Signal(syscall.SIGCONT)
	f.namesMove("v1")
	f.named("a")
	d.more(50)
	d.end()
}

// namesMove waits until all SNIs have a format.
func (f *federation) namesMove(format string) {
	f.t.Helper()
	if _, err := f.global.weft("sni", "migrate", "--to", format); err != nil {
		f.t.Fatal(err)
	}
	f.global.eventually("all server names have the format "+format, func() error {
		out, err := f.global.weft("sni", "status")
		if err == nil && !strings.HasPrefix(out, "server names of the format "+format+": done\n") {
			err = fmt.Errorf("%s", out)
		}
		return err
	})
}

// waits returns an error unless the services of an owner wait for a reported client.
func (w *world) waits(owner string) error {
	out, err := w.weft("sni", "status")
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, owner) && !strings.HasSuffix(line, " -\n") {
			return nil
		}
	}
	return fmt.Errorf("%s waits for no client: %v\n%s", owner, err, out)
}

// named fails the test unless clients use SNIs with the prefix, according to global.
func (f *federation) named(prefix string) {
	f.t.Helper()
	for _, kind := range []string{"meshservices", "meshmultizoneservices"} {
		out, err := f.global.weft("get", kind, "-o", "yaml")
		if _, first, found := strings.Cut(out, "snis:\n"); err != nil || !found ||
			!strings.HasPrefix(strings.TrimLeft(first, " -"), "value: "+prefix) {
			f.t.Errorf("the server names of %s do not begin with %s: %v\n%s", kind, prefix, err, out)
		}
	}
}
