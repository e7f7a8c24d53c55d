package scale_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"weft/internal/diag"
	"weft/internal/inspect"
	"weft/internal/kube/api"
	"weft/internal/kube/crd"
	"weft/internal/testwait"
	"weft/kind"
	"weft/resource"
	"weft/test/load/scenario"
	"weft/test/mesh"
)

type zone = inspect.Zone

// nodesOfCluster is the number of Nodes of a cluster that is one of many.
const nodesOfCluster = 10

// federation is a global control plane with its zones: clusters, and simulated zones.
type federation struct {
	t          *testing.T
	global     *plane
	above      *world // the cluster that has the resources of global; nil: they are in SQLite
	clusters   []*world
	simulated  *scenario.Zones
	copies     *copies           // of MeshServices of other zones in the second cluster
	client     *scenario.Proxies // the proxy of a Pod of the second cluster
	added      int               // MeshServices beside those at the beginning
	readyAfter time.Duration     // of the last start of global
}

// federate starts global and all clusters, which join it without a Service.
func federate(t *testing.T) *federation {
	t.Helper()
	f := &federation{t: t}
	if *onKubernetes {
		f.above = newWorld(t, size{}, object{"controlPlane": object{"mode": "global"}})
		f.global = f.above.plane
	} else {
		f.global = newPlane(t, map[string]string{"KUMA_MODE": "global"})
	}
	f.global.start()
	// The Pods of Services have an identity, which other zones require. Simulated Envoys have no certificate, so a
	// proxy whose listener has to serve has no identity.
	identity := kind.MeshIdentities.Make("default", "identity", kind.MeshIdentity{
		Selector: &kind.IdentitySelector{Dataplane: &kind.LabelSelector{
			MatchLabels: map[string]string{"pod-template-hash": "a"}}},
		Provider: kind.IdentityProvider{Type: kind.Bundled}})
	if _, err := f.global.Admin.Put(t.Context(), identity, kind.MeshIdentities); err != nil {
		t.Fatal(err)
	}
	for i := range *clusters {
		f.clusters = append(f.clusters, f.joinCluster(i))
	}
	roots, err := os.ReadFile(f.global.CA()) // any CA
	if err == nil {
		f.simulated, err = scenario.NewZones("default", *zones-*clusters, *servicesOfCluster, *podsOfCluster)
	}
	if err == nil {
		err = f.simulated.PutTrusts(string(roots))
	}
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// joinCluster starts a cluster whose control plane joins global with the token of its zone.
func (f *federation) joinCluster(i int) *world {
	f.t.Helper()
	name := clusterName(i)
	token, err := mesh.ZoneToken(f.t.Context(), f.global.Admin, name)
	file := filepath.Join(f.t.TempDir(), "token")
	if err == nil {
		err = os.WriteFile(file, []byte(token), 0o600)
	}
	if err != nil {
		f.t.Fatal(err)
	}
	c := newWorld(f.t, size{nodes: nodesOfCluster, pods: *podsOfCluster, services: *servicesOfCluster}, object{
		"controlPlane": object{"zone": name, "kdsGlobalAddress": "grpcs://" + f.global.ZoneSync, "envVars": object{
			"KUMA_MULTIZONE_ZONE_KDS_AUTH_CP_TOKEN_PATH": file,
			"KUMA_MULTIZONE_ZONE_KDS_ROOT_CA_FILE":       f.global.CA()}},
		"meshes": []any{object{"name": "default", "ingress": object{"enabled": true, "podAnnotations": object{
			"kuma.io/ingress-public-address": ingressAddress(i), "kuma.io/ingress-public-port": "10001"}}}}})
	c.start()
	c.awaitCount(kind.MeshIdentities, 1)
	return c
}

func clusterName(i int) string { return fmt.Sprintf("cluster-%d", i) }

// ingressAddress is what other zones dial for a cluster.
func ingressAddress(cluster int) string { return fmt.Sprintf("192.168.0.%d", cluster+1) }

// front is the only server of the service "front" of a cluster.
var front = pod{namespaceOf(0), "front"}

func (w *world) createFront() {
	w.t.Helper()
	err := w.createService(w.t.Context(), front.namespace, front.name, front.name, object{})
	if err == nil {
		err = w.createPod(w.t.Context(), front, front.name, "none", 0)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// ingress is the Pod of the zone ingress of a cluster, and its ServiceAccount and Deployment.
var ingress = pod{system, "kuma-default-ingress"}

// createIngress creates the Pod, in place of the controllers.
func (w *world) createIngress() {
	w.t.Helper()
	if err := w.createPodOf(w.t.Context(), ingress, w.templates[ingress.name], 0); err != nil {
		w.t.Fatal(err)
	}
}

// servicesOf is the number of MeshServices of a cluster.
func (f *federation) servicesOf(c *world) int { return c.services + 1 }

// services is the number of MeshServices of all zones.
func (f *federation) services() int { return *zones**servicesOfCluster + *clusters + f.added }

// startGlobal starts global, and connects the simulated zones, as those of the clusters do by themselves.
func (f *federation) startGlobal() {
	f.t.Helper()
	began := time.Now()
	f.global.start()
	f.readyAfter = time.Since(began)
	if err := f.simulated.Connect(f.t.Context(), f.global.Admin, f.global.ZoneSync, f.global.Roots); err != nil {
		f.t.Fatal(err)
	}
}

// connect connects simulated Envoys: of the zone ingress and the service front of the first cluster, and of a Pod of
// the second one.
func (f *federation) connect(r *report) {
	f.t.Helper()
	f.copies = f.clusters[1].follow()
	available := f.copies.expect(func(s *meshService) bool { return s.isFront() && s.Spec.State == "Available" })
	f.clusters[0].connect(ingress, ingress.name, 0)
	f.clusters[0].connect(front, "default", 0)
	f.copies.await(available, "the service front is Available")
	began := time.Now()
	f.client = f.clusters[1].connect(f.clusters[1].podsOf[0][0], "default", 2**servicesOfCluster)
	r.add("an Envoy of a zone connects: it has all services, after s", time.Since(began).Seconds(), noBudget, "")
	r.add("an Envoy of a zone connects: bytes, kB", float64(f.client.Bytes())/1e3, noBudget, "")
}

// connect connects the simulated Envoy of a Pod until the end of the test.
func (w *world) connect(p pod, account string, services int) *scenario.Proxies {
	w.t.Helper()
	connected, err := scenario.ConnectProxies(w.t.Context(), w.DataPlane, w.Roots,
		map[string]string{"default." + p.name + "." + p.namespace: w.podToken(p, account)}, services)
	if err != nil {
		w.t.Fatalf("the Envoy of the Pod %s: %v", p.name, err)
	}
	return connected
}

// labelService sets labels of a Service.
func (w *world) labelService(ctx context.Context, service int, labels object) error {
	path := "/api/v1/namespaces/" + namespaceOf(service) + "/services/" + serviceName(service)
	return w.api.Apply(ctx, path, object{"apiVersion": "v1", "kind": "Service",
		"metadata": object{"name": serviceName(service), "labels": labels}}, nil)
}

// changeService changes a Service, which has the time of the change.
func (w *world) changeService(ctx context.Context, service int) error {
	return w.labelService(ctx, service, object{scenario.MadeAt: strconv.FormatInt(time.Now().UnixMicro(), 10)})
}

// worlds returns the clusters, and that of global.
func (f *federation) worlds() []*world {
	if f.above == nil {
		return f.clusters
	}
	return append(slices.Clone(f.clusters), f.above)
}

// mark begins to count the requests to the API servers.
func (f *federation) mark() {
	for _, w := range f.worlds() {
		w.mark()
	}
}

// sinceMark returns the requests to all API servers since the mark.
func (f *federation) sinceMark() requests {
	f.t.Helper()
	all := f.ofClusters()
	if f.above != nil {
		all.add(f.above.sinceMark())
	}
	return all
}

// ofClusters is sinceMark without the API server of global.
func (f *federation) ofClusters() requests {
	f.t.Helper()
	all := requests{}
	for _, c := range f.clusters {
		all.add(c.sinceMark())
	}
	return all
}

// perCluster is the mean of a number of all clusters.
func perCluster(n int) float64 { return float64(n) / float64(*clusters) }

func (f *federation) awaitQuiet() {
	f.t.Helper()
	awaitQuiet(f.t, f.worlds()...)
}

// usages returns the usages of the control planes of the clusters.
func (f *federation) usages() (all []diag.Process) {
	f.t.Helper()
	for _, c := range f.clusters {
		all = append(all, c.usage())
	}
	return all
}

// inspect returns the zones as global knows them.
func (f *federation) inspect() []zone {
	f.t.Helper()
	var found struct{ Zones []zone }
	if err := f.global.Admin.Get(f.t.Context(), "/zones/_inspect", nil, &found); err != nil {
		f.t.Fatal(err)
	}
	return found.Zones
}

// awaitZones waits until a condition holds for every zone.
func (f *federation) awaitZones(condition string, holds func(*zone) bool) {
	f.t.Helper()
	// Global computes the counts of all Dataplanes for each request, so it gets few.
	await(f.t, time.Second, condition, *zones, func() (reached int) {
		for _, z := range f.inspect() {
			if holds(&z) {
				reached++
			}
		}
		return reached
	})
}

// connected is true for a zone whose streams of all kinds are connected.
func connected(z *zone) bool {
	for _, k := range z.Kinds {
		if !k.Connected {
			return false
		}
	}
	return z.Connected != nil && *z.Connected
}

// inSync is true for a connected zone that has all changes.
func inSync(z *zone) bool { return connected(z) && z.Lag == 0 }

// rejected is the number of resources that global or a zone has rejected.
func (f *federation) rejected() (n int) {
	f.t.Helper()
	for _, z := range f.inspect() {
		n += len(z.Rejected)
	}
	return n
}

// memory is the resident memory of etcd, kube-apiserver and kwok, in bytes.
func (w *world) memory() (all []int) {
	w.t.Helper()
	for _, p := range append(w.Processes(), w.kwok) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.PID()))
		if err != nil {
			w.t.Fatal(err)
		}
		pages, err := strconv.Atoi(strings.Fields(string(text))[1])
		if err != nil {
			w.t.Fatal(err)
		}
		all = append(all, pages*os.Getpagesize())
	}
	return all
}

// meshService is a MeshService as an object.
type meshService struct {
	Metadata struct{ Labels, Annotations map[string]string }
	Spec     struct{ State string }
}

func (s *meshService) name() string { return s.Metadata.Annotations[resource.DisplayName] }

// isFront is true for the service front of the first cluster.
func (s *meshService) isFront() bool {
	return s.name() == front.name && s.Metadata.Labels[kind.ZoneLabel] == clusterName(0)
}

// copies follows the MeshServices of other zones in a cluster.
type copies struct {
	t       *testing.T
	mu      sync.Mutex
	wanted  func(*meshService) bool
	reached chan time.Time
	made    map[string]bool            // times of changes that were seen
	ages    map[string][]time.Duration // of these changes, by zone
}

// follow follows the copies until the end of the test.
func (w *world) follow() *copies {
	w.t.Helper()
	watch, err := w.api.Watch(w.t.Context(), crd.Path(kind.MeshServices, system), "", nil)
	if err != nil {
		w.t.Fatal(err)
	}
	c := &copies{t: w.t, made: map[string]bool{}, ages: map[string][]time.Duration{}}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			event, err := watch.Next()
			if w.t.Context().Err() != nil {
				return
			}
			if err == nil && event.Type != api.Bookmark {
				err = c.changed(event)
			}
			if err != nil {
				w.t.Errorf("the watch of the copies: %v", err)
				return
			}
		}
	})
	w.t.Cleanup(func() {
		watch.Close()
		running.Wait()
	})
	return c
}

func (c *copies) changed(event api.Event) error {
	now := time.Now()
	var service meshService
	if err := json.Unmarshal(event.Object, &service); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// A change of the status has the same label, and does not count.
	made := service.Metadata.Labels[scenario.MadeAt]
	if age, ok := scenario.AgeOf(service.Metadata.Labels); ok && !c.made[made] {
		c.made[made] = true
		zone := service.Metadata.Labels[kind.ZoneLabel]
		c.ages[zone] = append(c.ages[zone], age)
	}
	if c.wanted != nil && c.wanted(&service) {
		c.wanted = nil
		c.reached <- now
	}
	return nil
}

// expect begins to wait for a copy.
func (c *copies) expect(wanted func(*meshService) bool) <-chan time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wanted, c.reached = wanted, make(chan time.Time, 1)
	return c.reached
}

// await returns when the expected copy has been stored.
func (c *copies) await(seen <-chan time.Time, what string) time.Time {
	c.t.Helper()
	return testwait.Receive(c.t, what+", in another API server", seen)
}

// takeAges returns the ages of the changes since the last call, of clusters and of simulated zones.
func (c *copies) takeAges() (ofClusters, simulated []time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for zone, ages := range c.ages {
		if strings.HasPrefix(zone, "cluster-") {
			ofClusters = append(ofClusters, ages...)
		} else {
			simulated = append(simulated, ages...)
		}
	}
	clear(c.ages)
	return ofClusters, simulated
}
