package scenario

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"weft/internal/client"
	"weft/internal/sni"
	"weft/internal/wait"
	"weft/internal/wire"
	"weft/kind"
	"weft/resource"
	"weft/test/mesh"
)

// zonesScenario measures a global control plane with many zones. They are simulated over the real protocol: they send
// their services, count the received items, and store nothing.
type zonesScenario struct {
	Zones    int           // simulated, at least 2
	Services int           // of each zone
	Pods     int           // of each zone: Dataplanes as a cluster has them, of which global gets a copy
	Idle     time.Duration // how long to measure the idle control plane
	During   time.Duration // how long every zone changes a service each second
}

// ZonesReport has the measurements of one global control plane, with its store, in a process of its own.
type ZonesReport struct {
	Zones    int `json:"zones"`
	Services int `json:"services"` // of each zone
	Pods     int `json:"pods"`     // of each zone
	Streams  int `json:"streams"`

	EmptyRSSBytes    int64   `json:"emptyRSSBytes"`    // before the first zone
	JoinSeconds      float64 `json:"joinSeconds"`      // until every zone has every other's services
	JoinCPUSeconds   float64 `json:"joinCPUSeconds"`   // meanwhile
	JoinItems        int64   `json:"joinItems"`        // sent to all zones
	JoinBytes        int64   `json:"joinBytes"`        // of them
	RestRSSBytes     int64   `json:"restRSSBytes"`     // afterwards, after a collection
	RestCPUPercent   float64 `json:"restCPUPercent"`   // of one core
	OneSeconds       float64 `json:"oneSeconds"`       // until one more zone, which is empty, has everything
	OneBytes         int64   `json:"oneBytes"`         // to it
	ChangesPerSecond float64 `json:"changesPerSecond"` // made by all zones together
	ItemsPerSecond   float64 `json:"itemsPerSecond"`   // received by zones meanwhile
	ChangeCPUPercent float64 `json:"changeCPUPercent"` // of one core, meanwhile
	ChangeRSSBytes   int64   `json:"changeRSSBytes"`   // at the end
	ChangeP50Millis  float64 `json:"changeP50Millis"`  // until another zone has a change
	ChangeP99Millis  float64 `json:"changeP99Millis"`  //
}

// zonesRun is one measurement.
type zonesRun struct {
	*zonesScenario
	*Environment
	global *mesh.Plane
	zones  *Zones

	mu    sync.Mutex
	delay []time.Duration // of the changes that the watched zone received
}

// AddFlags adds the sizes of the measurement.
func (o *zonesScenario) AddFlags(flags *pflag.FlagSet) {
	flags.IntVar(&o.Zones, "zones", 500, "simulated zones")
	flags.IntVar(&o.Services, "services", 200, "services of each zone")
	flags.IntVar(&o.Pods, "pods", 0, "Pods of each zone, whose Dataplanes global gets")
	flags.DurationVar(&o.Idle, "idle", 30*time.Second, "how long to measure the idle control plane")
	flags.DurationVar(&o.During, "during", 30*time.Second, "how long every zone changes a service each second")
}

func (o *zonesScenario) check() error {
	if o.Zones < 2 || o.Services < 1 || o.Pods < 0 {
		return fmt.Errorf("want 2 zones or more, with a service or more each, and no negative number of Pods; "+
			"got %d, %d and %d", o.Zones, o.Services, o.Pods)
	}
	return nil
}

func (o *zonesScenario) measure(ctx context.Context, d *deployment) (Report, error) {
	global, err := d.startGlobal()
	if err != nil {
		return nil, err
	}
	run := &zonesRun{zonesScenario: o, Environment: &d.Environment, global: global}
	return run.measure(ctx)
}

func (r *zonesRun) measure(ctx context.Context) (*ZonesReport, error) {
	report := &ZonesReport{Zones: r.Zones, Services: r.Services, Pods: r.Pods,
		Streams: r.Zones * len(syncedKinds())}
	return report, runSteps(ctx, report, r.prepare, r.join, r.measureRest, r.measureOneZone, r.measureChanges)
}

// prepare writes the mesh.
func (r *zonesRun) prepare(ctx context.Context, report *ZonesReport) error {
	if _, err := r.global.Admin.Put(ctx, kind.Meshes.Make("", meshName, kind.Mesh{}), kind.Meshes); err != nil {
		return err
	}
	empty, err := collectGarbage(ctx, r.global.Admin)
	report.EmptyRSSBytes = int64(empty.RSSBytes)
	return err
}

// join connects all zones at once, each with its services.
func (r *zonesRun) join(ctx context.Context, report *ZonesReport) error {
	r.logProgress("%d zones of %d services each join", r.Zones, r.Services)
	var err error
	if r.zones, err = NewZones(meshName, r.Zones, r.Services, r.Pods); err != nil {
		return err
	}
	r.zones.all[0].onBatch = r.watch
	before, err := processStats(ctx, r.global.Admin)
	if err != nil {
		return err
	}
	start := time.Now()
	if err := r.zones.Connect(ctx, r.global.Admin, r.global.ZoneSync, r.global.Roots); err != nil {
		return err
	}
	r.logProgress("all are connected after %.1f s", time.Since(start).Seconds())
	want := int64(r.Zones) * int64(r.Zones-1) * int64(r.Services)
	if err := r.awaitCount(ctx, "zones have the services of all others", func() (int64, int64) {
		return r.zones.ReceivedVersions(), want
	}); err != nil {
		return err
	}
	if err := r.awaitPods(ctx); err != nil {
		return err
	}
	report.JoinSeconds = time.Since(start).Seconds()
	after, err := processStats(ctx, r.global.Admin)
	report.JoinCPUSeconds = seconds(after.CPUNanoseconds - before.CPUNanoseconds)
	for _, zone := range r.zones.all {
		items, bytes := zone.received()
		report.JoinItems, report.JoinBytes = report.JoinItems+items, report.JoinBytes+bytes
	}
	return err
}

// awaitPods waits until global has the Dataplanes of all zones.
func (r *zonesRun) awaitPods(ctx context.Context) error {
	for want := r.Zones * r.Pods; want > 0; {
		var page struct{ Total int }
		err := r.global.Admin.Get(ctx, client.Path(kind.Dataplanes, meshName, ""), url.Values{"size": {"1"}}, &page)
		if err != nil || page.Total >= want {
			return err
		}
		if err := wait.Sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// awaitCount waits for a count.
func (r *zonesRun) awaitCount(ctx context.Context, what string, count func() (have, want int64)) error {
	const limit = 15 * time.Minute
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	report, expired := time.NewTicker(10*time.Second), time.After(limit)
	defer report.Stop()
	for {
		have, want := count()
		if have >= want {
			return nil
		}
		select {
		case <-tick.C:
		case <-report.C:
			r.logProgress("  %d of %d", have, want)
		case err := <-r.zones.failed:
			return err
		case <-expired:
			return fmt.Errorf("waiting until %s: %d of %d after %s", what, have, want, limit)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// measureRest measures the idle control plane.
func (r *zonesRun) measureRest(ctx context.Context, report *ZonesReport) error {
	r.logProgress("idle for %s", r.Idle)
	before, err := collectGarbage(ctx, r.global.Admin)
	if err != nil {
		return err
	}
	if err := wait.Sleep(ctx, r.Idle); err != nil {
		return err
	}
	after, err := processStats(ctx, r.global.Admin)
	report.RestRSSBytes = int64(before.RSSBytes)
	report.RestCPUPercent = 100 * seconds(after.CPUNanoseconds-before.CPUNanoseconds) / r.Idle.Seconds()
	return err
}

// measureOneZone connects one more zone, which is empty.
func (r *zonesRun) measureOneZone(ctx context.Context, report *ZonesReport) error {
	r.logProgress("one more zone joins")
	zone := newSimulatedZone("late")
	start := time.Now()
	if err := r.zones.connect(ctx, zone, r.global.Admin, r.global.ZoneSync, r.global.Roots); err != nil {
		return err
	}
	defer zone.close()
	want := int64(r.Zones) * int64(r.Services)
	err := r.awaitCount(ctx, "one more zone has all services", func() (int64, int64) { return zone.services(), want })
	report.OneSeconds = time.Since(start).Seconds()
	_, report.OneBytes = zone.received()
	return err
}

// measureChanges makes every zone change a service each second.
func (r *zonesRun) measureChanges(ctx context.Context, report *ZonesReport) error {
	r.logProgress("every zone changes a service each second, for %s", r.During)
	had := r.zones.ReceivedVersions()
	before, err := processStats(ctx, r.global.Admin)
	if err != nil {
		return err
	}
	start := time.Now()
	made, err := r.makeChanges(ctx)
	if err != nil {
		return err
	}
	took := time.Since(start)
	after, err := processStats(ctx, r.global.Admin)
	if err != nil {
		return err
	}
	report.ChangesPerSecond = float64(made) / took.Seconds()
	report.ItemsPerSecond = float64(r.zones.ReceivedVersions()-had) / took.Seconds()
	report.ChangeCPUPercent = 100 * seconds(after.CPUNanoseconds-before.CPUNanoseconds) / took.Seconds()
	report.ChangeRSSBytes = int64(after.RSSBytes)
	if err := r.awaitQuiet(ctx); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.delay) == 0 {
		return errors.New("no change reached another zone")
	}
	slices.Sort(r.delay)
	report.ChangeP50Millis, report.ChangeP99Millis = millis(percentile(r.delay, 50)), millis(percentile(r.delay, 99))
	return nil
}

// makeChanges makes changes at a constant rate: the zones take turns.
func (r *zonesRun) makeChanges(ctx context.Context) (made int64, err error) {
	began := time.Now()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for time.Since(began) < r.During {
		for due := int64(time.Since(began).Seconds() * float64(r.Zones)); made < due; made++ {
			if err := r.zones.Change(int(made)%r.Zones, int(made)/r.Zones%r.Services); err != nil {
				return made, err
			}
		}
		select {
		case <-tick.C:
		case err := <-r.zones.failed:
			return made, err
		case <-ctx.Done():
			return made, ctx.Err()
		}
	}
	return made, nil
}

// awaitQuiet waits until no zone has received anything for a second.
func (r *zonesRun) awaitQuiet(ctx context.Context) error {
	for before := int64(-1); before != r.zones.ReceivedVersions(); {
		before = r.zones.ReceivedVersions()
		if err := wait.Sleep(ctx, time.Second); err != nil {
			return err
		}
	}
	return nil
}

// watch records the age of the changes that one zone receives.
func (r *zonesRun) watch(of string, batch *wire.Batch) {
	if of != kind.MeshServices.Name {
		return
	}
	for _, encoded := range batch.Items {
		if age, ok := ageOf(encoded); ok {
			r.mu.Lock()
			r.delay = append(r.delay, age)
			r.mu.Unlock()
		}
	}
}

// simulatedService is a service of a mesh as the control plane of its zone stores it.
func simulatedService(mesh, zone string, i int) *resource.Object[kind.MeshService] {
	name := fmt.Sprintf("service-%d", i)
	o := kind.MeshServices.Make(mesh, name, kind.MeshService{
		State:    "Available",
		Selector: kind.ServiceSelector{DataplaneTags: map[string]string{kind.ServiceTag: name}},
		Ports:    []kind.ServicePort{{Port: 80, AppProtocol: "http"}},
		Identities: []kind.ServiceIdentity{{Type: "SpiffeID",
			Value: fmt.Sprintf("spiffe://%s/workload/%s", trustDomain(mesh, zone), name)}},
	})
	o.Labels = map[string]string{
		kind.OriginLabel: kind.OriginZone, kind.ZoneLabel: zone, kind.EnvLabel: "universal", kind.DisplayName: name,
	}
	o.Spec.Ports[0].SNIs = []kind.SNI{{Value: sni.V1.Name(sni.PortOf(o, 80))}}
	return o
}

// simulatedPod is the Dataplane of a Pod as the control plane of its zone stores it.
func simulatedPod(mesh, zone string, i, service int) *resource.Object[kind.Dataplane] {
	const namespace = "load"
	name, of := fmt.Sprintf("pod-%d", i), fmt.Sprintf("service-%d", service)
	o := kind.Dataplanes.Make(mesh, name+"."+namespace, kind.Dataplane{Networking: kind.Networking{
		Address: fmt.Sprintf("10.%d.%d.%d", i>>16&255, i>>8&255, i&255),
		Inbound: []kind.Inbound{{Port: 8080, State: kind.Ready, Tags: map[string]string{kind.ServiceTag: of,
			kind.ProtocolTag: "http", kind.ZoneLabel: zone, kind.NamespaceLabel: namespace,
			"k8s.kuma.io/service-name": of, "k8s.kuma.io/service-port": "80"}}},
	}})
	o.Labels = map[string]string{kind.OriginLabel: kind.OriginZone, kind.ZoneLabel: zone, kind.EnvLabel: "kubernetes",
		kind.DisplayName: name, kind.NamespaceLabel: namespace, "app": of, "pod-template-hash": "5d4f8c7b9d",
		"topology.kubernetes.io/zone": zone}
	return o
}

// Title is the sizes of the measurement.
func (r *ZonesReport) Title() string {
	return fmt.Sprintf("%d zones of %d services and %d Pods, %d streams", r.Zones, r.Services, r.Pods, r.Streams)
}

// Metrics returns the measurements.
func (r *ZonesReport) Metrics() []Metric {
	const mega = 1e6
	return []Metric{
		{Name: "memory with no zone", Value: float64(r.EmptyRSSBytes) / mega, Unit: "MB"},
		{Name: "all zones join: each has all services", Value: r.JoinSeconds, Unit: "s"},
		{Name: "all zones join: CPU", Value: r.JoinCPUSeconds, Unit: "s"},
		{Name: "all zones join: items sent", Value: float64(r.JoinItems) / mega, Unit: "millions"},
		{Name: "all zones join: bytes of items", Value: float64(r.JoinBytes) / mega, Unit: "MB"},
		{Name: "one more zone joins: it has all services", Value: r.OneSeconds, Unit: "s"},
		{Name: "one more zone joins: bytes of items", Value: float64(r.OneBytes) / mega, Unit: "MB"},
		{Name: "at rest: memory", Value: float64(r.RestRSSBytes) / mega, Unit: "MB"},
		{Name: "at rest: CPU, of one core", Value: r.RestCPUPercent, Unit: "%"},
		{Name: "under changes: made each second", Value: r.ChangesPerSecond, Unit: ""},
		{Name: "under changes: items to zones each second", Value: r.ItemsPerSecond, Unit: ""},
		{Name: "under changes: CPU, of one core", Value: r.ChangeCPUPercent, Unit: "%"},
		{Name: "under changes: memory", Value: float64(r.ChangeRSSBytes) / mega, Unit: "MB"},
		{Name: "under changes: another zone has one, p50", Value: r.ChangeP50Millis, Unit: "ms"},
		{Name: "under changes: another zone has one, p99", Value: r.ChangeP99Millis, Unit: "ms"},
	}
}
