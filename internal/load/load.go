// Package load measures the cost of a control plane: simulated Envoys over the real protocol, compared with the same
// work of a bare server, the floor.
//
// The tool, the control plane and the floor are separate processes. CPU is read from each server's own clock, in
// nanoseconds; latency is the time until the last proxy has a change; memory is the part that the second half of the
// proxies adds. Nothing else should run on the machine.
package load

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"weft/internal/client"
	"weft/internal/xds"
)

// Options are the options of the measurement.
type Options struct {
	Proxies  int // at least 2
	Services int // each proxy serves one, and reaches all
	// of proxies, which differ in the backends that they list as reachable; 0: one, which lists none
	ProxyGroups int
	Changes     int           // of one endpoint each
	Idle        time.Duration // how long to measure the idle control plane
	Quiet       time.Duration // how long no message may arrive before the proxies count as in sync; 0: a second
	Plane       Plane
	StartFloor  StartFloor
	Progress    io.Writer
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

// Report has the measurements.
type Report struct {
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

// Run runs the measurement. It creates the mesh of the measurement and deletes it at the end, also after an error.
func Run(ctx context.Context, o Options) (report *Report, err error) {
	if o.Proxies < 2 || o.Services < 1 || o.Services > o.Proxies || o.Changes < 1 {
		return nil,
			fmt.Errorf(
				"want 2 proxies or more, 1 to %d services (each has a proxy) and 1 change or more; got %d, %d and %d",
				o.Proxies, o.Proxies, o.Services, o.Changes)
	}
	o.Quiet = cmp.Or(o.Quiet, time.Second)
	report = &Report{Proxies: o.Proxies, Services: o.Services, Changes: o.Changes}
	world := &world{Options: o}
	defer func() {
		world.logProgress("deleting the mesh %s", meshName)
		err = errors.Join(err, world.clear(context.WithoutCancel(ctx)))
	}()
	if err := world.measurePlane(ctx, report); err != nil {
		return nil, err
	}
	return report, world.measureFloor(ctx, report)
}

func (w *world) logProgress(format string, args ...any) {
	fmt.Fprintf(w.Progress, format+"\n", args...)
}

func (w *world) measurePlane(ctx context.Context, report *Report) error {
	if err := w.measureRegister(ctx, report); err != nil {
		return err
	}
	target, err := w.target(ctx)
	if err != nil {
		return err
	}
	run := &run{world: w, diagnostics: w.Plane.Diagnostics, nodes: w.nodes(), change: w.flip}
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
func (w *world) measureRegister(ctx context.Context, report *Report) error {
	before, err := processStats(ctx, w.Plane.Diagnostics)
	if err != nil {
		return err
	}
	start := time.Now()
	if err := w.register(ctx); err != nil {
		return err
	}
	report.RegisterSeconds = time.Since(start).Seconds()
	after, err := collectGarbage(ctx, w.Plane.Diagnostics)
	if err != nil {
		return err
	}
	report.RegisterCPUSeconds = time.Duration(after.CPUNanoseconds - before.CPUNanoseconds).Seconds()
	report.RegisteredRSSBytes = int64(after.RSSBytes)
	w.logProgress("written in %.1f s, with %.1f s of the control plane's CPU; it has %d MB", report.RegisterSeconds,
		report.RegisterCPUSeconds, after.RSSBytes/1_000_000)
	return nil
}

func (w *world) measureFloor(ctx context.Context, report *Report) error {
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
func (r *run) converge(ctx context.Context, report *Report) error {
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
