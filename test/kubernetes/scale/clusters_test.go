package scale_test

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"weft/internal/diag"
	"weft/internal/testwait"
	"weft/kind"
	"weft/test/load/scenario"
)

var (
	clusters          = flag.Int("clusters", 4, "clusters that are zones, at least 3")
	zones             = flag.Int("zones", 20, "zones: the clusters, and simulated zones")
	podsOfCluster     = flag.Int("pods-of-cluster", 1000, "Pods of each zone")
	servicesOfCluster = flag.Int("services-of-cluster", 100, "Services of each zone, which the Pods share evenly")
	onKubernetes      = flag.Bool("global-on-kubernetes", false, "global has its resources in a cluster, not in SQLite")
	rate              = flag.Int("rate", 20, "changes of a Service each second, for which the zones take turns")
	during            = flag.Duration("during", 30*time.Second, "how long that many are made")
)

// TestScaleClusters: the services of every zone of a global control plane are in all others. Global and the zones write
// nothing at rest but their Leases. A change reaches other zones soon, also many of them, and also when it was made
// while global did not run. A control plane that starts again writes nothing.
func TestScaleClusters(t *testing.T) {
	if !*enabled {
		t.Skip("takes the whole machine for minutes: make scale-clusters")
	}
	if *clusters < 3 || *zones < *clusters || *servicesOfCluster < 1 || *podsOfCluster < *servicesOfCluster {
		t.Fatalf("want 3 clusters or more, at least as many zones, and at least as many Pods as Services; got %d, %d, "+
			"%d and %d", *clusters, *zones, *podsOfCluster, *servicesOfCluster)
	}
	r := &report{}
	began := time.Now()
	f := federate(t)
	fmt.Printf("the clusters start: %.0f s\n", time.Since(began).Seconds())
	r.measure(f,
		phase{"the Services and Pods are created", f.measureCreation},
		phase{"all zones join", f.measureJoin},
		phase{"at rest", f.measureRest},
		phase{"Services are created", f.measureServices},
		phase{"a Pod becomes ready", f.measureReadiness},
		phase{"many changes", f.measureChanges},
		phase{"global starts again", f.measureGlobalStart},
		phase{"a zone starts again", f.clusters[len(f.clusters)-1].measureStart})
	store := "SQLite"
	if f.above != nil {
		store = "Kubernetes"
	}
	r.print(t, fmt.Sprintf("global on %s, %d zones of %d Pods and %d Services, %d of them clusters", store, *zones,
		*podsOfCluster, *servicesOfCluster, *clusters))
}

// measureCreation creates the Services and the Pods while global does not run, so that the zones join with all of them.
func (f *federation) measureCreation(r *report) {
	f.global.Stop()
	began := time.Now()
	for _, c := range f.clusters {
		c.createServices()
		c.createPods()
	}
	created := time.Since(began)
	for _, c := range f.clusters {
		c.createFront()
		c.createIngress()
		c.awaitCount(kind.Dataplanes, c.pods+2)
		c.awaitCount(kind.MeshServices, f.servicesOf(c))
		c.awaitQuiet()
	}
	r.add("creation of all Pods of the clusters, s", created.Seconds(), noBudget, "")
}

func (f *federation) measureJoin(r *report) {
	before, began := f.usages(), time.Now()
	f.startGlobal()
	f.awaitZones("every zone is connected", connected)
	r.add("all zones join: connected, after s", time.Since(began).Seconds(), noBudget, "")
	for _, c := range f.clusters {
		c.awaitCount(kind.MeshServices, f.services())
	}
	want := (*zones - *clusters) * (f.services() - *servicesOfCluster)
	await(f.t, poll, "services of all others in the simulated zones", want, func() int {
		if err := f.simulated.Err(); err != nil {
			f.t.Fatal(err)
		}
		return min(int(f.simulated.ReceivedVersions()), want)
	})
	r.add("all zones join: each has the services of all others, after s", time.Since(began).Seconds(), noBudget, "")
	f.awaitZones("global has the Pods and Services of every zone", func(z *zone) bool {
		return inSync(z) && z.Services.Total >= *servicesOfCluster && z.Dataplanes.Total >= *podsOfCluster
	})
	f.awaitQuiet()
	r.add("all zones join: all is written, after s", (time.Since(began) - quiet).Seconds(), noBudget, "")
	after := f.usages()
	r.add("all zones join: CPU of global, s", cpu(diag.Process{}, f.global.usage()), noBudget, "")
	r.add("all zones join: CPU of one zone, s", cpu(before[0], after[0]), noBudget, "")
	found := f.ofClusters()
	r.add("all zones join: writes to the API server of one zone", perCluster(found.writes()-found.leases()), noBudget,
		"")
	r.add("rejected resources", float64(f.rejected()), 0, "")
}

func (f *federation) measureRest(r *report) {
	r.add("at rest: memory of global, MB", float64(f.global.collectGarbage().RSSBytes)/1e6, noBudget, "")
	var memory uint64
	for _, c := range f.clusters {
		memory = max(memory, c.collectGarbage().RSSBytes)
	}
	r.add("at rest: memory of the control plane of a zone, MB", float64(memory)/1e6, noBudget, "")
	f.mark()
	global, before := f.global.usage(), f.usages()
	testwait.Pass(*rest, "the control planes are at rest")
	used, after := cpu(global, f.global.usage()), f.usages()
	found := f.sinceMark()
	r.add("at rest: writes to all API servers, except of Leases", float64(found.writes()-found.leases()), 0, "")
	r.add("at rest: writes of Leases to one API server, each second",
		perCluster(f.ofClusters().leases())/rest.Seconds(), 0.5, "")
	r.add("at rest: CPU of global, percent of a core", 100*used/rest.Seconds(), noBudget, "")
	var most float64
	for i := range before {
		most = max(most, cpu(before[i], after[i]))
	}
	r.add("at rest: CPU of the control plane of a zone, percent of a core", 100*most/rest.Seconds(), noBudget, "")
	for i, bytes := range f.clusters[0].memory() {
		r.add("at rest: memory of "+[]string{"etcd", "kube-apiserver", "kwok"}[i]+" of a cluster, MB",
			float64(bytes)/1e6, noBudget, "")
	}
}

// measureServices measures Services that are created in the first cluster, until they are in the API server of the
// second one, and until a simulated Envoy there has an endpoint.
func (f *federation) measureServices(r *report) {
	f.connect(r)
	f.awaitQuiet()
	f.mark()
	global := f.global.usage()
	var stored, received []time.Duration
	for n := range *changes {
		name := fmt.Sprintf("new-%d", n)
		seen := f.copies.expect(func(s *meshService) bool { return s.name() == name })
		var began time.Time
		create := func(ctx context.Context) error {
			began = time.Now()
			return f.clusters[0].createService(ctx, namespaceOf(0), name, serviceName(0), object{})
		}
		took, err := f.client.Create(f.t.Context(), name+"."+namespaceOf(0), ingressAddress(0), create)
		if err != nil {
			f.t.Fatal(err)
		}
		received = append(received, took)
		stored = append(stored, f.copies.await(seen, "the Service "+name).Sub(began))
	}
	f.added = *changes
	f.awaitQuiet()
	r.addLatency("a Service is created: another API server has it", stored)
	r.addLatency("a Service is created: an Envoy of another zone has its endpoint", received)
	r.add("a Service is created: CPU of global, ms", cpu(global, f.global.usage())*1000/float64(*changes), noBudget, "")
	for i, name := range []string{"its zone", "another zone"} {
		found := f.clusters[i].sinceMark()
		r.add("a Service is created: writes to the API server of "+name,
			float64(found.writes()-found.leases())/float64(*changes), noBudget, "")
		r.add("a Service is created: reads of objects of "+name, float64(found.reads())/float64(*changes), noBudget, "")
	}
}

// addLatency adds the median and the 99th percentile of the latencies of a change.
func (r *report) addLatency(name string, took []time.Duration) {
	if len(took) == 0 {
		return // there is no such zone
	}
	slices.Sort(took)
	r.add(name+", p50, ms", millis(took[len(took)/2]), noBudget, "")
	r.add(name+", p99, ms", millis(took[len(took)*99/100]), 500, "")
}

// measureReadiness measures the readiness of the only server of a service in the first cluster, until its state is in
// the API server of the second one.
func (f *federation) measureReadiness(r *report) {
	f.mark()
	var took []time.Duration
	for range *changes {
		for _, ready := range []bool{false, true} {
			state := map[bool]string{true: "Available", false: "Unavailable"}[ready]
			seen := f.copies.expect(func(s *meshService) bool { return s.isFront() && s.Spec.State == state })
			began := time.Now()
			if err := f.clusters[0].setReady(f.t.Context(), front, ready); err != nil {
				f.t.Fatal(err)
			}
			took = append(took, f.copies.await(seen, "the state of the service front").Sub(began))
		}
	}
	f.awaitQuiet()
	r.addLatency("the only Pod is ready or not: another API server has it", took)
	found := f.clusters[1].sinceMark()
	r.add("the only Pod is ready or not: writes to another API server",
		float64(found.writes()-found.leases())/float64(len(took)), noBudget, "")
}

// measureChanges changes Services at a constant rate, for which the zones take turns.
func (f *federation) measureChanges(r *report) {
	f.copies.takeAges()
	before, global, began := f.usages(), f.global.usage(), time.Now()
	made, ofOthers := f.makeChanges()
	took := time.Since(began).Seconds()
	after, globalAfter := f.usages(), f.global.usage()
	f.awaitQuiet()
	ofClusters, simulated := f.copies.takeAges()
	r.add("many changes: made each second", float64(made)/took, noBudget, "")
	r.add("many changes: percent of them that another API server has had",
		100*float64(len(ofClusters)+len(simulated))/float64(ofOthers), noBudget, "")
	r.addLatency("many changes: another API server has one of a cluster", ofClusters)
	r.addLatency("many changes: another API server has one of a simulated zone", simulated)
	r.add("many changes: CPU of global, percent of a core", 100*cpu(global, globalAfter)/took, noBudget, "")
	r.add("many changes: CPU of the control plane of a zone, percent of a core", 100*cpu(before[1], after[1])/took,
		noBudget, "")
	found := f.ofClusters()
	r.add("many changes: writes to each API server, each second", perCluster(found.writes()-found.leases())/took,
		noBudget, "")
	r.add("many changes: reads of objects of each API server, each second", perCluster(found.reads())/took, noBudget,
		"")
}

// makeChanges returns the number of all changes, and of those that were made outside of the second cluster.
func (f *federation) makeChanges() (made, ofOthers int) {
	group, ctx := errgroup.WithContext(f.t.Context())
	began := time.Now()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for all := int(during.Seconds() * float64(*rate)); made < all && ctx.Err() == nil; {
		for due := min(all, int(time.Since(began).Seconds()*float64(*rate))); made < due; made++ {
			zone, service := made%*zones, made / *zones % *servicesOfCluster
			if zone != 1 {
				ofOthers++
			}
			group.Go(func() error {
				if zone < len(f.clusters) {
					return f.clusters[zone].changeService(ctx, service)
				}
				return f.simulated.Change(zone-len(f.clusters), service)
			})
		}
		<-tick.C
	}
	if err := group.Wait(); err != nil {
		f.t.Fatal(err)
	}
	return made, ofOthers
}

// measureGlobalStart stops global, changes a Service meanwhile, and starts global again.
func (f *federation) measureGlobalStart(r *report) {
	f.simulated.Close()
	f.global.Stop()
	f.mark()
	changed := strconv.FormatInt(time.Now().UnixMicro(), 10)
	seen := f.copies.expect(func(s *meshService) bool { return s.Metadata.Labels[scenario.MadeAt] == changed })
	if err := f.clusters[0].labelService(f.t.Context(), 0, object{scenario.MadeAt: changed}); err != nil {
		f.t.Fatal(err)
	}
	f.clusters[0].awaitQuiet()
	began := time.Now()
	f.startGlobal()
	r.add("global starts again: ready, s", f.readyAfter.Seconds(), noBudget, "")
	r.add("global starts again: a change made meanwhile is in another API server, after s",
		f.copies.await(seen, "a change that was made without global").Sub(began).Seconds(), noBudget, "")
	f.awaitZones("every zone is in sync", inSync)
	r.add("global starts again: every zone is in sync, after s", time.Since(began).Seconds(), noBudget, "")
	f.awaitQuiet()
	r.add("global starts again: CPU of global, s", cpu(diag.Process{}, f.global.usage()), noBudget, "")
	r.add("global starts again: memory of global, MB", float64(f.global.collectGarbage().RSSBytes)/1e6, noBudget, "")
	var most int
	for _, c := range f.clusters {
		found := c.sinceMark()
		most = max(most, found.writes()-found.leases()-found.events())
	}
	r.add("global starts again: writes to the API server of a zone, for that change", float64(most), 1, "")
}
