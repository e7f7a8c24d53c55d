// Package scenario measures the cost of control planes: simulated Envoys and zones over the real protocol, some
// compared with the same work of a bare server, the floor.
//
// The tool, the control plane and the floor are separate processes. CPU is read from each server's own clock, in
// nanoseconds; latency is the time until the last proxy has a change; memory is the part that the second half of the
// proxies adds. Nothing else should run on the machine.
package scenario

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"weft/internal/client"
	"weft/internal/xds"
)

// proxiesScenario measures connected proxies: their first configuration, their memory, and changes of one endpoint.
type proxiesScenario struct {
	Proxies  int // at least 2
	Services int // each proxy serves one, and reaches all
	// of proxies, which differ in the backends that they list as reachable; 0: one, which lists none
	ProxyGroups int
	Changes     int           // of one endpoint each
	Idle        time.Duration // how long to measure the idle control plane
}

// Cost is the cost of one server for the same work.
type Cost struct {
	FirstSeconds      float64 `json:"firstSeconds"`      // until every proxy has its first configuration
	FirstCPUSeconds   float64 `json:"firstCPUSeconds"`   // meanwhile
	FirstBytes        int64   `json:"firstBytes"`        // to each proxy
	FirstMessages     int     `json:"firstMessages"`     // to each proxy
	MemoryBytes       int64   `json:"memoryBytes"`       // for each connected proxy that is in sync
	ChangeCPUMicros   float64 `json:"changeCPUMicros"`   // for each change, to all proxies
	ChangeBytes       int64   `json:"changeBytes"`       // of each change, to each proxy
	ChangeP50Millis   float64 `json:"changeP50Millis"`   // until the last proxy has a change
	ChangeP99Millis   float64 `json:"changeP99Millis"`   //
	ChangeMaxMillis   float64 `json:"changeMaxMillis"`   //
	StreamCPUMicros   float64 `json:"streamCPUMicros"`   // of a change, for each proxy
	ConnectedRSSBytes int64   `json:"connectedRSSBytes"` // of the server with all proxies, after a collection
}

// ProxiesReport has the measurements of one control plane.
type ProxiesReport struct {
	Proxies            int     `json:"proxies"`
	Services           int     `json:"services"`
	Changes            int     `json:"changes"`
	RegisterSeconds    float64 `json:"registerSeconds"`    // to write all Dataplanes
	RegisterCPUSeconds float64 `json:"registerCPUSeconds"` // of the control plane, meanwhile
	RegisteredRSSBytes int64   `json:"registeredRSSBytes"` // with all of them and no proxy, after a collection
	// from the first connection until every proxy has every endpoint
	ConvergeSeconds    float64 `json:"convergeSeconds"`
	ConvergeCPUSeconds float64 `json:"convergeCPUSeconds"` //
	IdleCPUPercent     float64 `json:"idleCPUPercent"`     // of one core
	Plane              Cost    `json:"controlPlane"`
	Floor              Cost    `json:"floor"`
}

// AddFlags adds the sizes of the measurement.
func (o *proxiesScenario) AddFlags(flags *pflag.FlagSet) {
	addProxies(flags, &o.Proxies, 200)
	addServices(flags, &o.Services, 100)
	flags.IntVar(&o.ProxyGroups, "proxy-groups", 0,
		"proxy groups, each of which sees other services; 0: all proxies are one group")
	flags.IntVar(&o.Changes, "changes", 100, "changes of one endpoint to measure")
	flags.DurationVar(&o.Idle, "idle", time.Minute, "how long to measure the idle control plane")
}

func (o *proxiesScenario) check() error {
	if o.Proxies < 2 || o.Services < 1 || o.Services > o.Proxies || o.Changes < 1 {
		return fmt.Errorf(
			"want 2 proxies or more, 1 to %d services (each has a proxy) and 1 change or more; got %d, %d and %d",
			o.Proxies, o.Proxies, o.Services, o.Changes)
	}
	return nil
}

func (o *proxiesScenario) measure(ctx context.Context, d *deployment) (Report, error) {
	plane, err := d.start("zone")
	if err != nil {
		return nil, err
	}
	w := &world{Environment: &d.Environment, Proxies: o.Proxies, Services: o.Services, ProxyGroups: o.ProxyGroups,
		Changes: o.Changes, Idle: o.Idle, Quiet: time.Second, Plane: plane}
	report := &ProxiesReport{Proxies: o.Proxies, Services: o.Services, Changes: o.Changes}
	return report, runSteps(ctx, report, w.measurePlane, w.measureFloor)
}

// addProxies adds the number of simulated Envoys.
func addProxies(flags *pflag.FlagSet, n *int, by int) {
	flags.IntVar(n, "proxies", by, "simulated Envoys, each of a Dataplane with one inbound")
}

// addServices adds the number of services.
func addServices(flags *pflag.FlagSet, n *int, by int) {
	flags.IntVar(n, "services", by, "services, which the Dataplanes share evenly and all reach")
}

func (w *world) measurePlane(ctx context.Context, report *ProxiesReport) error {
	if err := w.measureRegister(ctx, report); err != nil {
		return err
	}
	target, err := w.target(ctx)
	if err != nil {
		return err
	}
	run := &run{world: w, diagnostics: w.Plane.Admin, nodes: w.nodes(), change: w.flip}
	run.fleet = newFleet(target, func(p *proxy) bool {
		return p.listens && p.open == 0 && len(p.subscribed[xds.Endpoint]) >= w.Services
	})
	if err := run.converge(ctx, report); err != nil {
		return err
	}
	if err := run.measureFirst(ctx, &report.Plane); err != nil {
		return err
	}
	if err := run.measureMemory(ctx, &report.Plane); err != nil {
		return err
	}
	if report.IdleCPUPercent, err = run.measureIdle(ctx, w.Idle); err != nil {
		return err
	}
	if err := run.measureChanges(ctx, &report.Plane); err != nil {
		return err
	}
	return run.fleet.disconnect()
}

// measureRegister writes the mesh and its Dataplanes.
func (w *world) measureRegister(ctx context.Context, report *ProxiesReport) error {
	before, err := processStats(ctx, w.Plane.Admin)
	if err != nil {
		return err
	}
	start := time.Now()
	if err := w.register(ctx); err != nil {
		return err
	}
	report.RegisterSeconds = time.Since(start).Seconds()
	after, err := collectGarbage(ctx, w.Plane.Admin)
	if err != nil {
		return err
	}
	report.RegisterCPUSeconds = time.Duration(after.CPUNanoseconds - before.CPUNanoseconds).Seconds()
	report.RegisteredRSSBytes = int64(after.RSSBytes)
	w.logProgress("written in %.1f s, with %.1f s of the control plane's CPU; it has %d MB", report.RegisterSeconds,
		report.RegisterCPUSeconds, after.RSSBytes/1_000_000)
	return nil
}

func (w *world) measureFloor(ctx context.Context, report *ProxiesReport) error {
	w.logProgress("the floor: a bare server that sends the same bytes")
	config := FloorConfig{Bytes: int(report.Plane.FirstBytes), Messages: max(1, report.Plane.FirstMessages)}
	floor, err := openFloor(ctx, w.StartFloor, config)
	if err != nil {
		return err
	}
	defer func() { _ = floor.stop() }() // it is no longer needed
	run := &run{world: w, diagnostics: floor.diagnostics, nodes: w.nodes(), change: floor.where.change,
		fleet: floor.fleet}
	if err := run.measureFirst(ctx, &report.Floor); err != nil {
		return err
	}
	if err := run.measureMemory(ctx, &report.Floor); err != nil {
		return err
	}
	if err := run.measureChanges(ctx, &report.Floor); err != nil {
		return err
	}
	return run.fleet.disconnect()
}

// run is the measurement of one server.
type run struct {
	*world
	diagnostics *client.Client
	nodes       []string
	fleet       *fleet
	// change makes the nth change.
	change func(ctx context.Context, n int) error
}

// converge connects all proxies for the first time: each one that serves changes the endpoints of all others.
func (r *run) converge(ctx context.Context, report *ProxiesReport) error {
	r.logProgress("connecting %d proxies for the first time", len(r.nodes))
	before, err := processStats(ctx, r.diagnostics)
	if err != nil {
		return err
	}
	start := time.Now()
	if err := r.fleet.connect(ctx, r.nodes); err != nil {
		return err
	}
	end, err := r.fleet.quiet(ctx, r.Quiet)
	if err != nil {
		return err
	}
	after, err := processStats(ctx, r.diagnostics)
	report.ConvergeSeconds = end.Sub(start).Seconds()
	report.ConvergeCPUSeconds = seconds(after.CPUNanoseconds - before.CPUNanoseconds)
	return err
}

// measureFirst connects all proxies at once to a server without further changes.
func (r *run) measureFirst(ctx context.Context, cost *Cost) error {
	if err := r.fleet.disconnect(); err != nil {
		return err
	}
	r.logProgress("first configuration of %d proxies", len(r.nodes))
	before, err := collectGarbage(ctx, r.diagnostics)
	if err != nil {
		return err
	}
	start := time.Now()
	if err := r.fleet.connect(ctx, r.nodes); err != nil {
		return err
	}
	cost.FirstSeconds = time.Since(start).Seconds()
	if _, err := r.fleet.quiet(ctx, r.Quiet); err != nil {
		return err
	}
	after, err := processStats(ctx, r.diagnostics)
	cost.FirstCPUSeconds = seconds(after.CPUNanoseconds - before.CPUNanoseconds)
	cost.FirstBytes = r.fleet.bytes.Load() / int64(len(r.nodes))
	cost.FirstMessages = int(r.fleet.messages.Load()) / len(r.nodes)
	return err
}

// measureMemory measures the memory that the second half of the proxies adds.
func (r *run) measureMemory(ctx context.Context, cost *Cost) error {
	r.logProgress("memory of half and of all proxies")
	if err := r.fleet.disconnect(); err != nil {
		return err
	}
	half := len(r.nodes) / 2
	var rss [2]int64
	for i, nodes := range [][]string{r.nodes[:half], r.nodes[half:]} {
		if err := r.fleet.connect(ctx, nodes); err != nil {
			return err
		}
		if _, err := r.fleet.quiet(ctx, r.Quiet); err != nil {
			return err
		}
		used, err := collectGarbage(ctx, r.diagnostics)
		if err != nil {
			return err
		}
		rss[i] = int64(used.RSSBytes)
	}
	cost.MemoryBytes = (rss[1] - rss[0]) / int64(len(r.nodes)-half)
	cost.ConnectedRSSBytes = rss[1]
	return nil
}

func (r *run) measureIdle(ctx context.Context, during time.Duration) (percent float64, err error) {
	r.logProgress("idle for %s", during)
	before, err := processStats(ctx, r.diagnostics)
	if err != nil {
		return 0, err
	}
	select {
	case <-time.After(during):
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	after, err := processStats(ctx, r.diagnostics)
	return 100 * seconds(after.CPUNanoseconds-before.CPUNanoseconds) / during.Seconds(), err
}

// measureChanges makes changes one after the other, each once all proxies have the one before.
func (r *run) measureChanges(ctx context.Context, cost *Cost) error {
	r.logProgress("%d changes of one endpoint", r.Changes)
	for n := range 2 { // one in each direction, so that connections and code are warm
		if _, err := r.measureChange(ctx, n); err != nil {
			return err
		}
	}
	r.fleet.bytes.Store(0)
	before, err := processStats(ctx, r.diagnostics)
	if err != nil {
		return err
	}
	var took []time.Duration
	for n := range r.Changes {
		latency, err := r.measureChange(ctx, n)
		if err != nil {
			return fmt.Errorf("change %d: %w", n, err)
		}
		took = append(took, latency)
	}
	after, err := processStats(ctx, r.diagnostics)
	if err != nil {
		return err
	}
	slices.Sort(took)
	cost.ChangeP50Millis, cost.ChangeP99Millis = millis(percentile(took, 50)), millis(percentile(took, 99))
	cost.ChangeMaxMillis = millis(took[len(took)-1])
	cost.ChangeCPUMicros = float64(after.CPUNanoseconds-before.CPUNanoseconds) / 1e3 / float64(r.Changes)
	cost.StreamCPUMicros = cost.ChangeCPUMicros / float64(len(r.nodes))
	cost.ChangeBytes = r.fleet.bytes.Load() / int64(r.Changes) / int64(len(r.nodes))
	return nil
}

// acknowledging is the time for the server to read the last ACKs of a change before the next.
const acknowledging = 10 * time.Millisecond

func (r *run) measureChange(ctx context.Context, n int) (time.Duration, error) {
	address := r.changing(n)
	assignment, ok := r.fleet.reader.assignment(address)
	if !ok {
		assignment, address = floorAssignment, floorAddress
	}
	expectation := r.fleet.expect(address, endpointIs(assignment, address, n%2 == 1))
	start := time.Now()
	if err := r.change(ctx, n); err != nil {
		return 0, err
	}
	end, err := r.fleet.reached(ctx, expectation)
	if err != nil {
		return 0, err
	}
	_, err = r.fleet.quiet(ctx, acknowledging)
	return end.Sub(start), err
}

// percentile returns the smallest duration that percent of the sorted durations do not exceed.
func percentile(sorted []time.Duration, percent int) time.Duration {
	return sorted[(len(sorted)*percent+99)/100-1]
}

func seconds(nanoseconds int64) float64 { return float64(nanoseconds) / 1e9 }
func millis(d time.Duration) float64    { return float64(d) / 1e6 }

// Title is the sizes of the measurement.
func (r *ProxiesReport) Title() string {
	return fmt.Sprintf("%d proxies, %d services, %d changes of one endpoint", r.Proxies, r.Services, r.Changes)
}

// Metrics returns the measurements with their budgets. A change may use one and a half times the CPU of the floor, and
// take twice as long plus 20 ms; a first configuration may take twice as long.
func (r *ProxiesReport) Metrics() []Metric {
	p, f := r.Plane, r.Floor
	const kilobyte = 1000
	return []Metric{
		{"one change: CPU", p.ChangeCPUMicros / 1000, f.ChangeCPUMicros / 1000, 1.5 * f.ChangeCPUMicros / 1000, "ms"},
		{"one change: CPU for each proxy", p.StreamCPUMicros, f.StreamCPUMicros, 1.5 * f.StreamCPUMicros, "us"},
		{"one change: last proxy has it, p50", p.ChangeP50Millis, f.ChangeP50Millis, 0, "ms"},
		{"one change: last proxy has it, p99", p.ChangeP99Millis, f.ChangeP99Millis, 2*f.ChangeP99Millis + 20, "ms"},
		{"one change: last proxy has it, max", p.ChangeMaxMillis, f.ChangeMaxMillis, 0, "ms"},
		{"one change: bytes to each proxy", float64(p.ChangeBytes), float64(f.ChangeBytes), 0, "B"},
		{"first config: all proxies have it", p.FirstSeconds, f.FirstSeconds, 2 * f.FirstSeconds, "s"},
		{"first config: CPU", p.FirstCPUSeconds, f.FirstCPUSeconds, 0, "s"},
		{"first config: bytes to each proxy", float64(p.FirstBytes), float64(f.FirstBytes), 0, "B"},
		{"memory for each proxy in sync", float64(p.MemoryBytes) / kilobyte, float64(f.MemoryBytes) / kilobyte, 100,
			"kB"},
		{"memory with all proxies", float64(p.ConnectedRSSBytes) / kilobyte / kilobyte,
			float64(f.ConnectedRSSBytes) / kilobyte / kilobyte, 0, "MB"},
		{"idle CPU, of one core", r.IdleCPUPercent, 0, 1, "%"},
		{"writing all Dataplanes", r.RegisterSeconds, 0, 0, "s"},
		{"writing all Dataplanes: CPU", r.RegisterCPUSeconds, 0, 0, "s"},
		{"memory with all Dataplanes, no proxy", float64(r.RegisteredRSSBytes) / kilobyte / kilobyte, 0, 0, "MB"},
		{"converging from nothing", r.ConvergeSeconds, 0, 0, "s"},
		{"converging from nothing: CPU", r.ConvergeCPUSeconds, 0, 0, "s"},
	}
}
