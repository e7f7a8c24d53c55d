package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"weft/internal/wait"
	"weft/internal/xds"
	"weft/kind"
	"weft/resource"
	"weft/test/mesh"
)

// acrossScenario measures changes from one zone to the Envoys of another.
type acrossScenario struct {
	Proxies  int // simulated Envoys in the zone that receives changes
	Services int // of the zone in which changes are made
	Changes  int
}

// AcrossReport has the measurements between two zones. Latency is from the write in one zone until the last proxy of
// the other has the change.
type AcrossReport struct {
	Proxies  int `json:"proxies"`
	Services int `json:"services"`
	Changes  int `json:"changes"`

	ServiceP50Millis float64 `json:"serviceP50Millis"` // of a new service
	ServiceP99Millis float64 `json:"serviceP99Millis"`
	ServiceMaxMillis float64 `json:"serviceMaxMillis"`
	AddressP50Millis float64 `json:"addressP50Millis"` // of an ingress whose address changes
	AddressP99Millis float64 `json:"addressP99Millis"`
	AddressItems     float64 `json:"addressItems"` // of sync to each zone, for each such change
	FewBytes         int64   `json:"fewBytes"`     // of sync to another zone, with 10 instances of a service
	ManyBytes        int64   `json:"manyBytes"`    // the same with 1,000
	GrowthItems      int64   `json:"growthItems"`  // of sync to each zone, while they grew from 10 to 1,000
}

// Budgets of cross-zone changes, on one machine.
const (
	acrossP99Millis = 300
	fewInstances    = 10
	manyInstances   = 1000
)

// across is the measurement of two zones, east and west, of one global control plane.
type across struct {
	*acrossScenario
	*deployment
	global, east, west *mesh.Plane
	ingress, clients   *fleet         // of east, and of west
	watcher            *simulatedZone // a third zone, which counts items
	failed             chan error
}

// AddFlags adds the sizes of the measurement.
func (o *acrossScenario) AddFlags(flags *pflag.FlagSet) {
	flags.IntVar(&o.Proxies, "proxies", 100, "simulated Envoys in the zone that hears of changes")
	flags.IntVar(&o.Services, "services", 100, "services of the zone in which changes are made")
	flags.IntVar(&o.Changes, "changes", 100, "changes of each sort")
}

func (o *acrossScenario) check() error {
	if o.Proxies < 1 || o.Services < 1 || o.Changes < 1 {
		return fmt.Errorf("want a proxy, a service and a change or more; got %d, %d and %d", o.Proxies, o.Services,
			o.Changes)
	}
	return nil
}

func (o *acrossScenario) measure(ctx context.Context, d *deployment) (Report, error) {
	a := &across{acrossScenario: o, deployment: d, failed: make(chan error, 1)}
	report := &AcrossReport{Proxies: o.Proxies, Services: o.Services, Changes: o.Changes}
	return report, runSteps(ctx, report, a.deploy, a.populate, a.measureNewService, a.measureMovedIngress,
		a.measureGrowth)
}

func (a *across) deploy(ctx context.Context, _ *AcrossReport) (err error) {
	a.logProgress("a global control plane and two zones")
	if a.global, err = a.startGlobal(); err != nil {
		return err
	}
	if a.east, err = a.startZone(ctx, a.global, "east"); err != nil {
		return err
	}
	a.west, err = a.startZone(ctx, a.global, "west")
	return err
}

// workloads have an identity. An ingress has none, so its listener serves once a simulated Envoy has acked it, without
// a certificate.
var workloads = map[string]string{kind.WorkloadLabel: "load"}

// populate writes a mesh with identities, and connects an ingress, clients and the watcher.
func (a *across) populate(ctx context.Context, _ *AcrossReport) error {
	load := kind.Meshes.Make("", meshName, kind.Mesh{})
	identity := kind.MeshIdentities.Make(meshName, "identity", kind.MeshIdentity{
		Selector: &kind.IdentitySelector{Dataplane: &kind.LabelSelector{MatchLabels: workloads}},
		Provider: kind.IdentityProvider{Type: "Bundled"},
	})
	if err := errors.Join(put(ctx, a.global, load, kind.Meshes),
		put(ctx, a.global, identity, kind.MeshIdentities)); err != nil {
		return err
	}
	for _, zone := range []*mesh.Plane{a.east, a.west} {
		if err := a.awaitResource(ctx, zone, kind.MeshIdentities); err != nil {
			return err
		}
	}
	a.logProgress("%d services with an ingress in east, %d proxies in west", a.Services, a.Proxies)
	if err := a.populateEast(ctx); err != nil {
		return err
	}
	if err := a.populateWest(ctx); err != nil {
		return err
	}
	var err error
	a.watcher, err = a.watch(ctx, "watcher")
	return err
}

func (a *across) populateEast(ctx context.Context) error {
	if err := a.instances(ctx, 0, fewInstances); err != nil {
		return err
	}
	for i := range a.Services {
		if err := put(ctx, a.east, instanceService(fmt.Sprintf("service-%d", i)), kind.MeshServices); err != nil {
			return err
		}
	}
	if err := a.moveIngress(ctx, 0); err != nil {
		return err
	}
	target, err := (&world{Plane: a.east}).target(ctx)
	if err != nil {
		return err
	}
	a.ingress = newFleet(target, func(p *proxy) bool { return p.listens && p.open == 0 })
	return a.ingress.connect(ctx, []string{meshName + ".ingress"})
}

func (a *across) populateWest(ctx context.Context) error {
	var nodes []string
	for i := range a.Proxies {
		client := kind.Dataplanes.Make(meshName, proxyName(i), kind.Dataplane{Networking: kind.Networking{
			Address: address(i),
			TransparentProxying: &kind.TransparentProxying{RedirectPortInbound: 15006, RedirectPortOutbound: 15001,
				IPFamilyMode: "IPv4"},
		}})
		client.Labels = workloads
		if err := put(ctx, a.west, client, kind.Dataplanes); err != nil {
			return err
		}
		nodes = append(nodes, meshName+"."+client.Name)
	}
	target, err := (&world{Plane: a.west}).target(ctx)
	if err != nil {
		return err
	}
	a.clients = newFleet(target, func(p *proxy) bool {
		return p.listens && p.open == 0 && len(p.subscribed[xds.Endpoint]) >= a.Services
	})
	if err := a.clients.connect(ctx, nodes); err != nil {
		return fmt.Errorf("west does not get east's services: %w", err)
	}
	_, err = a.clients.quiet(ctx, time.Second)
	return err
}

// instances writes the Dataplanes of east's services. No proxy connects as one of them.
func (a *across) instances(ctx context.Context, from, to int) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := from; i < to; i++ {
		group.Go(func() error {
			instance := kind.Dataplanes.Make(meshName, fmt.Sprintf("instance-%d", i),
				kind.Dataplane{Networking: kind.Networking{
					Address: address(1<<16 + i),
					Inbound: []kind.Inbound{{Port: 8080, Tags: map[string]string{kind.ServiceTag: "instances",
						kind.ProtocolTag: "http"}}},
				}})
			instance.Labels = workloads
			return put(ctx, a.east, instance, kind.Dataplanes)
		})
	}
	return group.Wait()
}

// instanceService is a service that selects all instances.
func instanceService(name string) *resource.Object[kind.MeshService] {
	return kind.MeshServices.Make(meshName, name, kind.MeshService{
		Selector: kind.ServiceSelector{DataplaneTags: map[string]string{kind.ServiceTag: "instances"}},
		Ports:    []kind.ServicePort{{Port: 80, TargetPort: &kind.PortRef{Number: 8080}, AppProtocol: "http"}},
	})
}

// moveIngress writes the ingress of east with another address.
func (a *across) moveIngress(ctx context.Context, n int) error {
	return put(ctx, a.east, kind.Dataplanes.Make(meshName, "ingress", kind.Dataplane{Networking: kind.Networking{
		ZoneIngress: &kind.ZoneIngressSection{Address: "127.0.0.1", Port: 10001, AdvertisedAddress: ingressAddress(n),
			AdvertisedPort: 10001},
	}}), kind.Dataplanes)
}

func ingressAddress(n int) string { return fmt.Sprintf("192.168.0.%d", 1+n%2) }

// measureNewService measures a new service of east.
func (a *across) measureNewService(ctx context.Context, report *AcrossReport) error {
	a.logProgress("%d services appear in east", a.Changes)
	took, err := a.timeChanges(ctx, func(n int) (*expectation, error) {
		name := fmt.Sprintf("new-%d", n)
		expected := a.clients.expect(name, func(m *message) bool {
			return m.typ == xds.Cluster &&
				slices.ContainsFunc(m.parts, func(cluster *part) bool {
					return strings.Contains(cluster.name, "_"+name+"_")
				})
		})
		return expected, put(ctx, a.east, instanceService(name), kind.MeshServices)
	})
	if err != nil {
		return err
	}
	report.ServiceP50Millis, report.ServiceP99Millis = millis(percentile(took, 50)), millis(percentile(took, 99))
	report.ServiceMaxMillis = millis(took[len(took)-1])
	return nil
}

// measureMovedIngress measures an ingress whose address changes, and with it all assignments of the other zone.
func (a *across) measureMovedIngress(ctx context.Context, report *AcrossReport) error {
	a.logProgress("%d changes of the address of east's ingress", a.Changes)
	assignment, ok := a.clients.reader.assignment(ingressAddress(0))
	if !ok {
		return fmt.Errorf("no proxy of west knows the ingress of east at %s", ingressAddress(0))
	}
	if err := a.quiet(ctx); err != nil {
		return err
	}
	before, _ := a.watcher.received()
	took, err := a.timeChanges(ctx, func(n int) (*expectation, error) {
		expected := a.clients.expect(ingressAddress(n+1), endpointIs(assignment, ingressAddress(n+1), true))
		return expected, a.moveIngress(ctx, n+1)
	})
	if err != nil {
		return err
	}
	if err := a.quiet(ctx); err != nil {
		return err
	}
	after, _ := a.watcher.received()
	report.AddressP50Millis, report.AddressP99Millis = millis(percentile(took, 50)), millis(percentile(took, 99))
	report.AddressItems = float64(after-before) / float64(a.Changes)
	return nil
}

// timeChanges makes changes one after the other, each once all proxies have the one before, and returns their
// latencies, sorted.
func (a *across) timeChanges(ctx context.Context, change func(n int) (*expectation, error)) (took []time.Duration,
	err error) {
	for n := range a.Changes {
		start := time.Now()
		expected, err := change(n)
		if err != nil {
			return nil, err
		}
		end, err := a.clients.reached(ctx, expected)
		if err != nil {
			return nil, err
		}
		took = append(took, end.Sub(start))
		if _, err := a.clients.quiet(ctx, acknowledging); err != nil {
			return nil, err
		}
	}
	slices.Sort(took)
	return took, nil
}

// measureGrowth measures the cost of east for another zone, with few and with many instances of each service.
func (a *across) measureGrowth(ctx context.Context, report *AcrossReport) (err error) {
	a.logProgress("the services of east grow from %d to %d instances", fewInstances, manyInstances)
	if report.FewBytes, err = a.zoneBytes(ctx, "first"); err != nil {
		return err
	}
	before, _ := a.watcher.received()
	if err := a.instances(ctx, fewInstances, manyInstances); err != nil {
		return err
	}
	if err := a.quiet(ctx); err != nil {
		return err
	}
	after, _ := a.watcher.received()
	report.GrowthItems = after - before
	report.ManyBytes, err = a.zoneBytes(ctx, "second")
	return err
}

// zoneBytes returns the bytes of items that a new zone receives.
func (a *across) zoneBytes(ctx context.Context, zone string) (bytes int64, err error) {
	joined, err := a.watch(ctx, zone)
	if err != nil {
		return 0, err
	}
	defer joined.close()
	_, bytes = joined.received()
	return bytes, nil
}

// watch joins one more zone and waits until it has all items.
func (a *across) watch(ctx context.Context, name string) (*simulatedZone, error) {
	token, err := mesh.ZoneToken(ctx, a.global.Admin, name)
	if err != nil {
		return nil, err
	}
	z := newSimulatedZone(name)
	fail := func(err error) {
		select {
		case a.failed <- err:
		default: // one reason is enough
		}
	}
	if err := z.connect(ctx, a.global.ZoneSync, token, a.global.Roots, fail); err != nil {
		return nil, err
	}
	return z, z.quiet(ctx, a.failed)
}

func (a *across) quiet(ctx context.Context) error { return a.watcher.quiet(ctx, a.failed) }

// awaitResource waits until a zone has the one resource of a kind.
func (a *across) awaitResource(ctx context.Context, zone *mesh.Plane, d resource.Descriptor) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout,
		fmt.Errorf("no %s has come from global after %s", d.Describe().Name, startTimeout))
	defer cancel()
	for {
		items, err := zone.Admin.List(ctx, "/meshes/"+meshName+"/"+d.Describe().Plural, nil)
		if err == nil && len(items) > 0 {
			return nil
		}
		if err := wait.Sleep(ctx, 20*time.Millisecond); err != nil {
			return context.Cause(ctx)
		}
	}
}

func put(ctx context.Context, to *mesh.Plane, o resource.Any, d resource.Descriptor) error {
	_, err := to.Admin.Put(ctx, o, d)
	return err
}

// Title is the sizes of the measurement.
func (r *AcrossReport) Title() string {
	return fmt.Sprintf("%d proxies in one zone, %d services in the other, %d changes of each sort", r.Proxies,
		r.Services, r.Changes)
}

// Metrics returns the measurements with their budgets.
func (r *AcrossReport) Metrics() []Metric {
	return []Metric{
		{"a service appears: last proxy of the other zone has it, p50", r.ServiceP50Millis, 0, 0, "ms"},
		{"a service appears: last proxy of the other zone has it, p99", r.ServiceP99Millis, 0, acrossP99Millis, "ms"},
		{"a service appears: last proxy of the other zone has it, max", r.ServiceMaxMillis, 0, 0, "ms"},
		{"an ingress moves: last proxy of the other zone has it, p50", r.AddressP50Millis, 0, 0, "ms"},
		{"an ingress moves: last proxy of the other zone has it, p99", r.AddressP99Millis, 0, acrossP99Millis, "ms"},
		{"an ingress moves: items of sync to each zone", r.AddressItems, 0, 1, ""},
		{fmt.Sprintf("what a zone that joins is sent, %d instances behind each service", fewInstances),
			float64(r.FewBytes), 0, 0, "B"},
		{fmt.Sprintf("what a zone that joins is sent, %d instances behind each service", manyInstances),
			float64(r.ManyBytes), 0, float64(r.FewBytes), "B"},
		{"items of sync to each zone, while the instances grew", float64(r.GrowthItems), 0, 0, ""},
	}
}
