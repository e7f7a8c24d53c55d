// Package scale_test measures a control plane on an API server with many nodes and Pods. kwok writes their statuses in
// place of kubelets; no Pod runs, and no traffic is sent.
package scale_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"weft/internal/testwait"
	"weft/test/load/scenario"
)

var (
	enabled  = flag.Bool("scale", false, "run the measurement: make scale-kubernetes")
	nodes    = flag.Int("nodes", 1000, "nodes")
	pods     = flag.Int("pods", 30, "Pods for each node")
	services = flag.Int("services", 1000, "Services, which the Pods share evenly")
	proxies  = flag.Int("proxies", 200, "simulated Envoys, each of a Pod of another Service")
	changes  = flag.Int("changes", 50, "changes of the readiness of one Pod each")
	updated  = flag.Int("updated", 100, "Services whose Pods are replaced, at most")
	rest     = flag.Duration("rest", time.Minute, "how long to measure the control plane at rest")
)

// metric is one line of the report.
type metric struct {
	name   string
	value  float64
	budget float64 // negative: none
	peer   string
}

const noBudget = -1

// report has the metrics in the order of the measurement, and the requests of each phase.
type report struct {
	metrics  []metric
	requests []string
}

func (r *report) add(name string, value, budget float64, peer string) {
	r.metrics = append(r.metrics, metric{name, value, budget, peer})
}

// addRequests adds the requests of a phase, the most frequent first.
func (r *report) addRequests(phase string, found requests) {
	var kinds []string
	for _, kind := range slices.SortedFunc(maps.Keys(found), func(a, b string) int {
		return cmp.Or(found[b]-found[a], strings.Compare(a, b))
	}) {
		kinds = append(kinds, fmt.Sprintf("%s: %d", kind, found[kind]))
	}
	r.requests = append(r.requests, phase+": "+cmp.Or(strings.Join(kinds, ", "), "none"))
}

// phase is a part of a measurement.
type phase struct {
	name string
	run  func(*report)
}

// audited has the audit log of an API server, or of several.
type audited interface {
	// mark begins to count the requests of control planes.
	mark()
	// sinceMark returns the requests since the mark.
	sinceMark() requests
}

// measure runs the phases, and adds the requests of each.
func (r *report) measure(of audited, phases ...phase) {
	for _, phase := range phases {
		began := time.Now()
		of.mark()
		phase.run(r)
		r.addRequests(phase.name, of.sinceMark())
		fmt.Printf("%s: %.0f s\n", phase.name, time.Since(began).Seconds())
	}
}

// reported is true once the report is written. A test that fails before has the logs of the control planes.
var reported bool

// print writes the report, and fails the test for each metric over its budget.
func (r *report) print(t *testing.T, title string) {
	t.Helper()
	reported = true
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Printf("\n%s\n\n", title)
	fmt.Fprint(table, "\tcontrol plane\tbudget\tpeer\t\t\n")
	for _, m := range r.metrics {
		budget, verdict := "", ""
		if m.budget >= 0 {
			budget, verdict = number(m.budget), "ok"
			if m.value > m.budget {
				verdict = "OVER"
				t.Errorf("%s: %s, want at most %s", m.name, number(m.value), budget)
			}
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t\n", m.name, number(m.value), budget, m.peer, verdict)
	}
	table.Flush()
	fmt.Println("\nrequests of the control plane to the API server")
	for _, line := range r.requests {
		fmt.Println("  " + line)
	}
}

func number(v float64) string {
	if v != 0 && v < 10 {
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

// TestScale: a control plane that runs as the ServiceAccount of the chart injects all Pods, writes their Dataplanes,
// and writes nothing at rest but its Lease. It starts again, and its proxies get the endpoints of Pods that become
// ready. Pods without a proxy are replaced.
func TestScale(t *testing.T) {
	if !*enabled {
		t.Skip("takes the whole machine for minutes: make scale-kubernetes")
	}
	if *proxies > *services || *services > *nodes**pods {
		t.Fatalf("want at most as many proxies as Services, and as many Services as Pods; got %d, %d and %d", *proxies,
			*services, *nodes**pods)
	}
	r := &report{}
	w := start(t, size{nodes: *nodes, pods: *nodes * *pods, services: *services, proxies: *proxies})
	r.measure(w,
		phase{"the Pods are created", w.measureCreation},
		phase{"at rest", w.measureRest},
		phase{"a start", w.measureStart},
		phase{"Pods become ready", w.measureReadiness},
		phase{"a rolling update", w.measureUpdate},
		phase{"at rest after it", w.measureRest})
	r.print(t, fmt.Sprintf("%d nodes, %d Pods, %d Services, %d simulated Envoys", w.nodes, w.pods, w.services,
		w.proxies))
}

func (w *world) measureCreation(r *report) {
	before, began := w.usage(), time.Now()
	w.createPods()
	created := time.Since(began)
	w.awaitDataplanes()
	w.awaitQuiet()
	n := float64(w.pods)
	after := w.usage()
	r.add("creation of all Pods, s", created.Seconds(), noBudget, "")
	r.add("repeated creations, since the webhook did not respond", float64(w.repeated.Load()), noBudget, "")
	r.add("CPU for each Pod: injection, Dataplane, events; ms", cpu(before, after)*1000/n, noBudget, "")
	found := w.sinceMark()
	r.add("writes for each Pod, without events", float64(found.writes()-found.events())/n, 2.2, "")
	r.add("events for each Pod", float64(found.events())/n, noBudget, "")
	collected := w.collectGarbage()
	r.add("memory, no proxy connected: MB", float64(collected.RSSBytes)/1e6, noBudget, "")
	r.add("memory for each Pod, no proxy connected: kB", float64(collected.HeapBytes)/1e3/n, noBudget, "")
}

func (w *world) measureRest(r *report) {
	w.mark()
	before := w.usage()
	testwait.Pass(*rest, "the control plane is at rest")
	found := w.sinceMark()
	r.add("at rest: writes, except of its Lease", float64(found.writes()-found["leases update"]), 0, "")
	r.add("at rest: writes of its Lease, each second", float64(found["leases update"])/rest.Seconds(), 0.5, "")
	r.add("at rest: CPU, percent of a core", 100*cpu(before, w.usage())/rest.Seconds(), noBudget, "")
}

func (w *world) measureStart(r *report) {
	w.Stop()
	w.mark()
	began := time.Now()
	w.start()
	r.add("a start: ready, s", time.Since(began).Seconds(), noBudget, "")
	w.awaitLeader()
	r.add("a start: it leads, s", time.Since(began).Seconds(), noBudget, "")
	w.awaitQuiet()
	started := w.usage()
	r.add("a start: CPU, s", float64(started.CPUNanoseconds)/1e9, noBudget, "")
	r.add("a start: memory before a collection, MB", float64(started.RSSBytes)/1e6, noBudget, "")
	r.add("a start: memory, MB", float64(w.collectGarbage().RSSBytes)/1e6, noBudget, "")
	found := w.sinceMark()
	r.add("a start: writes, except of Leases", float64(found.writes()-found.leases()), 0, "")
}

func (w *world) measureReadiness(r *report) {
	before, began := w.usage(), time.Now()
	tokens := map[string]string{}
	for _, p := range w.proxied() {
		tokens["default."+p.name+"."+p.namespace] = w.podToken(p, "default")
	}
	connected, err := scenario.ConnectProxies(w.t.Context(), w.DataPlane, w.Roots, tokens, w.services)
	if err != nil {
		w.t.Fatal(err)
	}
	w.awaitQuiet()
	r.add("all simulated Envoys are in sync, s", time.Since(began).Seconds(), noBudget, "")
	r.add("bytes to each of them, kB", float64(connected.Bytes())/1e3, noBudget, "")
	r.add("CPU until then, s", cpu(before, w.usage()), noBudget, "")
	before = w.collectGarbage()
	r.add("memory with all of them, MB", float64(before.RSSBytes)/1e6, noBudget, "")
	w.mark()
	var took []time.Duration
	for n := range *changes {
		pod := w.proxied()[n%w.proxies]
		for _, ready := range []bool{false, true} {
			latency, err := connected.Change(w.t.Context(), w.podIP(pod), ready, func(ctx context.Context) error {
				return w.setReady(ctx, pod, ready)
			})
			if err != nil {
				w.t.Fatal(err)
			}
			if ready {
				took = append(took, latency)
			}
		}
	}
	slices.Sort(took)
	w.awaitQuiet()
	r.add("a Pod is ready: the last Envoy has its endpoint, p50, ms", millis(took[len(took)/2]), noBudget, "")
	r.add("a Pod is ready: the last Envoy has its endpoint, p99, ms", millis(took[len(took)*99/100]), 500,
		"at least 100 (istiod's debounce)")
	r.add("a change of readiness: CPU, ms", cpu(before, w.usage())*1000/float64(2**changes), noBudget, "")
	found := w.sinceMark()
	r.add("a change of readiness: writes", float64(found.writes()-found.leases())/float64(2**changes), noBudget, "")
	if err := connected.Close(); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) measureUpdate(r *report) {
	w.awaitQuiet()
	w.mark()
	before, began := w.usage(), time.Now()
	replaced := float64(w.replacePods())
	took := time.Since(began)
	w.awaitDataplanes()
	lag := time.Since(began) - took
	w.awaitQuiet()
	found := w.sinceMark()
	r.add("a rolling update: replaced Pods each second", replaced/took.Seconds(), noBudget, "")
	r.add("a rolling update: the last Dataplane follows after, s", lag.Seconds(), noBudget, "")
	r.add("a rolling update: CPU for each replaced Pod, ms", cpu(before, w.usage())*1000/replaced, noBudget, "")
	r.add("a rolling update: writes each second, without events", float64(found.writes()-found.events())/took.Seconds(),
		noBudget, "")
	r.add("a rolling update: writes for each replaced Pod, without events",
		float64(found.writes()-found.events()-found.leases())/replaced, 3.2, "")
	r.add("a rolling update: requests for each replaced Pod", float64(found.all())/replaced, noBudget, "")
	r.add("a rolling update: memory after it, MB", float64(w.collectGarbage().RSSBytes)/1e6, noBudget, "")
}

func millis(d time.Duration) float64 { return float64(d) / 1e6 }
