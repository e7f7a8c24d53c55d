package scenario

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"weft/internal/client"
	"weft/internal/xds"
)

// joinScenario measures many proxies that connect at once while their endpoints become ready one after another, the
// same bytes from the floor, and a restart of the control plane that they are connected to.
type joinScenario struct {
	Proxies  int // at least 2; none has an endpoint before
	Services int // which the proxies share evenly and all reach
}

// JoinCost is the cost of one server while all proxies connected.
type JoinCost struct {
	Seconds    float64 `json:"seconds"`    // from the first connection until every proxy is in sync
	CPUSeconds float64 `json:"cpuSeconds"` // of the server, meanwhile
	Bytes      int64   `json:"bytes"`      // to each proxy
	// RSSBytes is what the operating system counts for each proxy in sync, without a forced collection.
	RSSBytes int64 `json:"rssBytes"`
	// CollectedBytes is the same after a forced collection.
	CollectedBytes int64 `json:"collectedBytes"`
}

// JoinReport has the measurements of one control plane, with its store, in a process of its own.
type JoinReport struct {
	Proxies   int      `json:"proxies"`
	Services  int      `json:"services"`
	FullBytes int64    `json:"fullBytes"` // of one full configuration
	Plane     JoinCost `json:"controlPlane"`
	Floor     JoinCost `json:"floor"`

	ReadySeconds    float64 `json:"readySeconds"`    // from the kill of the control plane until the next one is ready
	BackSeconds     float64 `json:"backSeconds"`     // from the kill until every proxy is in sync again
	BackCPUSeconds  float64 `json:"backCPUSeconds"`  // of the new control plane, including its start
	BackResources   int64   `json:"backResources"`   // sent to all proxies together, added, changed or removed
	BackStatedBytes int64   `json:"backStatedBytes"` // of the requests in which a proxy states its resources
	BackBytes       int64   `json:"backBytes"`       // sent to all proxies together
}

// joinRun is one measurement.
type joinRun struct {
	*world
	messages int // of one full configuration
}

// AddFlags adds the sizes of the measurement.
func (o *joinScenario) AddFlags(flags *pflag.FlagSet) {
	addProxies(flags, &o.Proxies, 1000)
	addServices(flags, &o.Services, 300)
}

func (o *joinScenario) check() error {
	if o.Proxies < 2 || o.Services < 1 || o.Services > o.Proxies {
		return fmt.Errorf("want 2 proxies or more and 1 to %d services; got %d and %d", o.Proxies, o.Proxies,
			o.Services)
	}
	return nil
}

func (o *joinScenario) measure(ctx context.Context, d *deployment) (Report, error) {
	plane, err := d.start("zone")
	if err != nil {
		return nil, err
	}
	run := &joinRun{world: &world{Environment: &d.Environment, Proxies: o.Proxies, Services: o.Services,
		Plane: plane, Quiet: quietTime}}
	report := &JoinReport{Proxies: o.Proxies, Services: o.Services}
	return report, runSteps(ctx, report, run.measurePlane, run.measureFloor)
}

func (r *joinRun) measurePlane(ctx context.Context, report *JoinReport) error {
	if err := r.register(ctx); err != nil {
		return err
	}
	target, err := r.target(ctx)
	if err != nil {
		return err
	}
	fleet := newFleet(target, func(p *proxy) bool {
		return p.listens && p.open == 0 && len(p.subscribed[xds.Endpoint]) >= r.Services && len(p.full) == r.Services
	})
	fleet.full = r.full
	if err := r.join(ctx, fleet, r.Plane.Admin, &report.Plane); err != nil {
		return err
	}
	if err := r.restart(ctx, fleet, report); err != nil {
		return err
	}
	if err := fleet.disconnect(); err != nil {
		return err
	}
	r.logProgress("one full configuration")
	if err := fleet.connect(ctx, r.nodes()[:1]); err != nil {
		return err
	}
	if _, err := fleet.quiet(ctx, r.Quiet); err != nil {
		return err
	}
	report.FullBytes, r.messages = fleet.bytes.Load(), int(fleet.messages.Load())
	return fleet.disconnect()
}

// full returns whether an assignment has an endpoint of each proxy of its service.
func (r *joinRun) full(addresses []string) bool {
	if len(addresses) == 0 {
		return false
	}
	service := indexOf(addresses[0]) % r.Services
	want := r.Proxies / r.Services
	if service < r.Proxies%r.Services {
		want++
	}
	return len(addresses) == want
}

// indexOf returns the number of the proxy with an address.
func indexOf(address string) (i int) {
	for _, part := range strings.Split(address, ".")[1:] {
		n, _ := strconv.Atoi(part) // made by address
		i = i<<8 | n
	}
	return i
}

// join connects every proxy and waits until all of them are in sync.
func (r *joinRun) join(ctx context.Context, f *fleet, diagnostics *client.Client, cost *JoinCost) error {
	r.logProgress("connecting %d proxies", r.Proxies)
	before, err := collectGarbage(ctx, diagnostics)
	if err != nil {
		return err
	}
	start := time.Now()
	if err := f.connect(ctx, r.nodes()); err != nil {
		return err
	}
	cost.Seconds = time.Since(start).Seconds()
	if _, err := f.quiet(ctx, r.Quiet); err != nil {
		return err
	}
	after, err := processStats(ctx, diagnostics)
	if err != nil {
		return err
	}
	collected, err := collectGarbage(ctx, diagnostics)
	n := int64(r.Proxies)
	cost.CPUSeconds = seconds(after.CPUNanoseconds - before.CPUNanoseconds)
	cost.Bytes = f.bytes.Load() / n
	cost.RSSBytes = (int64(after.RSSBytes) - int64(before.RSSBytes)) / n
	cost.CollectedBytes = (int64(collected.RSSBytes) - int64(before.RSSBytes)) / n
	return err
}

// restart kills the control plane, starts it again, and waits until every proxy has reconnected.
func (r *joinRun) restart(ctx context.Context, f *fleet, report *JoinReport) error {
	r.logProgress("killing the control plane, and starting it again")
	f.rejoin()
	began := time.Now()
	r.Plane.Kill()
	if err := r.Plane.Run(startTimeout); err != nil {
		return err
	}
	report.ReadySeconds = time.Since(began).Seconds()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for back := false; !back; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		streams, pending, err := r.countStreams(ctx)
		if err != nil {
			return err
		}
		back = streams == r.Proxies && pending == 0 && f.returned.Load() >= int64(r.Proxies)
		if time.Since(began) > timeout {
			return fmt.Errorf("%d of %d proxies are back after %s, %d of them are not in sync", streams, r.Proxies,
				timeout, pending)
		}
	}
	report.BackSeconds = time.Since(began).Seconds()
	select {
	case <-time.After(r.Quiet):
	case <-ctx.Done():
		return ctx.Err()
	}
	used, err := processStats(ctx, r.Plane.Admin)
	report.BackCPUSeconds = seconds(used.CPUNanoseconds)
	report.BackResources, report.BackBytes = f.resources.Load(), f.bytes.Load()
	report.BackStatedBytes = f.stated.Load() / int64(r.Proxies)
	return err
}

// countStreams returns the control plane's number of streams, and how many of them are pending.
func (r *joinRun) countStreams(ctx context.Context) (streams, pending int, err error) {
	var text []byte
	if err := r.Plane.Admin.Get(ctx, "/metrics", nil, &text); err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch name {
		case "weft_xds_streams":
			streams, err = strconv.Atoi(value)
		case "weft_xds_streams_unacked":
			pending, err = strconv.Atoi(value)
		}
		if err != nil {
			return 0, 0, fmt.Errorf("reading %s: %w", name, err)
		}
	}
	return streams, pending, nil
}

// measureFloor makes the bare server send one full configuration to the same number of clients.
func (r *joinRun) measureFloor(ctx context.Context, report *JoinReport) error {
	r.logProgress("the floor: a bare server that sends one full configuration")
	config := FloorConfig{Bytes: int(report.FullBytes), Messages: max(1, r.messages)}
	floor, err := openFloor(ctx, r.StartFloor, config)
	if err != nil {
		return err
	}
	defer func() { _ = floor.stop() }() // it is no longer needed
	if err := r.join(ctx, floor.fleet, floor.diagnostics, &report.Floor); err != nil {
		return err
	}
	return floor.fleet.disconnect()
}

// Metrics returns the measurements with their budgets.
func (r *JoinReport) Metrics() []Metric {
	p, f := r.Plane, r.Floor
	const kilobyte = 1000
	back := 20 * max(1, float64(r.Proxies)/10_000)
	return []Metric{
		{"join: all proxies have everything", p.Seconds, f.Seconds, 2 * f.Seconds, "s"},
		{"join: CPU", p.CPUSeconds, f.CPUSeconds, 2 * f.CPUSeconds, "s"},
		{"join: bytes to each proxy", float64(p.Bytes) / kilobyte, float64(f.Bytes) / kilobyte,
			1.2 * float64(r.FullBytes) / kilobyte, "kB"},
		{"memory for each proxy in sync", float64(p.RSSBytes) / kilobyte, float64(f.RSSBytes) / kilobyte, 100, "kB"},
		{"memory for each proxy, after a collection", float64(p.CollectedBytes) / kilobyte,
			float64(f.CollectedBytes) / kilobyte, 0, "kB"},
		{"restart: the control plane is ready", r.ReadySeconds, 0, 0, "s"},
		{"restart: all proxies are back", r.BackSeconds, 0, back, "s"},
		{"restart: CPU", r.BackCPUSeconds, 0, 0, "s"},
		{Name: "restart: bytes with which a proxy states what it has", Value: float64(r.BackStatedBytes) / kilobyte,
			Unit: "kB"},
		{Name: "restart: resources sent to all proxies", Value: float64(r.BackResources), Budget: zeroBudget},
	}
}

// Title is the sizes of the measurement.
func (r *JoinReport) Title() string {
	return fmt.Sprintf("%d proxies, %d services; one full configuration is %d kB", r.Proxies, r.Services,
		r.FullBytes/1000)
}
