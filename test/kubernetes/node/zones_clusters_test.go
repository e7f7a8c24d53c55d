package node_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"weft/test/kubernetes/node"
	"weft/test/kubernetes/shop"
)

// secondCluster is the cluster beside that of all tests, once a test has started it.
var secondCluster *node.Node

// beside returns a cluster beside this one, which the first test that needs it starts. It ends with this one.
func (w *world) beside() *world {
	w.t.Helper()
	if secondCluster == nil {
		began := time.Now()
		started, err := w.StartCluster(w.t.Context())
		if err != nil {
			w.t.Fatal(err)
		}
		secondCluster = started
		w.t.Logf("a second cluster is ready after %.1f s", time.Since(began).Seconds())
	}
	east := &world{secondCluster, w.t}
	east.apply("{apiVersion: v1, kind: Namespace, metadata: {name: kuma-system}}")
	return east
}

// TestClusters: two clusters are zones of a global control plane, and reach each other by the NodePorts of their zone
// ingresses. Pods of both talk mTLS, no request fails while one of them promotes Pods or loses its servers, and an
// operator with one kubeconfig reaches both control planes.
func TestClusters(t *testing.T) {
	west := mesh(t)
	west.startArgo()
	east := west.beside()
	west.restoreAlone()
	f := west.startGlobal()
	const namespace = "clusters"
	ids := []string{"spiffe://default.default.mesh.local/ns/clusters/sa/client",
		"spiffe://default.east.mesh.local/ns/clusters/sa/client"}
	for zone, of := range map[string]*world{"default": west, "east": east} {
		f.access(of, zone)
		f.joinCluster(of, "controlPlane.zone="+zone, nodePort)
		of.apply(shop.Identity)
		of.namespace(namespace, "kuma.io/sidecar-injection=enabled")
		of.apply(clientOfEveryWeb(namespace, "client") + permission(namespace, ids...))
	}
	west.apply(shop.Rollout(namespace, "web", 2))
	east.apply(respondsAs("web-east", shop.Server(namespace, "web", 2)))
	f.put(globalAPI, "multi-zone", strings.ReplaceAll(multiZone, "NAME", "web"))
	west.wait("rollout/web", "jsonpath={.status.phase}=Healthy", "-n", namespace)
	east.wait("deployment/web", "condition=Available", "-n", namespace)

	client := map[*world]string{}
	for _, of := range []*world{west, east} {
		of.wait("pod/client", "condition=Ready", "-n", namespace)
		client[of] = of.podIP(namespace, "client")
	}
	toEast := fromPod(client[west], "http://web.clusters.svc.east.mesh.local").named("from west to east", ids[0],
		"web-east")
	toWest := fromPod(client[east], "http://web.clusters.svc.default.mesh.local").named("from east to west", ids[1],
		"web")
	const both = "http://web.mzsvc.mesh.local"
	westToBoth := fromPod(client[west], both).named("from west to both", ids[0], "web", "web-east")
	eastToBoth := fromPod(client[east], both).named("from east to both", ids[1], "web", "web-east")
	f.reached(toEast, toWest, westToBoth.by("web"), eastToBoth.by("web-east"))

	f.run("a promotion with clients in the other cluster", func() {
		s := &shop.Shop{Node: west.Node, Namespace: namespace}
		before := f.servers(s)
		f.losslessFlows("clusters: a promotion in the other cluster", []flow{toWest, westToBoth}, func() {
			f.promotions(s, "clusters", 1)
			f.reachedAnother(toWest, before)
		})
	})
	for _, d := range []struct {
		name       string
		of         *world
		object     string
		flows      []flow
		local      flow   // of a client in the cluster, to both
		other, own string // the servers of the other cluster, and of this one
	}{
		{"the cluster east loses its servers, and gets others", east, "deployment/web",
			[]flow{toWest, westToBoth, eastToBoth}, eastToBoth, "web", "web-east"},
		{"the cluster west loses its servers, and gets others", west, "rollout/web",
			[]flow{toEast, westToBoth, eastToBoth}, westToBoth, "web-east", "web"},
	} {
		f.run(d.name, func() {
			of := &world{d.of.Node, f.t}
			f.losslessFlows("clusters: "+d.name, d.flows, func() {
				of.scaleTo(d.object, namespace, 0)
				of.reached(d.local.by(d.other))
				of.scaleTo(d.object, namespace, 2)
				of.reached(d.local.by(d.own))
			})
		})
	}
	f.run("the load balancer of the cluster east has a host name, which moves, and gets another one", func() {
		flows := []flow{toEast, westToBoth}
		f.losslessFlows("clusters: the load balancer of the cluster east has a host name, which moves, and gets "+
			"another one", flows, func() {
			f.moveLoadBalancer(&world{east.Node, f.t}, "east", func(address string) {
				f.dialed(address, clusterAPI, "web.clusters", "--zone", "east")
			})
			f.reached(flows...)
		})
	})
	f.run("an operator with one kubeconfig", func() { f.operate(west, east) })
}

// operate runs the commands of an operator whose kubeconfig has a context for each cluster.
func (f *federation) operate(clusters ...*world) {
	f.t.Helper()
	rules := clientcmd.ClientConfigLoadingRules{}
	for _, of := range clusters {
		rules.Precedence = append(rules.Precedence, of.Kubeconfig())
	}
	config, err := rules.Load()
	f.must(err)
	f.must(clientcmd.WriteToFile(*config, f.path("kubeconfig")))
	change := f.file("slow.yaml", "{type: MeshTimeout, mesh: default, name: slow, spec: {to: [{targetRef: "+
		"{kind: Mesh}, default: {http: {requestTimeout: 9s}}}]}}")
	for i, of := range clusters {
		other := []string{"east", "default"}[i]
		for _, command := range []struct {
			args  []string
			check func(string) error
		}{
			{[]string{"explain", "--from", "client.clusters", "--to",
				"kri_msvc_default_" + other + "__web.clusters_80"}, contains("allowed")},
			{[]string{"inspect", "dataplanes"}, contains("client.clusters")},
			{[]string{"inspect", "service", "web.clusters"}, contains("web.clusters")},
			{[]string{"check"}, contains("")}, // a finding is an exit code
			{[]string{"diff", "-f", change}, contains("9s")},
		} {
			api := "kubernetes:" + of.Name()
			err := shop.Eventually(f.t.Context(), fmt.Sprint(api, command.args), func(ctx context.Context) error {
				out, err := shop.RunWeftBy(ctx, f.path("kubeconfig"),
					append([]string{"--api", api}, command.args...)...)
				if err != nil {
					return fmt.Errorf("%w\n%s", err, out)
				}
				return command.check(out)
			})
			if err != nil {
				f.t.Error(err)
			}
		}
	}
}
