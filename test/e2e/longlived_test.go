package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"weft/internal/traffic"
)

// lasts is the duration of a response, or of a conversation on a TCP connection.
const lasts = 8 * time.Second

// streaming is an application that sends its responses in pieces.
func streaming(rw http.ResponseWriter, r *http.Request) {
	flush := http.NewResponseController(rw)
	for began := time.Now(); time.Since(began) < lasts; {
		io.WriteString(rw, ".")
		flush.Flush()
		select {
		case <-time.After(lasts / 32):
		case <-r.Context().Done():
			return
		}
	}
	io.WriteString(rw, "end")
}

// streamed expects a complete response.
func streamed(dial traffic.Dial, url string) traffic.Send {
	send := traffic.By(&http.Transport{DialContext: dial, DisableKeepAlives: true}, http.MethodPost, url)
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
		conn, err := dial(ctx, "tcp", address)
		if err != nil {
			return "", err
		}
		defer conn.Close()
		deadline, _ := ctx.Deadline()
		conn.SetDeadline(deadline)
		for began := time.Now(); time.Since(began) < lasts; <-time.After(lasts / 32) {
			if _, err := io.WriteString(conn, "weft"); err != nil {
				return "", err
			}
			if _, err := io.ReadFull(conn, make([]byte, 4)); err != nil {
				return "", err
			}
		}
		return "conversation", nil
	}
}

// legacy runs a ZoneIngress or ZoneEgress of a zone.
func (f *federation) legacy(w *world, kind, name string, host int) *process {
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
	east.proxy("default", "slow-1", strings.ReplaceAll(webServer("slow-1", 4), "service: web", "service: slow"))
	west.proxy("default", "slow-client", strings.ReplaceAll(webClient("slow-client", 4, "east", 80, 81, 82),
		"display-name: web", "display-name: slow"))
	dial := traffic.Dial(west.machine.dial)
	url, tcp := west.outbound(4, "http"), fmt.Sprintf("%s:%d", west.address(4), webOutbounds["tcp"])
	long := load{perSecond: 10, timeout: 30 * time.Second}
	short := load{perSecond: 50, timeout: 20 * time.Second}

	// drains stops a zone proxy, or changes it by do, under long and short connections. Long ones begin until a proxy
	// of the clients does not dial its address any more, and for some seconds after; short ones until it has ended.
	drains := func(name, dialer, address string, proxy *process, do func()) {
		t.Helper()
		lasting := []*drill{
			west.drillUnder(long, 1, name+": responses that last 8 s", streamed(dial, url)),
			west.drillUnder(long, 5, name+": TCP connections that last 8 s", conversed(dial, tcp)),
		}
		d := west.drillUnder(short, 1, name+": short requests",
			inTurn(west.get(west.outbound(3, "http")), west.post(west.outbound(3, "http"))))
		d.during(2 * time.Second)
		do()
		west.dialsAt(dialer, "the address is drained", "", address)
		d.during(2 * time.Second)
		endAll(lasting)
		if proxy != nil {
			<-proxy.exited
			if proxy.said("connections are still open after the bound") == nil {
				t.Errorf("%s: %s cut connections", name, proxy.name)
			}
		}
		d.during(time.Second)
		d.end()
	}
	stops := func(name, dialer, address string, proxy *process) {
		t.Helper()
		drains(name, dialer, address, proxy, func() { proxy.Process.Signal(syscall.SIGTERM) })
	}
	reached := func() {
		west.eventually("a connection passes", func() error { return converses(greetBy(west.machine.dial, tcp)) })
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

// converses sends one request.
func converses(send traffic.Send) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, err := send(ctx)
	return err
}
