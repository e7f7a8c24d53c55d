package e2e

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"text/tabwriter"
	"time"

	"weft/internal/traffic"
)

// showDrills is how `make drills` has the table printed, and the long drills run.
var showDrills = flag.Bool("drills", false, "run the long drills too, and print what every drill sent, and what failed by cause")

// drill is traffic that flows while something happens to a mesh. Tests of drills are called TestDrill....
type drill struct {
	*traffic.Run
	w         *world
	name      string
	perSecond int

	// deadlinesMayPass says that requests may fail by their client's deadline, and by nothing else.
	deadlinesMayPass bool
	// recovery is how long after a stall latency was normal; 0 where there was none.
	recovery time.Duration
}

// What clients do. Beside the other tests a machine of two cores, or one that others use too, has no room for
// more, and requests that wait for a core prove nothing of a mesh.
var (
	alone  = load{perSecond: 1000, patience: 5 * time.Second, leafLife: 10 * time.Second}
	beside = load{perSecond: 100, patience: 20 * time.Second, leafLife: 15 * time.Second}
	// besideBusy is that of a machine that other processes keep busy, where an agent may wait seconds for a core.
	besideBusy = load{perSecond: 100, patience: 20 * time.Second, leafLife: time.Minute}
)

type load struct {
	perSecond int
	patience  time.Duration
	leafLife  time.Duration // where certificates are to be renewed
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

// drill starts to ask. The name says what is about to happen.
func (w *world) drill(name string, ask traffic.Send) *drill { return w.drillAmong(1, name, ask) }

// drillAmong is one of several that run at once and share the load.
func (w *world) drillAmong(several int, name string, ask traffic.Send) *drill {
	return w.drillUnder(drillLoad(), several, name, ask)
}

// drillUnder is one of several with a load of their own.
func (w *world) drillUnder(l load, several int, name string, ask traffic.Send) *drill {
	perSecond := l.perSecond / several
	d := &drill{Run: traffic.Start(perSecond, l.patience, ask), w: w, name: name, perSecond: perSecond, deadlinesMayPass: *busy}
	w.t.Cleanup(func() {
		if tally := d.Stop(); w.t.Failed() {
			failed, causes := tally.Failures()
			w.t.Logf("%s: of %d requests %d failed: %s; the slowest took %s", name, tally.Sent, failed, causes, tally.Slowest)
		}
	})
	return d
}

// more waits until so many further requests were sent, or as many times more as the rate is higher.
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

// during waits for as long as something that takes a time of its own is to last.
func (d *drill) during(t time.Duration) {
	d.w.t.Helper()
	from, least := time.Now(), d.Begun()+int64(t.Seconds()*float64(d.perSecond)/2)
	for time.Since(from) < t || d.Begun() < least {
		d.more(1)
	}
}

// end ends the traffic, fails the test where the client saw a failure, and returns what became of the requests.
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
	drills.mu.Lock()
	defer drills.mu.Unlock()
	drills.results = append(drills.results, drillResult{d.name, tally, d.recovery})
	return tally
}

type drillResult struct {
	name     string
	tally    traffic.Tally
	recovery time.Duration
}

var drills struct {
	mu      sync.Mutex
	results []drillResult
}

func printDrills(to io.Writer) {
	slices.SortFunc(drills.results, func(a, b drillResult) int { return cmp.Compare(a.name, b.name) })
	out := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "DRILL\tSENT\tANSWERED\tDEADLINE PASSED\tFAILED\tSLOWEST\tNORMAL AFTER\tCAUSES")
	for _, r := range drills.results {
		rest := r.tally.WithoutDeadlines()
		failed, causes := rest.Failures()
		fmt.Fprintf(out, "%s\t%d\t%d\t%d\t%d\t%d ms\t%d ms\t%s\n", r.name, r.tally.Sent, rest.Sent-failed, r.tally.Sent-rest.Sent, failed, r.tally.Slowest.Milliseconds(), r.recovery.Milliseconds(), causes)
	}
	out.Flush()
}

// inTurn asks one after the other.
func inTurn(asks ...traffic.Send) traffic.Send {
	var mu sync.Mutex
	next := 0
	return func(ctx context.Context) (string, error) {
		mu.Lock()
		ask := asks[next%len(asks)]
		next++
		mu.Unlock()
		return ask(ctx)
	}
}

// greet makes a connection of bytes, and wants back what it says.
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
