package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"weft/internal/testwait"
	"weft/internal/traffic"
)

// showDrills is set by `make drills`: it prints the table, and runs the long drills.
var showDrills = flag.Bool("drills", false,
	"run the long drills too, and print what every drill sent, and what failed by cause")

// drill is traffic during an event in a mesh. Tests of drills have the prefix TestDrill.
type drill struct {
	*traffic.Run
	w         *world
	name      string
	perSecond int

	// deadlinesMayPass states that requests may fail by their client's deadline, and by nothing else. The deadline is
	// then a part of the event.
	deadlinesMayPass bool
	// recovery is the time after a stall until latency was normal; 0 where it is not measured.
	recovery time.Duration
}

// The load of clients. Beside the other tests, two cores have no capacity for more: few requests are open, so that a
// slow machine gets fewer of them, and completes each before a timeout of the mesh passes.
var (
	alone  = load(1000, 1000)
	beside = load(100, 16)
)

// renewedLife is the validity of certificates that are renewed during a test. They are renewed after 60 to 80 % of it,
// so that a slow machine has 24 s for a renewal.
const renewedLife = 2 * time.Minute

// load returns requests of clients that wait for their responses: a request that waits for a core has not failed.
func load(perSecond, maxOpen int) traffic.Load {
	return traffic.Load{PerSecond: perSecond, Timeout: testwait.Timeout, MaxOpen: maxOpen}
}

func drillLoad() traffic.Load {
	if *showDrills && !*busy {
		return alone
	}
	return beside
}

// drill starts traffic. The name states the event.
func (w *world) drill(name string, send traffic.Send) *drill { return w.drillAmong(1, name, send) }

// drillAmong is drill for one of several drills that share the load.
func (w *world) drillAmong(several int, name string, send traffic.Send) *drill {
	l := drillLoad()
	l.PerSecond /= several
	return w.drillUnder(l, name, send)
}

// drillUnder is drill with a load.
func (w *world) drillUnder(l traffic.Load, name string, send traffic.Send) *drill {
	d := &drill{Run: l.Start(send), w: w, name: name, perSecond: l.PerSecond}
	w.t.Cleanup(func() {
		if tally := d.Stop(); w.t.Failed() {
			verdict, err := tally.Verdict()
			if err != nil {
				verdict = fmt.Sprintf("%v; the slowest took %s", err, tally.Slowest)
			}
			w.t.Logf("%s: %s", name, verdict)
		}
	})
	return d
}

// more waits for n further requests, or for proportionally more with a higher rate.
func (d *drill) more(n int64) {
	d.w.t.Helper()
	n *= int64(max(1, d.perSecond/beside.PerSecond))
	from := d.Begun()
	d.w.eventually(fmt.Sprintf("%d more requests are sent", n), func() error {
		if sent := d.Begun() - from; sent < n {
			return fmt.Errorf("%d", sent)
		}
		return nil
	})
}

// sendFor waits for the duration of a timed event, in which requests are sent. The reason is that of [testwait.Pass].
func (d *drill) sendFor(t time.Duration, reason string) {
	d.w.t.Helper()
	from := d.Begun()
	testwait.Pass(t, reason)
	d.w.eventually("requests are sent meanwhile", func() error {
		if d.Begun() == from {
			return errors.New("none is")
		}
		return nil
	})
}

// awaitResponses waits until every request that was sent until now has its response.
func (d *drill) awaitResponses(when string) {
	d.w.t.Helper()
	now := time.Now()
	d.w.eventually(d.name+": every request has its response "+when, func() error {
		if n := d.Open(now); n > 0 {
			return fmt.Errorf("%d requests have none", n)
		}
		return nil
	})
}

// end ends the traffic, fails the test if a client saw a failure, and returns the results.
func (d *drill) end() traffic.Tally {
	d.w.t.Helper()
	tally := d.Stop()
	judged := tally
	if d.deadlinesMayPass {
		judged = tally.WithoutDeadlines()
	}
	verdict, err := judged.Verdict()
	if err != nil {
		d.w.t.Errorf("%s: %v", d.name, err)
	}
	d.w.t.Log(verdict)
	drills.Add(traffic.Drill{Name: d.name, Tally: tally, NormalAfter: d.recovery})
	return tally
}

// endAll ends the traffic of several drills at once, so that long requests of one are not waited for before the next
// stops. It returns the results of each.
func endAll(drills []*drill) (tallies []traffic.Tally) {
	var stopping sync.WaitGroup
	for _, d := range drills {
		stopping.Go(func() { d.Stop() })
	}
	stopping.Wait()
	for _, d := range drills {
		d.w.t.Helper()
		tallies = append(tallies, d.end())
	}
	return tallies
}

var drills traffic.Report

// inTurn sends requests by each Send in turn.
func inTurn(sends ...traffic.Send) traffic.Send {
	var mu sync.Mutex
	next := 0
	return func(ctx context.Context) (string, error) {
		mu.Lock()
		send := sends[next%len(sends)]
		next++
		mu.Unlock()
		return send(ctx)
	}
}

// greet opens a TCP connection, and expects its message back.
func greet(address string) traffic.Send { return greetBy((&net.Dialer{}).DialContext, address) }

func greetBy(dial traffic.Dial, address string) traffic.Send {
	return func(ctx context.Context) (string, error) {
		return "echo", converse(ctx, dial, address, func(conn net.Conn) error { return says(conn, "weft") })
	}
}

// exchange sends a text on a connection, and returns as many bytes of the response.
func exchange(conn net.Conn, text string) (string, error) {
	if err := conn.SetDeadline(testwait.Deadline()); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, text); err != nil {
		return "", err
	}
	response := make([]byte, len(text))
	_, err := io.ReadFull(conn, response)
	return string(response), err
}

// says sends a text on a connection, and expects it back.
func says(conn net.Conn, text string) error {
	back, err := exchange(conn, text)
	if err == nil && back != text {
		err = fmt.Errorf("the echo of %s is %q", text, back)
	}
	return err
}

// converse calls f with a new connection, which ends with the context.
func converse(ctx context.Context, dial traffic.Dial, address string, f func(net.Conn) error) error {
	conn, err := dial(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	return callWithin(ctx, conn, func() error { return f(conn) })
}

// callWithin calls f, and closes the connection that it uses when the context ends before. The error is the context's
// then.
func callWithin(ctx context.Context, conn net.Conn, f func() error) error {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	err := f()
	if !stop() {
		return ctx.Err()
	}
	return err
}

// attempt calls f with the context of one attempt of many.
func attempt(t *testing.T, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(t.Context(), testwait.Attempt)
	defer cancel()
	return f(ctx)
}

// sendOnce sends one request, in one attempt of many.
func sendOnce(t *testing.T, send traffic.Send) error {
	return attempt(t, func(ctx context.Context) error {
		_, err := send(ctx)
		return err
	})
}
