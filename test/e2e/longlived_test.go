package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"weft/internal/process"
	"weft/internal/testwait"
	"weft/internal/traffic"
)

// A response, or a conversation on a TCP connection, has pieces with pauses. It lasts 8 s, which is longer than the
// drain time, and much shorter than the 30 s after which a stopping proxy cuts it.
const pieces, pieceInterval = 16, 500 * time.Millisecond

// streaming is an application that sends its responses in pieces.
func streaming(rw http.ResponseWriter, r *http.Request) {
	flush := http.NewResponseController(rw)
	for range pieces {
		io.WriteString(rw, ".")
		flush.Flush()
		testwait.Pass(pieceInterval, "the response is long")
		if r.Context().Err() != nil {
			return
		}
	}
	io.WriteString(rw, "end")
}

// streamed expects a complete response.
func streamed(dial traffic.Dial, url string) traffic.Send {
	send := traffic.SendOver(&http.Transport{DialContext: dial, DisableKeepAlives: true}, http.MethodPost, url)
	return func(ctx context.Context) (string, error) {
		body, err := send(ctx)
		if err == nil && !strings.HasSuffix(body, ".end") {
			err = errors.New("the response is not whole")
		}
		return "stream", err
	}
}

// conversed expects all its messages back on one connection for a while.
func conversed(dial traffic.Dial, address string) traffic.Send {
	return func(ctx context.Context) (string, error) {
		return "conversation", converse(ctx, dial, address, func(conn net.Conn) error {
			for range pieces {
				if err := says(conn, "weft"); err != nil {
					return err
				}
				testwait.Pass(pieceInterval, "the conversation is long")
			}
			return nil
		})
	}
}

// legacy runs a ZoneIngress or ZoneEgress of a zone.
func (f *federation) legacy(w *world, kind, name string, host int) *process.Process {
	f.t.Helper()
	if kind == "ingress" {
		return f.zoneIngress(w, w.zone, name, host)
	}
	token, err := f.global.weft("generate", "zone-token", "--zone", w.zone, "--scope", "egress")
	if err != nil {
		f.t.Fatalf("%v\n%s", err, token)
	}
	document := fmt.Sprintf("{type: ZoneEgress, name: %s, networking: {address: NET.%d, port: 20300}}", name, host)
	return w.runZoneProxy("egress", name, document, token)
}

// Long responses and TCP connections pass zone proxies that are stopped, replaced by the other form, or lose their
// section. A draining zone proxy stays until its connections have ended, and new ones go to another.
func TestDrillLongConnectionsPassDrainingZoneProxies(t *testing.T) {
	f := newFederation(t)
	east, west := f.eastAndWest()
	l := east.listen(4, 18080)
	slow := &http.Server{Handler: http.HandlerFunc(streaming)}
	go slow.Serve(l)
	t.Cleanup(func() { slow.Close() })
	east.echo(4, 18081)
	east.apply(service("slow", webPorts))
	f.global.apply(strings.Replace(timeoutPolicy(withoutTimeout), "workload: client", "workload: slow-client", 1))
	west.eventually("the timeout of long responses has come", func() error { return west.has("meshtimeouts", "t") })
	east.proxy("default", "slow-1", strings.ReplaceAll(webServer("slow-1", 4), "service: web", "service: slow"))
	west.proxy("default", "slow-client", strings.ReplaceAll(webClient("slow-client", 4, "east", 80, 81, 82),
		"display-name: web", "display-name: slow"))
	dial := traffic.Dial(west.machine.dial)
	url, tcp := west.outbound(4, "http"), fmt.Sprintf("%s:%d", west.address(4), webOutbounds["tcp"])
	long, fewer, short := load(10, 100), load(2, 20), load(50, beside.MaxOpen)

	// drains stops a zone proxy, or changes it by do, under long and short connections. Long ones begin until a proxy
	// of the clients does not dial its address any more, and for some seconds after; short ones until it has ended.
	drains := func(name, dialer, address string, proxy *process.Process, do func()) {
		t.Helper()
		lasting := []*drill{
			west.drillUnder(long, name+": responses that last 8 s", streamed(dial, url)),
			west.drillUnder(fewer, name+": TCP connections that last 8 s", conversed(dial, tcp)),
		}
		d := west.drillUnder(short, name+": short requests",
			inTurn(west.get(west.outbound(3, "http")), west.post(west.outbound(3, "http"))))
		d.sendFor(2*time.Second, "some long connections have begun")
		do()
		west.dialsAt(dialer, "the address is drained", "", address)
		d.sendFor(2*time.Second, "long connections begin while the others last")
		endAll(lasting)
		if proxy != nil {
			west.exits(proxy)
			if wrote(proxy, "connections are still open after the bound") == nil {
				t.Errorf("%s: %s cut connections", name, proxy.Name)
			}
		}
		d.more(50)
		d.end()
	}
	stops := func(name, dialer, address string, proxy *process.Process) {
		t.Helper()
		drains(name, dialer, address, proxy, func() { proxy.Signal(syscall.SIGTERM) })
	}
	reached := func() {
		west.eventually("a connection passes", func() error { return sendOnce(t, greetBy(west.machine.dial, tcp)) })
	}

	reached()
	f.legacy(east, "ingress", "old-ingress", 11)
	first := east.processOf("ingress-1")
	stops("an ingress stops", "client", east.address(10)+":20100", first)

	egress := west.proxy("default", "egress-1", egressDataplane("egress-1", 11))
	west.proxy("default", "egress-2", egressDataplane("egress-2", 12))
	f.global.apply(routing(true))
	west.eventually("the way leads through an egress", func() error { return west.goesThrough("egress-1") })
	reached()
	stops("an egress stops", "client", west.address(11)+":20300", egress)

	if *showDrills {
		old := east.processOf("old-ingress")
		east.proxy("default", "ingress-2", ingress("ingress-2", 12))
		reached()
		stops("an ingress that serves every mesh stops", "egress-2", east.address(11)+":20100", old)
	}
	third := f.legacy(west, "egress", "old-egress", 13)
	drains("an egress loses its section", "client", west.address(12)+":20300", nil, func() {
		west.apply("type: Dataplane\nmesh: default\nname: egress-2\nlabels: {kuma.io/workload: " +
			"egress-2}\nnetworking: {address: NET.12}\n")
	})
	if *showDrills {
		west.proxy("default", "egress-3", egressDataplane("egress-3", 14))
		west.eventually("the way leads through it", func() error { return west.goesThrough("egress-3") })
		stops("an egress that serves every mesh stops", "client", west.address(13)+":20300", third)
	}
}
