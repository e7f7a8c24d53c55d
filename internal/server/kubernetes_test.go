package server_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"weft/internal/bundle"
	"weft/internal/client"
	"weft/internal/kube/api"
	"weft/internal/kube/crd"
	"weft/internal/kube/kubetest"
	"weft/internal/server"
	"weft/internal/server/servertest"
	"weft/internal/settings"
	"weft/internal/testwait"
	"weft/internal/xds"
	"weft/kind"
	"weft/test/mesh"
)

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		runChild()
	}
	kubetest.Main(m)
}

// childVariable makes the process of a test a control plane with the settings of its environment.
const childVariable = "WEFT_TEST_CONTROL_PLANE"

// runChild runs a control plane until the process is killed.
func runChild() {
	s, _, err := settings.Load("", os.Environ(), nil)
	if err == nil {
		_, err = server.Start(context.Background(), server.Config{Settings: s, Version: "test",
			Log: slog.New(slog.NewTextHandler(os.Stdout, nil)), LogTail: bundle.NewTail(1)})
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	select {}
}

// startChild starts a control plane of the cluster, and returns when it is ready.
func (c *cluster) startChild(t *testing.T) *mesh.Plane {
	t.Helper()
	dir := t.TempDir()
	p, err := mesh.NewPlane(os.Args[0], dir, "child", childVariable+"=1", "KUMA_ENVIRONMENT=kubernetes",
		"KUMA_STORE_TYPE=kubernetes", "KUMA_STORE_KUBERNETES_SYSTEM_NAMESPACE="+c.namespace,
		"KUMA_GENERAL_DATA_DIR="+filepath.Join(dir, "data"),
		"KUMA_RUNTIME_KUBERNETES_LEADER_ELECTION_LEASE_DURATION="+leaseDuration.String(),
		"KUMA_RUNTIME_KUBERNETES_LEADER_ELECTION_RENEW_DEADLINE="+renewDeadline.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		t.Log("child: " + p.LastLines(100))
		p.Kill()
	})
	if err := p.Run(testwait.Timeout); err != nil {
		t.Fatal(err)
	}
	return p
}

// Times of leases in tests. They are shorter than by default, and so long that a busy machine renews them.
const leaseDuration, renewDeadline = 12 * time.Second, 10 * time.Second

// replica are the options of a replica with short leases.
func (c *cluster) replica() servertest.Options {
	return c.options(map[string]string{
		"runtime.kubernetes.leaderElection.leaseDuration": leaseDuration.String(),
		"runtime.kubernetes.leaderElection.renewDeadline": renewDeadline.String()})
}

// cluster is an API server with the definitions, and a system namespace of the test.
type cluster struct {
	*kubetest.Server
	client    *api.Client
	namespace string
}

var clusters atomic.Int32

// newCluster returns the API server of the package. The resources of all kinds of cluster scope are removed before.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	server := kubetest.Start(t)
	client, err := api.New(server.Config())
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{server, client, fmt.Sprintf("system-%d", clusters.Add(1))}
	if err := crd.Install(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	c.addNamespace(t, c.namespace)
	for _, d := range crd.Kinds() { // of an earlier test
		var found struct {
			Items []struct {
				Metadata struct{ Name, Namespace string }
			}
		}
		c.read(t, "/apis/kuma.io/v1alpha1/"+crd.Plural(d.Describe()), &found)
		for _, item := range found.Items {
			path := crd.Path(d, item.Metadata.Namespace) + "/" + item.Metadata.Name
			if err := client.Delete(t.Context(), path, "", ""); err != nil {
				t.Fatal(err)
			}
		}
	}
	return c
}

func (c *cluster) addNamespace(t *testing.T, name string) {
	t.Helper()
	c.create(t, "/api/v1/namespaces", map[string]any{"apiVersion": "v1", "kind": "Namespace",
		"metadata": map[string]any{"name": name}})
}

func (c *cluster) create(t *testing.T, path string, object any) {
	t.Helper()
	if err := c.client.Create(t.Context(), path, object, nil); err != nil {
		t.Fatal(err)
	}
}

// kubeconfig writes a kubeconfig, and has the process use it.
func (c *cluster) kubeconfig(t *testing.T, token string) {
	t.Helper()
	c.kubeconfigOf(t, c.Config().Host, c.Config().CAFile, token)
}

// kubeconfigOf is kubeconfig for a server at another address.
func (c *cluster) kubeconfigOf(t *testing.T, host, caFile, token string) {
	t.Helper()
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "test",
		"clusters": []any{map[string]any{"name": "test", "cluster": map[string]any{"server": host,
			"certificate-authority": caFile}}},
		"users":    []any{map[string]any{"name": "test", "user": map[string]any{"token": token}}},
		"contexts": []any{map[string]any{"name": "test", "context": map[string]any{"cluster": "test", "user": "test"}}},
	})
	path := filepath.Join(t.TempDir(), "config")
	if err == nil {
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", path)
}

// options are the settings of a control plane on the cluster.
func (c *cluster) options(more map[string]string) servertest.Options {
	values := map[string]string{"environment": "kubernetes", "store.type": "kubernetes",
		"store.kubernetes.systemNamespace": c.namespace}
	maps.Copy(values, more)
	return servertest.Options{Settings: values}
}

// read reads an object into fields.
func (c *cluster) read(t *testing.T, path string, into any) {
	t.Helper()
	if err := c.client.Get(t.Context(), path, nil, into); err != nil {
		t.Fatal(err)
	}
}

// TestKubernetesStore: a control plane whose store is the API server serves REST, and names its resources by object
// and namespace. A later start finds what is stored.
func TestKubernetesStore(t *testing.T) {
	c := newCluster(t)
	c.kubeconfig(t, c.Config().BearerToken)
	c.addNamespace(t, "shop")
	p := servertest.Start(t, c.options(nil))
	apply(t, p, `{type: MeshService, mesh: default, name: web.shop, spec: {selector: {dataplaneTags: `+
		`{kuma.io/service: web}}, ports: [{port: 80, appProtocol: http}]}}`)
	for _, want := range []string{`"name":"web.shop"`, `"kuma.io/display-name":"web"`, `"kuma.io/env":"kubernetes"`,
		`"k8s.kuma.io/namespace":"shop"`} {
		if got := read(t, p, "/meshes/default/meshservices/web.shop"); !strings.Contains(got, want) {
			t.Errorf("the resource lacks %s:\n%s", want, got)
		}
	}
	var object struct {
		Metadata struct{ Labels map[string]string }
	}
	c.read(t, "/apis/kuma.io/v1alpha1/namespaces/shop/meshservices/web", &object)
	if got := object.Metadata.Labels["kuma.io/env"]; got != "kubernetes" {
		t.Errorf("the object has the labels %v", object.Metadata.Labels)
	}
	generators := names(t, p, "/hostnamegenerators")
	if !slices.Contains(generators, "local-mesh-service."+c.namespace) {
		t.Errorf("the default host names are %q", generators)
	}
	config := read(t, p, "/config")
	if !strings.Contains(config, c.Config().Host) {
		t.Errorf("/config does not name the API server:\n%s", config)
	}
	token := adminToken(t, p)
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}

	again := servertest.Start(t, c.options(nil))
	if got := read(t, again, "/meshes/default/meshservices/web.shop"); !strings.Contains(got, `"name":"web.shop"`) {
		t.Errorf("after a restart: %s", got)
	}
	if adminToken(t, again) != token {
		t.Error("the second start made another administrator's token")
	}
}

// TestKubernetesIsNotReady: a start says what the API server lacks, and what to do.
func TestKubernetesIsNotReady(t *testing.T) {
	c := newCluster(t)
	fails := func(t *testing.T, c *cluster, want ...string) {
		t.Helper()
		err := servertest.TryStart(t, c.options(nil))
		if err == nil {
			t.Fatal("it starts")
		}
		for _, want := range want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("the error lacks %q:\n%v", want, err)
			}
		}
	}
	t.Run("no API server", func(t *testing.T) {
		t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "absent"))
		fails(t, c, "no API server of Kubernetes is known", "absent", "KUBECONFIG")
	})
	t.Run("no namespace", func(t *testing.T) {
		c.kubeconfig(t, c.Config().BearerToken)
		fails(t, &cluster{c.Server, c.client, "nowhere"}, "the system namespace nowhere does not exist",
			"kubectl create namespace nowhere", "KUMA_STORE_KUBERNETES_SYSTEM_NAMESPACE")
	})
	t.Run("no permissions", func(t *testing.T) {
		c.kubeconfig(t, c.account(t, "powerless"))
		fails(t, c, "system:serviceaccount:"+c.namespace+":powerless may not", "create, update, delete",
			"meshes.kuma.io", "secrets in the namespace "+c.namespace, "endpointslices.discovery.k8s.io",
			"configmaps kuma-control-plane-ca", "docs/kubernetes.md")
	})
	t.Run("no definition", func(t *testing.T) {
		c.kubeconfig(t, c.Config().BearerToken)
		const path = crd.Definitions + "/meshretries.kuma.io"
		if err := c.client.Delete(t.Context(), path, "", ""); err != nil {
			t.Fatal(err)
		}
		testwait.UntilTrue(t, "the definition is gone", func() bool {
			return c.client.Get(t.Context(), path, nil, nil) != nil
		})
		testwait.UntilTrue(t, "it is not served", func() bool {
			err := servertest.TryStart(t, c.options(nil))
			return err != nil && strings.Contains(err.Error(), "meshretries.kuma.io")
		})
		fails(t, c, "no definition of meshretries.kuma.io", "weft install crds | kubectl apply --server-side -f -")
	})
}

// account creates a service account of the system namespace, and returns a token of it.
func (c *cluster) account(t *testing.T, name string) string {
	t.Helper()
	accounts := "/api/v1/namespaces/" + c.namespace + "/serviceaccounts"
	c.create(t, accounts, map[string]any{"apiVersion": "v1", "kind": "ServiceAccount",
		"metadata": map[string]any{"name": name}})
	return c.token(t, name)
}

// token returns a token of a service account of the system namespace.
func (c *cluster) token(t *testing.T, name string) string {
	t.Helper()
	accounts := "/api/v1/namespaces/" + c.namespace + "/serviceaccounts"
	var token struct{ Status struct{ Token string } }
	if err := c.client.Create(t.Context(), accounts+"/"+name+"/token", map[string]any{
		"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": map[string]any{},
	}, &token); err != nil {
		t.Fatal(err)
	}
	return token.Status.Token
}

// redirected makes a Dataplane reach every service.
const redirected = `transparentProxying: {redirectPortInbound: 15006, redirectPortOutbound: 15001}`

// holder returns the instance that leads by the Lease of the leadership.
func (c *cluster) holder(t *testing.T) string {
	t.Helper()
	var lease struct {
		Spec struct{ HolderIdentity string }
	}
	c.read(t, "/apis/coordination.k8s.io/v1/namespaces/"+c.namespace+"/leases/cp-leader-lease", &lease)
	return lease.Spec.HolderIdentity
}

func instanceOf(t *testing.T, admin *client.Client) string {
	t.Helper()
	var index struct{ InstanceID string }
	if err := admin.Get(t.Context(), "/", nil, &index); err != nil {
		t.Fatal(err)
	}
	return index.InstanceID
}

// TestKubernetesLeadership: one replica leads, and holds the Lease. Another one leads after it stopped, and after it
// was killed.
func TestKubernetesLeadership(t *testing.T) {
	c := newCluster(t)
	c.kubeconfig(t, c.Config().BearerToken)
	first := servertest.Start(t, c.replica())
	testwait.UntilTrue(t, "the only replica leads", first.Leads)
	second := c.startChild(t)
	if got, want := c.holder(t), instanceOf(t, first.Admin); got != want {
		t.Errorf("the holder is %s with two replicas, want the first, %s", got, want)
	}
	host, _ := os.Hostname()
	if label, _, _ := strings.Cut(strings.ToLower(host), "."); !strings.HasPrefix(c.holder(t), label+"-") {
		t.Errorf("the holder is %s, on the host %s", c.holder(t), host)
	}
	began := time.Now()
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	testwait.UntilTrue(t, "the second leads", func() bool { return c.holder(t) == instanceOf(t, second.Admin) })
	t.Logf("another replica leads %s after SIGTERM", time.Since(began))

	third := servertest.Start(t, c.replica())
	if third.Leads() {
		t.Error("a third replica leads beside the second")
	}
	began = time.Now()
	second.Kill()
	testwait.UntilTrue(t, "the third leads", third.Leads)
	t.Logf("another replica leads %s after a kill", time.Since(began))
	if got := c.holder(t); got != instanceOf(t, third.Admin) {
		t.Errorf("the holder is %s", got)
	}
}

// TestKubernetesOutage: while the API server is away for longer than the leases, no two replicas lead, and proxies keep
// their endpoints. One leads, and writes work, when it is back. The log of each has one warning about it.
func TestKubernetesOutage(t *testing.T) {
	c := newCluster(t)
	c.kubeconfig(t, c.Config().BearerToken)
	c.addNamespace(t, "outage")
	planes := []*servertest.Plane{servertest.Start(t, c.replica()), servertest.Start(t, c.replica())}
	leaders := func() (n int) {
		for _, p := range planes {
			if p.Leads() {
				n++
			}
		}
		return n
	}
	const server = `{type: Dataplane, mesh: default, name: web-%d.outage, networking: {address: 10.0.0.%d, inbound: ` +
		`[{port: 8080, tags: {kuma.io/service: web}}], ` + redirected + `}}`
	apply(t, planes[0], fmt.Sprintf(server, 1, 1)+"\n---\n"+`{type: MeshService, mesh: default, name: web.outage, spec: `+
		`{selector: {dataplaneTags: {kuma.io/service: web}}, ports: [{port: 80, targetPort: 8080, appProtocol: http}]}}`)
	apply(t, planes[0], `{type: Dataplane, mesh: default, name: client-1.outage, networking: {address: 10.0.0.9, `+
		redirected+`}}`)
	proxies := []*proxy{connect(t, planes[0], "default.web-1.outage"), connect(t, planes[1], "default.client-1.outage")}
	for _, proxy := range proxies {
		proxy.await(t, "10.0.0.1")
	}
	testwait.UntilTrue(t, "one replica leads", func() bool { return leaders() == 1 })

	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		for tick := time.NewTicker(time.Millisecond); ; {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			if n := leaders(); n > 1 {
				t.Errorf("%d replicas lead", n)
				return
			}
		}
	})
	c.StopAPI()
	testwait.UntilTrue(t, "no replica leads without the API server", func() bool { return leaders() == 0 })
	testwait.Pass(leaseDuration, "the leases expire")
	c.StartAPI(t)
	testwait.UntilTrue(t, "one replica leads again", func() bool { return leaders() == 1 })
	testwait.UntilTrue(t, "a write works again", func() bool {
		written, err := kind.Parse([]byte(fmt.Sprintf(server, 2, 2)))
		if err != nil {
			t.Fatal(err)
		}
		_, err = planes[1].Admin.Put(t.Context(), written.Object, kind.Dataplanes)
		return err == nil
	})
	connect(t, planes[1], "default.web-2.outage").await(t, "10.0.0.2") // it serves once it is connected
	for _, proxy := range proxies {
		proxy.await(t, "10.0.0.2")
	}
	close(done)
	watching.Wait()
	for _, proxy := range proxies {
		proxy.check(t)
	}
	for _, p := range planes {
		for line, want := range map[string]int{"the API server of Kubernetes does not respond": 1,
			"the API server of Kubernetes responds again": 1, "are not followed": 0, "a watch failed": 0} {
			testwait.UntilTrue(t, fmt.Sprintf("the log has %d times %q", want, line), func() bool {
				return strings.Count(p.Log(), line) == want
			})
		}
	}
}

// TestKubernetesAtRest: a control plane with a connected proxy that changes nothing writes its Lease alone.
func TestKubernetesAtRest(t *testing.T) {
	c := newCluster(t)
	c.kubeconfig(t, c.Config().BearerToken)
	c.addNamespace(t, "rest")
	p := servertest.Start(t, c.options(nil))
	apply(t, p, `{type: Dataplane, mesh: default, name: web-1.rest, networking: {address: 10.0.0.1, inbound: `+
		`[{port: 8080, tags: {kuma.io/service: web}}], `+redirected+`}}`+"\n---\n"+
		`{type: MeshService, mesh: default, name: web.rest, `+
		`spec: {selector: {dataplaneTags: {kuma.io/service: web}}, ports: [{port: 80, targetPort: 8080}]}}`)
	connect(t, p, "default.web-1.rest").await(t, "10.0.0.1")
	testwait.UntilTrue(t, "it leads", p.Leads)
	// The writes that follow the connection come to an end.
	testwait.Until(t, "the control plane writes its Leases alone", func() error {
		before, began := c.writes(t), time.Now()
		testwait.Pass(20*time.Second, "the control plane is at rest")
		for resource, n := range c.writes(t) {
			period := time.Since(began)
			// A control plane renews its Lease each 5 s, and the API server itself each 10 s.
			most := float64(2 + period/(5*time.Second) + period/(10*time.Second))
			switch n -= before[resource]; {
			case resource == "leases" && n > most:
				return fmt.Errorf("%v writes of Leases within %s, want %v at most", n, period, most)
			case resource == "leases":
				t.Logf("%v writes of Leases within %s", n, period)
			case n > 0:
				return fmt.Errorf("%v writes of %s within %s, want none", n, resource, period)
			}
		}
		return nil
	})
}

// writes returns the number of writes that the API server has stored, by resource.
func (c *cluster) writes(t *testing.T) map[string]float64 {
	t.Helper()
	client, err := rest.HTTPClientFor(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Get(c.Config().Host + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	counted := map[string]float64{}
	line := regexp.MustCompile(`(?m)^apiserver_request_total\{code="2.*,resource="([^"]*)".*` +
		`verb="(POST|PUT|PATCH|DELETE|APPLY)".*\} (.*)$`)
	for _, m := range line.FindAllStringSubmatch(string(text), -1) {
		n, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(m[1], "reviews") {
			counted[m[1]] += n
		}
	}
	return counted
}

// proxy is a simulated Envoy that has clusters and their endpoints.
type proxy struct {
	mu        sync.Mutex
	endpoints map[string][]string // addresses by assignment
	problem   string
	received  []receivedList // all endpoint lists, in their order
}

// connect connects a proxy over xDS until the end of the test.
func connect(t *testing.T, p *servertest.Plane, node string) *proxy {
	t.Helper()
	return connectAs(t, p, node, dataplaneToken(t, p))
}

// dataplaneToken returns a dataplane token of the mesh default.
func dataplaneToken(t *testing.T, p *servertest.Plane) string {
	t.Helper()
	token, err := mesh.ProxyToken(t.Context(), p.Admin, "default", "dataplane")
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// connectAs is connect with a token.
func connectAs(t *testing.T, p *servertest.Plane, node, token string) *proxy {
	t.Helper()
	conn, ctx := mesh.Dial(t, p.DataPlane), mesh.TokenContext(t.Context(), token)
	connected := &proxy{endpoints: map[string][]string{}}
	go func() {
		err := connected.run(ctx, conn, node)
		for status.Code(err) == codes.NotFound { // the replica has not read the Dataplane yet
			testwait.Pass(50*time.Millisecond, "the replica reads")
			err = connected.run(ctx, conn, node)
		}
		if t.Context().Err() == nil {
			connected.fail("the stream ended: " + err.Error())
		}
	}()
	return connected
}

// run runs one stream until it ends.
func (p *proxy) run(ctx context.Context, conn *grpc.ClientConn, node string) error {
	stream, err := mesh.OpenStream(ctx, conn, &corev3.Node{Id: node}, xds.Cluster)
	if err != nil {
		return err
	}
	for {
		response, err := stream.Recv()
		if err != nil {
			return err
		}
		if err := stream.Ack(response); err != nil {
			return err
		}
		var names []string
		for _, r := range response.Resources {
			switch response.TypeUrl {
			case xds.Cluster.URL():
				var cluster clusterv3.Cluster
				if err := r.Resource.UnmarshalTo(&cluster); err != nil {
					return err
				}
				if eds := cluster.EdsClusterConfig; eds != nil {
					names = append(names, cmp.Or(eds.ServiceName, r.Name))
				}
			case xds.Endpoint.URL():
				if err := p.assign(r); err != nil {
					return err
				}
			}
		}
		if response.TypeUrl == xds.Endpoint.URL() && len(response.RemovedResources) > 0 {
			p.fail(fmt.Sprintf("endpoint lists were removed: %q", response.RemovedResources))
		}
		if response.TypeUrl != xds.Cluster.URL() {
			continue
		}
		if err := errors.Join(stream.Subscribe(xds.Endpoint, names...), stream.Subscribe(xds.Listener)); err != nil {
			return err
		}
	}
}

// assign records an endpoint list. A list that becomes empty is a problem.
func (p *proxy) assign(r *discoveryv3.Resource) error {
	var assignment endpointv3.ClusterLoadAssignment
	if err := r.Resource.UnmarshalTo(&assignment); err != nil {
		return err
	}
	var addresses []string
	for _, locality := range assignment.Endpoints {
		for _, e := range locality.LbEndpoints {
			addresses = append(addresses, e.GetEndpoint().Address.GetSocketAddress().Address)
		}
	}
	p.mu.Lock()
	p.received = append(p.received, receivedList{r.Name, addresses})
	had := len(p.endpoints[r.Name])
	p.endpoints[r.Name] = addresses
	p.mu.Unlock()
	if had > 0 && len(addresses) == 0 {
		p.fail("the endpoint list " + r.Name + " became empty")
	}
	return nil
}

func (p *proxy) fail(problem string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.problem = cmp.Or(p.problem, problem)
}

// await waits until an endpoint list has an address.
func (p *proxy) await(t *testing.T, address string) {
	t.Helper()
	testwait.UntilTrue(t, "an endpoint list has "+address, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, addresses := range p.endpoints {
			if slices.Contains(addresses, address) {
				return true
			}
		}
		return p.problem != ""
	})
	p.check(t)
}

// check fails if an endpoint list became empty, or the stream ended.
func (p *proxy) check(t *testing.T) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.problem != "" {
		t.Fatal(p.problem)
	}
}

// TestMTLSOfAMeshOnKubernetes: the CA of a mesh that is written with kubectl signs. Its MeshTrust is the object
// mesh.mtls of the system namespace, also where the cluster has a namespace mtls with an object mesh.
func TestMTLSOfAMeshOnKubernetes(t *testing.T) {
	c := newCluster(t)
	c.kubeconfig(t, c.Config().BearerToken)
	c.addNamespace(t, "mtls")
	p := servertest.Start(t, c.options(nil))
	c.create(t, "/apis/kuma.io/v1alpha1/meshes", map[string]any{"apiVersion": "kuma.io/v1alpha1", "kind": "Mesh",
		"metadata": map[string]any{"name": "secured", "labels": map[string]any{ // as the webhook writes them
			"kuma.io/origin": "zone", "kuma.io/zone": "default"}}, "spec": map[string]any{"mtls": map[string]any{
			"enabledBackend": "ca-1", "backends": []any{map[string]any{"name": "ca-1", "type": "builtin"}}}}})
	c.awaitMTLS(t, "secured")
	if got := read(t, p, "/meshes/secured/meshtrusts/mesh.mtls"); !strings.Contains(got, "BEGIN CERTIFICATE") {
		t.Errorf("the MeshTrust is %s", got)
	}
	if got := read(t, p, "/_check"); strings.Contains(got, "own-write-failed") {
		t.Errorf("a write of the control plane fails: %s", got)
	}
	misplaced := map[string]any{"apiVersion": "kuma.io/v1alpha1", "kind": "MeshTrust",
		"metadata": map[string]any{"name": "mesh", "labels": map[string]any{"kuma.io/mesh": "secured"}},
		"spec": map[string]any{"trustDomain": "other", "caBundles": []any{map[string]any{"type": "Pem",
			"pem": map[string]any{"value": "none"}}}}}
	c.create(t, "/apis/kuma.io/v1alpha1/namespaces/mtls/meshtrusts", misplaced) // without the webhook
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	again := servertest.Start(t, c.options(nil))
	if got := read(t, again, "/meshes/secured/meshtrusts/mesh.mtls"); !strings.Contains(got, "BEGIN CERTIFICATE") {
		t.Errorf("beside an object mesh of the namespace mtls, the MeshTrust is %s", got)
	}
}

// awaitMTLS waits until the CA of a mesh signs, and the API server has the MeshTrust of it.
func (c *cluster) awaitMTLS(t *testing.T, mesh string) {
	t.Helper()
	testwait.Until(t, "the CA of the mesh signs", func() error {
		var found struct {
			Status struct{ Conditions []kind.Condition }
		}
		c.read(t, "/apis/kuma.io/v1alpha1/meshes/"+mesh, &found)
		for _, condition := range found.Status.Conditions {
			if condition.Type == "Ready" && condition.Status == "True" {
				return nil
			}
		}
		return fmt.Errorf("its conditions are %+v", found.Status.Conditions)
	})
	var trust struct {
		Metadata struct{ Labels map[string]string }
	}
	c.read(t, "/apis/kuma.io/v1alpha1/namespaces/"+c.namespace+"/meshtrusts/mesh.mtls."+mesh, &trust)
	if trust.Metadata.Labels["kuma.io/mesh"] != mesh {
		t.Errorf("the MeshTrust has the labels %v", trust.Metadata.Labels)
	}
}
