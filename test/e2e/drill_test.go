package e2e

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

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

	// deadlinesMayPass states that requests may fail by their client's deadline, and by nothing else.
	deadlinesMayPass bool
	// recovery is the time after a stall until latency was normal; 0 without a stall.
	recovery time.Duration
}

// The load of clients. Beside the other tests, two cores have no capacity for more, and a request that waits for a core
// proves nothing about a mesh.
var (
	alone  = load{perSecond: 1000, timeout: 5 * time.Second, certificateLife: 10 * time.Second}
	beside = load{perSecond: 100, timeout: 20 * time.Second, certificateLife: 15 * time.Second}
	// besideBusy is the load on a busy machine, where an agent may wait seconds for a core.
	besideBusy = load{perSecond: 100, timeout: 20 * time.Second, certificateLife: time.Minute}
)

type load struct {
	perSecond       int
	timeout         time.Duration
	certificateLife time.Duration // where certificates must be renewed
}

func drillLoad() load {
	switch {
	case *busy:
		return besideBusy
	case *showDrills:
		return alone
	}
	return beside
}

// drill starts traffic. The name states the event.
func (w *world) drill(name string, send traffic.Send) *drill { return w.drillAmong(1, name, send) }

// drillAmong is drill for one of several drills that share the load.
func (w *world) drillAmong(several int, name string, send traffic.Send) *drill {
	return w.drillUnder(drillLoad(), several, name, send)
}

// drillUnder is drillAmong with a load.
func (w *world) drillUnder(l load, several int, name string, send traffic.Send) *drill {
	perSecond := l.perSecond / several
	d := &drill{Run: traffic.Start(perSecond, l.timeout, send), w: w, name: name, perSecond: perSecond,
		deadlinesMayPass: *busy}
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
	n *= int64(drillLoad().perSecond / beside.perSecond)
	from := d.Begun()
	d.w.eventually(fmt.Sprintf("%d more requests are sent", n), func() error {
		if sent := d.Begun() - from; sent < n {
			return fmt.Errorf("%d", sent)
		}
		return nil
	})
}

// during waits for the duration of a timed event.
func (d *drill) during(t time.Duration) {
	d.w.t.Helper()
	from, least := time.Now(), d.Begun()+int64(t.Seconds()*float64(d.perSecond)/2)
	for time.Since(from) < t || d.Begun() < least {
		d.more(1)
	}
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
		conn, err := dial(ctx, "tcp", address)
		if err != nil {
			return "", err
		}
		defer conn.Close()
		deadline, _ := ctx.Deadline()
		conn.SetDeadline(deadline)
		if _, err := io.WriteString(conn, "weft"); err != nil {
			return "", err
		}
		said := make([]byte, 4)
		if _, err := io.ReadFull(conn, said); err != nil {
			return "", err
		}
		if string(said) != "weft" {
			return "", fmt.Errorf("the echo of weft is %q", said)
		}
		return "echo", nil
	}
}
