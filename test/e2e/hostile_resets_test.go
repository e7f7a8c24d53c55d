package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"weft/internal/pki"
	"weft/internal/testwait"
	"weft/internal/traffic"
)

const (
	resetConnections = 32
	// resetMemory is what the attack may add to the memory of a server's Envoy: about 7 MB for each connection.
	resetMemory = 400 << 20
	// resetMemoryOfGo is the same for a control plane.
	resetMemoryOfGo = 200 << 20
)

// A member that no rule allows opens requests on many HTTP/2 connections, and cancels each at once (rapid reset). The
// proxy of the server keeps its memory. What other requests lose is printed: attacker and proxy share the processors of
// this machine. The same for a stranger at the ports of a control plane.
func TestHostileCanceledRequests(t *testing.T) {
	a := newAttack(t, "a denied member, or a stranger, opens requests and cancels each at once")
	w := newWorld(t)
	const domain = "strangers.example"
	root, key, err := pki.NewCA(time.Now(), domain)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := pki.ParseCA(append(root, key...))
	if err != nil {
		t.Fatal(err)
	}
	w.apply(secured + fmt.Sprintf("---\ntype: MeshTrust\nmesh: default\nname: strangers\nspec:\n  trustDomain: %s\n"+
		"  caBundles: [{type: Pem, pem: {value: %q}}]\n", domain, root))
	w.service(2, 18080, "web")
	envoy := w.envoyOf(w.proxy("default", "web-1", server("web-1", "web", "http", 2, 20080)))
	w.proxy("default", "client", caller("client", 3, "tags: {kuma.io/service: web}"))
	url := fmt.Sprintf("http://%s:10001/", w.address(3))
	w.eventually("a request passes", func() error { return get(url) })
	inbound := w.address(2) + ":20080"
	shown := certificate(t, ca, "spiffe://"+domain+"/evil")
	w.eventually("the member is denied", func() error {
		if out, err := callAs((&net.Dialer{}).DialContext, shown, inbound); err == nil ||
			!strings.Contains(err.Error(), "403") {
			return fmt.Errorf("%s %w", out, err)
		}
		return nil
	})
	lasts := time.Duration(forms(t, 6, 30)) * time.Second

	idle := peakMemory(t, envoy)
	run := traffic.Start(50, testwait.Timeout, traffic.Get(url))
	sent := cancelMany(t, inbound, shown, lasts)
	tally := run.Stop()
	failed, causes := tally.Failures()
	t.Logf("%d requests were canceled; the proxy had at most %d MiB, %d before; of %d other requests %d failed %s",
		sent, peakMemory(t, envoy)>>20, idle>>20, tally.Sent, failed, causes)
	if used := peakMemory(t, envoy) - idle; used > resetMemory {
		a.fellTo("the proxy took %d MiB", used>>20)
	} else {
		a.repelled()
	}

	before := peakMemory(t, w.plane.PID())
	sent = cancelMany(t, w.plane.DataPlane, nil, lasts)
	used := peakMemory(t, w.plane.PID()) - before
	t.Logf("%d requests were canceled at the data plane server, which took %d MiB", sent, used>>20)
	if used > resetMemoryOfGo {
		a.fellTo("the control plane took %d MiB", used>>20)
	} else {
		a.repelled()
	}
	w.apply(allowing("spiffe://other/"))
}

// cancelMany cancels requests on many connections for a time, and opens another connection for each that the server
// closes. It returns their number.
func cancelMany(t *testing.T, address string, shown *tls.Certificate, lasts time.Duration) int64 {
	t.Helper()
	config := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}
	if shown != nil {
		config.Certificates = []tls.Certificate{*shown}
	}
	var sent atomic.Int64
	var attackers sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for range resetConnections {
		attackers.Go(func() {
			for ctx.Err() == nil {
				dialer := tls.Dialer{Config: config}
				conn, err := dialer.DialContext(ctx, "tcp", address)
				if err != nil {
					continue // the server is busy, or rejects connections
				}
				context.AfterFunc(ctx, func() { conn.Close() })
				_ = cancelRequests(conn, &sent) // ends when either side closes it
				conn.Close()
			}
		})
	}
	testwait.Pass(lasts, "the attack lasts as long")
	stop()
	attackers.Wait()
	return sent.Load()
}

// cancelRequests opens requests on a connection, and cancels each at once, until the server closes it.
func cancelRequests(conn net.Conn, sent *atomic.Int64) error {
	to := bufio.NewWriterSize(conn, 64<<10)
	if _, err := io.WriteString(to, http2.ClientPreface); err != nil {
		return err
	}
	go io.Copy(io.Discard, conn)
	framer := http2.NewFramer(to, nil)
	if err := framer.WriteSettings(); err != nil {
		return err
	}
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block) // from the second request on, a field is a byte
	for stream := uint32(1); stream < math.MaxInt32-2; stream += 2 {
		block.Reset()
		for _, field := range []hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "https"},
			{Name: ":authority", Value: "web"}, {Name: ":path", Value: "/"}} {
			if err := encoder.WriteField(field); err != nil {
				return err
			}
		}
		if err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(),
			EndHeaders: true, EndStream: true}); err != nil {
			return err
		}
		if err := framer.WriteRSTStream(stream, http2.ErrCodeCancel); err != nil {
			return err
		}
		sent.Add(1)
	}
	return to.Flush()
}
