package server_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"weft/internal/server/servertest"
	"weft/internal/testwait"
)

// object is an object of Kubernetes as a test writes it.
type object = map[string]any

// shop is a namespace whose Pods and Services the test writes, in place of a kubelet and the other controllers.
type shop struct {
	*cluster
	t    *testing.T
	name string
}

func (c *cluster) newShop(t *testing.T) *shop {
	t.Helper()
	return c.newShopNamed(t, strings.Replace(c.namespace, "system", "shop", 1), nil)
}

// newShopNamed is newShop with a name, and with labels beside that of injection.
func (c *cluster) newShopNamed(t *testing.T, name string, more object) *shop {
	t.Helper()
	s := &shop{c, t, name}
	labels := object{"kuma.io/sidecar-injection": "enabled"}
	maps.Copy(labels, more)
	t.Cleanup(func() { // the next test's control plane would make Dataplanes of the Pods, in all meshes
		path := "/api/v1/namespaces/" + s.name + "/pods"
		if err := c.client.Delete(context.Background(), path, "", ""); err != nil {
			t.Error(err)
		}
	})
	c.create(t, "/api/v1/namespaces", object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": s.name,
		"labels": labels}})
	s.try("/api/v1/namespaces/"+s.name+"/serviceaccounts", object{"apiVersion": "v1", "kind": "ServiceAccount",
		"metadata": object{"name": "default"}})
	return s
}

// try creates an object that may exist.
func (s *shop) try(path string, o object) {
	s.t.Helper()
	if err := s.client.Create(s.t.Context(), path, o, nil); err != nil && !apierrors.IsAlreadyExists(err) {
		s.t.Fatal(err)
	}
}

// pod creates a Pod with the status of a running one.
func (s *shop) pod(name, ip string, ready bool, labels object) {
	s.t.Helper()
	pods := "/api/v1/namespaces/" + s.name + "/pods"
	s.create(s.t, pods, object{"apiVersion": "v1", "kind": "Pod",
		"metadata": object{"name": name, "labels": labels, "annotations": object{"kuma.io/sidecar-injected": "true"}},
		"spec": object{"automountServiceAccountToken": false, "containers": []any{
			object{"name": "app", "image": "app", "ports": []any{object{"name": "http", "containerPort": 8080}}},
			object{"name": "kuma-sidecar", "image": "sidecar"}}}})
	s.status(name, ip, ready)
}

// status writes the status of a Pod.
func (s *shop) status(name, ip string, ready bool) {
	s.t.Helper()
	path := "/api/v1/namespaces/" + s.name + "/pods/" + name
	for {
		var pod object
		s.read(s.t, path, &pod)
		text := map[bool]string{true: "True", false: "False"}[ready]
		state := object{"running": object{}}
		pod["status"] = object{"phase": "Running", "podIP": ip, "podIPs": []any{object{"ip": ip}},
			"conditions": []any{object{"type": "Ready", "status": text}},
			"containerStatuses": []any{
				object{"name": "app", "ready": ready, "restartCount": 0, "image": "app", "imageID": "", "state": state},
				object{"name": "kuma-sidecar", "ready": true, "restartCount": 0, "image": "sidecar", "imageID": "",
					"state": state}}}
		err := s.client.Update(s.t.Context(), path+"/status", pod, nil)
		if apierrors.IsConflict(err) {
			continue
		}
		if err != nil {
			s.t.Fatal(err)
		}
		return
	}
}

func (s *shop) removePod(name string) {
	s.t.Helper()
	path := "/api/v1/namespaces/" + s.name + "/pods/" + name
	if err := s.client.Delete(s.t.Context(), path, "", ""); err != nil {
		s.t.Fatal(err)
	}
}

// finalizers writes the finalizers of a Pod. With one, a removed Pod is terminating until the finalizer is gone, as it
// is on a node until its containers have ended.
func (s *shop) finalizers(name string, finalizers ...any) {
	s.t.Helper()
	path := "/api/v1/namespaces/" + s.name + "/pods/" + name
	var pod object
	s.read(s.t, path, &pod)
	pod["metadata"].(object)["finalizers"] = finalizers
	if err := s.client.Update(s.t.Context(), path, pod, nil); err != nil {
		s.t.Fatal(err)
	}
}

func (s *shop) services() string { return "/api/v1/namespaces/" + s.name + "/services" }

func (s *shop) service(name string, labels, selector object) {
	s.t.Helper()
	ports := []any{object{"port": 80, "targetPort": "http"}}
	s.create(s.t, s.services(), object{"apiVersion": "v1", "kind": "Service", "metadata": object{"name": name,
		"labels": labels}, "spec": object{"selector": selector, "ports": ports}})
}

// selector changes the selector of a Service, as Argo Rollouts does.
func (s *shop) selector(name string, selector object) {
	s.t.Helper()
	for {
		var service object
		s.read(s.t, s.services()+"/"+name, &service)
		service["spec"].(object)["selector"] = selector
		err := s.client.Update(s.t.Context(), s.services()+"/"+name, service, nil)
		if apierrors.IsConflict(err) {
			continue
		}
		if err != nil {
			s.t.Fatal(err)
		}
		return
	}
}

// dataplane is what the tests read of a stored Dataplane.
type dataplane struct {
	Metadata struct {
		ResourceVersion   string
		Labels            map[string]string
		Annotations       map[string]string
		OwnerReferences   []struct{ Kind, Name, UID string }
		DeletionTimestamp string
	}
	Spec struct {
		Networking struct {
			Address string
			Inbound []struct {
				Port  int
				State string
				Tags  map[string]string
			}
		}
	}
}

// dataplane returns the Dataplane of a Pod; false where there is none.
func (s *shop) dataplane(name string) (dp dataplane, ok bool) {
	s.t.Helper()
	err := s.client.Get(s.t.Context(), "/apis/kuma.io/v1alpha1/namespaces/"+s.name+"/dataplanes/"+name, nil, &dp)
	if err != nil && !apierrors.IsNotFound(err) {
		s.t.Fatal(err)
	}
	return dp, err == nil
}

// states returns "NAME=STATE" for each inbound of a Dataplane, by the Service.
func (s *shop) states(name string) string {
	dp, ok := s.dataplane(name)
	if !ok {
		return "none"
	}
	var states []string
	for _, in := range dp.Spec.Networking.Inbound {
		states = append(states, in.Tags["k8s.kuma.io/service-name"]+"="+in.State)
	}
	return strings.Join(states, " ")
}

func (s *shop) awaitStates(name, want string) {
	s.t.Helper()
	testwait.UntilTrue(s.t, name+" is "+want, func() bool { return s.states(name) == want })
}

// reasons returns the reasons of the events about an object.
func (s *shop) reasons(name string) []string {
	var list struct {
		Items []struct {
			Reason         string
			InvolvedObject struct{ Name string }
		}
	}
	s.read(s.t, "/api/v1/namespaces/"+s.name+"/events", &list)
	reasons := map[string]bool{}
	for _, e := range list.Items {
		if e.InvolvedObject.Name == name {
			reasons[e.Reason] = true
		}
	}
	return slices.Sorted(maps.Keys(reasons))
}

// TestPods: Pods and Services that change become Dataplanes and MeshServices of an API server, with events, and with
// the Pod as the owner. A Pod is written twice: when it is created, and when it is ready.
func TestPods(t *testing.T) {
	c := newCluster(t)
	c.kubeconfig(t, c.Config().BearerToken)
	s := c.newShop(t)
	s.service("web", object{"kuma.io/mesh": "default"}, object{"app": "web"})
	p := servertest.Start(t, c.options(nil))
	s.pod("web-1", "10.42.0.1", false, object{"app": "web"})
	s.awaitStates("web-1", "web=NotReady")
	first, _ := s.dataplane("web-1")
	s.status("web-1", "10.42.0.1", true)
	s.awaitStates("web-1", "web=Ready")
	dp, _ := s.dataplane("web-1")
	var pod struct{ Metadata struct{ UID string } }
	s.read(t, "/api/v1/namespaces/"+s.name+"/pods/web-1", &pod)
	if got := dp.Metadata.OwnerReferences; len(got) != 1 || got[0].Kind != "Pod" || got[0].UID != pod.Metadata.UID {
		t.Errorf("the owners are %v, want the Pod %s", got, pod.Metadata.UID)
	}
	if got := dp.Metadata.Labels["app"]; got != "web" || first.Metadata.ResourceVersion == dp.Metadata.ResourceVersion {
		t.Errorf("the labels are %v", dp.Metadata.Labels)
	}
	var service struct {
		Spec struct {
			Selector struct{ DataplaneTags map[string]string }
		}
		Status struct{ VIPs []struct{ IP string } }
	}
	var cluster struct{ Spec struct{ ClusterIP string } }
	s.read(t, s.services()+"/web", &cluster)
	testwait.UntilTrue(t, "the MeshService has the cluster IP", func() bool {
		s.read(t, "/apis/kuma.io/v1alpha1/namespaces/"+s.name+"/meshservices/web", &service)
		return len(service.Status.VIPs) == 1 && service.Status.VIPs[0].IP == cluster.Spec.ClusterIP
	})
	if got := service.Spec.Selector.DataplaneTags["k8s.kuma.io/service-name"]; got != "web" {
		t.Errorf("the selector is %v", service.Spec.Selector)
	}
	testwait.UntilTrue(t, "the events are stored", func() bool {
		return slices.Equal(s.reasons("web-1"), []string{"CreatedKumaDataplane"}) &&
			slices.Contains(s.reasons("web"), "CreatedMeshService")
	})
	s.selector("web", object{"app": "other"})
	s.awaitStates("web-1", "")
	testwait.UntilTrue(t, "an event has the change of the inbound", func() bool {
		return slices.Equal(s.reasons("web-1"), []string{"CreatedKumaDataplane", "UpdatedKumaDataplane"})
	})
	s.removePod("web-1")
	s.awaitStates("web-1", "none")
	_ = p
}

// TestPromotion: Argo Rollouts promotes one set of Pods after the other. A client's endpoint list of the active Service
// is never empty, and has Pods of the next set only after the selector of the Service has their hash. (Adding inbounds
// in runtime.)
func TestPromotion(t *testing.T) {
	const hash, promotions = "rollouts-pod-template-hash", 3
	c := newCluster(t)
	c.kubeconfig(t, c.Config().BearerToken)
	s := c.newShop(t)
	of := func(set int) object { return object{"app": "redis", hash: fmt.Sprint("set-", set)} }
	pod := func(set int) (name, ip string) { return fmt.Sprint("redis-", set), fmt.Sprint("10.42.1.", set+1) }
	s.service("redis", nil, of(0))
	s.service("redis-preview", nil, of(0))
	p := servertest.Start(t, c.options(map[string]string{
		"runtime.kubernetes.injector.ignoredServiceSelectorLabels": hash}))
	s.pod("client", "10.42.2.1", true, object{"app": "client"})
	s.awaitStates("client", "")
	client := connectAs(t, p, "default.client."+s.name, s.token("client", "weft"))
	serve := func(set int, states string) {
		name, ip := pod(set)
		s.pod(name, ip, true, of(set))
		s.awaitStates(name, states)
		connectAs(t, p, "default."+name+"."+s.name, s.token(name, "weft"))
	}
	active := "redis." + s.name
	serve(0, "redis=Ready redis-preview=Ready")
	_, ip := pod(0)
	client.awaitList(t, active, ip)
	for set := 1; set <= promotions; set++ {
		old, next := ip, ""
		name, _ := pod(set)
		_, next = pod(set)
		seen := client.lists(active)
		s.selector("redis-preview", of(set))
		serve(set, "redis=Ignored redis-preview=Ready")
		client.awaitList(t, "redis-preview."+s.name, next)
		before := client.lists(active)
		for _, list := range before[len(seen):] {
			if len(list) != 1 || list[0] != old {
				t.Fatalf("before the promotion, the active Service has the endpoints %q, want %s", list, old)
			}
		}
		s.selector("redis", of(set))
		client.awaitList(t, active, next)
		for _, list := range client.lists(active)[len(before):] {
			if len(list) == 0 || slices.ContainsFunc(list, func(at string) bool { return at != old && at != next }) {
				t.Fatalf("during the promotion, the active Service has the endpoints %q, want %s or %s", list, old,
					next)
			}
		}
		s.awaitStates(name, "redis=Ready redis-preview=Ready")
		former, _ := pod(set - 1)
		s.removePod(former)
		s.awaitStates(former, "none")
		ip = next
	}
	client.check(t)
}

// receivedList is an endpoint list as a proxy has received it.
type receivedList struct {
	name      string
	addresses []string
}

// lists returns the endpoint lists of a service that the proxy has received, in their order.
func (p *proxy) lists(service string) [][]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var lists [][]string
	for _, list := range p.received {
		if strings.Contains(list.name, "__"+service+"_") {
			lists = append(lists, list.addresses)
		}
	}
	return lists
}

// awaitList waits until the last endpoint list of a service has one address alone.
func (p *proxy) awaitList(t *testing.T, service, address string) {
	t.Helper()
	testwait.UntilTrue(t, service+" has the endpoint "+address, func() bool {
		lists := p.lists(service)
		return len(lists) > 0 && slices.Equal(lists[len(lists)-1], []string{address})
	})
	p.check(t)
}

// faultyServer forwards to an API server, and fails as a test asks for.
type faultyServer struct {
	*httptest.Server
	mu       sync.Mutex
	expired  bool // watches of Pods report that their version is too old
	failing  bool // lists of Pods fail
	rejected int  // lists that failed
	delay    time.Duration
	writes   map[string]int // requests that write, by resource, counted before the API server sees them
}

func newFaultyServer(t *testing.T, to *rest.Config) *faultyServer {
	t.Helper()
	target, err := url.Parse(to.Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(to)
	if err != nil {
		t.Fatal(err)
	}
	forward := httputil.NewSingleHostReverseProxy(target)
	forward.Transport, forward.FlushInterval = transport, -1
	forward.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	f := &faultyServer{writes: map[string]int{}}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		ofPods, watch := r.URL.Path == "/api/v1/pods", r.URL.Query().Get("watch") != ""
		expired, failing, delay := f.expired && ofPods && watch, f.failing && ofPods && !watch, f.delay
		if failing {
			f.rejected++
		}
		if r.Method != http.MethodGet {
			f.writes[resourceOf(r.URL.Path)]++
		}
		f.mu.Unlock()
		testwait.Pass(delay, "the API server is slow")
		switch {
		case expired:
			fmt.Fprintln(w, `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure",`+
				`"reason":"Expired","code":410,"message":"too old"}}`)
		case failing:
			http.Error(w, "no", http.StatusInternalServerError)
		default:
			forward.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(func() { f.CloseClientConnections(); f.Close() })
	return f
}

// resourceOf returns the plural name in a path of the Kubernetes API: "pods" for /api/v1/namespaces/shop/pods/web-1.
func resourceOf(path string) string {
	segments := strings.Split(strings.TrimPrefix(path, "/"), "/")
	at := 3 // apis/GROUP/VERSION
	if segments[0] == "api" {
		at = 2
	}
	if len(segments) > at+2 && segments[at] == "namespaces" {
		at += 2
	}
	if at >= len(segments) {
		return path
	}
	return segments[at]
}

// written returns the number of requests that wrote, by resource.
func (f *faultyServer) written() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.writes)
}

func (f *faultyServer) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// TestObjectsSurviveTheAPIServer: no Dataplane is deleted or written while watches are lost, lists fail, or the API
// server is away or slow. What changed meanwhile is made up for afterwards.
func TestObjectsSurviveTheAPIServer(t *testing.T) {
	c := newCluster(t)
	faulty := newFaultyServer(t, c.Config())
	c.kubeconfigOf(t, faulty.URL, "", c.Config().BearerToken)
	s := c.newShop(t)
	s.service("web", nil, object{"app": "web"})
	servertest.Start(t, c.options(nil))
	s.pod("web-1", "10.42.0.1", true, object{"app": "web"})
	s.pod("web-2", "10.42.0.2", true, object{"app": "web"})
	s.awaitStates("web-1", "web=Ready")
	s.awaitStates("web-2", "web=Ready")
	kept, _ := s.dataplane("web-1")

	faulty.set(func() { faulty.expired, faulty.failing = true, true })
	faulty.CloseClientConnections()
	testwait.UntilTrue(t, "two lists failed", func() bool {
		faulty.mu.Lock()
		defer faulty.mu.Unlock()
		return faulty.rejected >= 2
	})
	s.removePod("web-2")
	s.pod("web-3", "10.42.0.3", true, object{"app": "web"})
	for _, name := range []string{"web-1", "web-2"} {
		if got := s.states(name); got != "web=Ready" {
			t.Errorf("while lists fail, %s is %s", name, got)
		}
	}
	faulty.set(func() { faulty.expired, faulty.failing = false, false })
	s.awaitStates("web-2", "none")
	s.awaitStates("web-3", "web=Ready")

	faulty.set(func() { faulty.delay = 300 * time.Millisecond })
	s.status("web-3", "10.42.0.3", false)
	s.awaitStates("web-3", "web=NotReady")
	faulty.set(func() { faulty.delay = 0 })

	c.StopAPI()
	faulty.CloseClientConnections()
	c.StartAPI(t)
	s.status("web-3", "10.42.0.3", true)
	s.awaitStates("web-3", "web=Ready")
	if now, _ := s.dataplane("web-1"); now.Metadata.ResourceVersion != kept.Metadata.ResourceVersion {
		t.Errorf("the Dataplane of a Pod that never changed was written")
	}
}

// TestRejectedDataplane: a write that the API server rejects is an event on the Pod, and is repeated. A Dataplane that
// somebody changes is written again.
func TestRejectedDataplane(t *testing.T) {
	c := newCluster(t)
	c.kubeconfig(t, c.Config().BearerToken)
	s := c.newShop(t)
	quota := "/api/v1/namespaces/" + s.name + "/resourcequotas"
	hard := object{"count/dataplanes.kuma.io": "0"}
	var stored object
	if err := c.client.Create(t.Context(), quota, object{"apiVersion": "v1", "kind": "ResourceQuota",
		"metadata": object{"name": "none"}, "spec": object{"hard": hard}}, &stored); err != nil {
		t.Fatal(err)
	}
	stored["status"] = object{"hard": hard, "used": object{"count/dataplanes.kuma.io": "0"}}
	if err := c.client.Update(t.Context(), quota+"/none/status", stored, nil); err != nil {
		t.Fatal(err)
	}
	servertest.Start(t, c.options(nil))
	s.pod("web-1", "10.42.0.1", true, object{"app": "web"})
	testwait.UntilTrue(t, "the Pod has an event", func() bool {
		return slices.Contains(s.reasons("web-1"), "FailedToGenerateKumaDataplane")
	})
	if err := c.client.Delete(t.Context(), quota+"/none", "", ""); err != nil {
		t.Fatal(err)
	}
	testwait.UntilTrue(t, "the Dataplane is stored", func() bool { return s.states("web-1") == "" })
	path := "/apis/kuma.io/v1alpha1/namespaces/" + s.name + "/dataplanes/web-1"
	var dp object
	c.read(t, path, &dp)
	dp["metadata"].(object)["labels"].(object)["app"] = "forged"
	if err := c.client.Update(t.Context(), path, dp, nil); err != nil {
		t.Fatal(err)
	}
	testwait.UntilTrue(t, "the label is that of the Pod", func() bool {
		now, _ := s.dataplane("web-1")
		return now.Metadata.Labels["app"] == "web"
	})
}

// TestWritesOfARollout: a rolling update costs two writes for a new Pod (it is created, it becomes ready), and two for
// a former one (it terminates, it is removed).
func TestWritesOfARollout(t *testing.T) {
	const pods = 20
	c := newCluster(t)
	counting := newFaultyServer(t, c.Config())
	c.kubeconfigOf(t, counting.URL, "", c.Config().BearerToken)
	s := c.newShop(t)
	s.service("web", object{"kuma.io/mesh": "default"}, object{"app": "web"})
	servertest.Start(t, c.options(nil))
	name := func(release string, i int) (pod, ip string) {
		network := map[string]int{"a": 1, "b": 2}[release]
		return fmt.Sprint("web-", release, "-", i), fmt.Sprint("10.42.", network, ".", i+1)
	}
	for i := range pods {
		pod, ip := name("a", i)
		s.pod(pod, ip, true, object{"app": "web", "version": "a"})
	}
	for i := range pods {
		pod, _ := name("a", i)
		s.awaitStates(pod, "web=Ready")
	}
	before := counting.written()
	for i := range pods {
		pod, ip := name("b", i)
		s.pod(pod, ip, false, object{"app": "web", "version": "b"})
		s.awaitStates(pod, "web=NotReady")
		s.status(pod, ip, true)
		s.awaitStates(pod, "web=Ready")
		former, _ := name("a", i)
		s.finalizers(former, "weft.test/containers")
		s.removePod(former)
		s.awaitStates(former, "web=NotReady")
		s.finalizers(former)
		s.awaitStates(former, "none")
	}
	after := counting.written()
	if n := after["dataplanes"] - before["dataplanes"]; n != 4*pods {
		t.Errorf("a rolling update of %d Pods is %d writes of Dataplanes, want %d", pods, n, 4*pods)
	}
	t.Logf("writes of a rolling update of %d Pods: %v before, %v after", pods, before, after)
}
