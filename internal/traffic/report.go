package traffic

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"sync"
	"text/tabwriter"
	"time"
)

// Drill has the results of the traffic during one event.
type Drill struct {
	Name  string // states the event
	Tally Tally
	// NormalAfter is the time after a stall until latency was normal; 0 where it was not measured.
	NormalAfter time.Duration
}

// Report has the results of drills. Its zero value is empty and ready for use.
type Report struct {
	mu     sync.Mutex
	drills []Drill
}

// Add adds the results of a drill.
func (r *Report) Add(d Drill) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drills = append(r.drills, d)
}

// Print writes a table with a row for each drill, by their names.
func (r *Report) Print(to io.Writer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.SortFunc(r.drills, func(a, b Drill) int { return cmp.Compare(a.Name, b.Name) })
	out := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "DRILL\tSENT\tNOT SENT\tANSWERED\tDEADLINE PASSED\tFAILED\tSLOWEST\tNORMAL AFTER\tCAUSES")
	for _, d := range r.drills {
		rest := d.Tally.WithoutDeadlines()
		failed, causes := rest.Failures()
		fmt.Fprintf(out, "%s\t%d\t%d\t%d\t%d\t%d\t%d ms\t%d ms\t%s\n", d.Name, d.Tally.Sent, d.Tally.Unsent,
			rest.Sent-failed, d.Tally.Sent-rest.Sent, failed, d.Tally.Slowest.Milliseconds(),
			d.NormalAfter.Milliseconds(), causes)
	}
	out.Flush()
}
