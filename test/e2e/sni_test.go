package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
)

// Server names move to another format and back under traffic from another zone, to a service of one zone and to
// one of many. A zone whose control plane does not answer holds that up, and is asked for.
func TestDrillServerNamesMove(t *testing.T) {
	f := newFederation(t)
	east, west := f.eastAndWest()
	f.global.apply(everywhere)
	east.proxy("default", "ingress-2", ingress("ingress-2", 11))
	west.proxy("default", "caller", caller("caller", 4, "backendRef: {kind: MeshMultiZoneService, name: web, port: 80}"))
	ofMany := fmt.Sprintf("http://%s:10001/", west.address(4))
	west.passes(ofMany, "web-1")
	echo := greetBy(west.machine.dial, fmt.Sprintf("%s:%d", west.address(3), webOutbounds["tcp"]))
	ask := inTurn(west.get(west.outbound(3, "http")), west.post(west.outbound(3, "grpc")), west.get(ofMany), echo)

	d := west.drill("server names move to another format", ask)
	d.more(50)
	f.namesMove("v2")
	f.named("b")
	d.more(50)
	d.end()

	// The proxies of a zone whose control plane stands still go on with what they have.
	d = west.drill("server names move back while a control plane stands still", ask)
	d.more(50)
	standing := west.plane
	standing.Process.Signal(syscall.SIGSTOP)
	t.Cleanup(func() { standing.Process.Signal(syscall.SIGCONT) }) // it could not end
	if _, err := f.global.weft("sni", "migrate", "--to", "v1"); err != nil {
		t.Fatal(err)
	}
	f.global.eventually("its zone is waited for", func() error { return f.global.waits("east") })
	d.more(100)
	f.named("b")
	standing.Process.Signal(syscall.SIGCONT)
	f.namesMove("v1")
	f.named("a")
	d.more(50)
	d.end()
}

// namesMove waits until all server names have a format.
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

// waits fails unless the services of an owner wait for somebody, who is named.
func (w *world) waits(owner string) error {
	out, err := w.weft("sni", "status")
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, owner) && !strings.HasSuffix(line, " -\n") {
			return nil
		}
	}
	return fmt.Errorf("%s waits for nobody: %v\n%s", owner, err, out)
}

// named fails the test unless clients use names that begin so, as global has them.
func (f *federation) named(prefix string) {
	f.t.Helper()
	for _, kind := range []string{"meshservices", "meshmultizoneservices"} {
		out, err := f.global.weft("get", kind, "-o", "yaml")
		if _, first, found := strings.Cut(out, "snis:\n"); err != nil || !found || !strings.HasPrefix(strings.TrimLeft(first, " -"), "value: "+prefix) {
			f.t.Errorf("the server names of %s do not begin with %s: %v\n%s", kind, prefix, err, out)
		}
	}
}
