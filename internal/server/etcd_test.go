package server_test

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weft/internal/kube/crd"
	"weft/internal/server/servertest"
	"weft/internal/testwait"
	"weft/kind"
)

// restored restores etcd from a backup that is older than the last renewal of a Lease, while a control plane runs on
// the cluster, and returns after the control plane has ended.
func (c *cluster) restored(t *testing.T, backup string, p *servertest.Plane) {
	t.Helper()
	lease := func() string {
		var lease struct{ Spec struct{ RenewTime string } }
		c.read(t, "/apis/coordination.k8s.io/v1/namespaces/"+c.namespace+"/leases/weft-"+instanceOf(t, p.Admin), &lease)
		return lease.Spec.RenewTime
	}
	before := lease()
	testwait.UntilTrue(t, "the Lease is renewed after the backup", func() bool { return lease() != before })
	if err := c.RestoreEtcd(backup); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- p.Ended() }()
	err := testwait.Receive(t, "the control plane ends, whose API server has an earlier state", ended)
	if err == nil || !strings.Contains(err.Error(), "its etcd was restored from a backup") {
		t.Fatalf("the control plane ended with %v", err)
	}
}

const namedTimeout = `{type: MeshTimeout, mesh: default, name: %s, spec: {targetRef: {kind: Mesh}, to: ` +
	`[{targetRef: {kind: Mesh}, default: {connectionTimeout: %s}}]}}`

// TestRestoredZone: a zone's control plane ends when the API server has an earlier state, sends its proxies nothing of
// it, and serves it after its next start. No endpoint list becomes empty.
func TestRestoredZone(t *testing.T) {
	c := newCluster(t)
	c.kubeconfig(t, c.Config().BearerToken)
	c.addNamespace(t, "restored")
	options := c.replica()
	options.Settings["general.dataDir"] = t.TempDir()
	p := servertest.Start(t, options)
	const server = `{type: Dataplane, mesh: default, name: web-%[1]d.restored, networking: {address: 10.0.0.%[1]d, ` +
		`inbound: [{port: 8080, tags: {kuma.io/service: web}}], ` + redirected + `}}`
	apply(t, p, fmt.Sprintf(server, 1)+"\n---\n"+`{type: MeshService, mesh: default, name: web.restored, spec: `+
		`{selector: {dataplaneTags: {kuma.io/service: web}}, ports: [{port: 80, targetPort: 8080}]}}`+"\n---\n"+
		fmt.Sprintf(namedTimeout, "slow.restored", "3s"))
	connect(t, p, "default.web-1.restored").await(t, "10.0.0.1")
	backup := filepath.Join(t.TempDir(), "etcd")
	if err := c.SaveEtcd(backup); err != nil {
		t.Fatal(err)
	}
	apply(t, p, fmt.Sprintf(server, 2)+"\n---\n"+fmt.Sprintf(namedTimeout, "slow.restored", "4s")+"\n---\n"+
		fmt.Sprintf(namedTimeout, "later.restored", "4s"))
	connected := connect(t, p, "default.web-2.restored")
	connected.await(t, "10.0.0.2")
	c.restored(t, backup, p)
	testwait.UntilTrue(t, "the stream has ended", func() bool {
		connected.mu.Lock()
		defer connected.mu.Unlock()
		return connected.problem != ""
	})
	if !strings.HasPrefix(connected.problem, "the stream ended") {
		t.Error(connected.problem)
	}

	again := servertest.Start(t, options)
	policies := read(t, again, "/meshes/default/meshtimeouts")
	if !strings.Contains(policies, "3s") || strings.Contains(policies, "4s") {
		t.Errorf("the policies are %s", policies)
	}
	apply(t, again, fmt.Sprintf(server, 3))
	former := connect(t, again, "default.web-1.restored")
	former.await(t, "10.0.0.1")
	connect(t, again, "default.web-3.restored").await(t, "10.0.0.3")
	former.await(t, "10.0.0.3")
	former.mu.Lock()
	defer former.mu.Unlock()
	if text := fmt.Sprint(former.received); strings.Contains(text, "10.0.0.2") {
		t.Errorf("an endpoint list has the address of a Dataplane that is not stored: %s", text)
	}
}

// TestRestoredGlobal: a global control plane whose API server has an earlier state ends and starts again. It then gets
// what zones have written since from them, and deletes none of it in other zones. Resources of global are everywhere as
// they were. The zones reconnect with their tokens.
func TestRestoredGlobal(t *testing.T) {
	c := newCluster(t)
	c.kubeconfig(t, c.Config().BearerToken)
	options := c.replica()
	values := options.Settings
	values["mode"], values["general.dataDir"] = "global", t.TempDir()
	global := servertest.Start(t, options)
	_, port, err := net.SplitHostPort(global.Zones)
	if err != nil {
		t.Fatal(err)
	}
	values["multizone.global.kds.grpcPort"] = port
	west := servertest.Start(t, universal(joins(t, global, "west")))
	east := servertest.Start(t, universal(joins(t, global, "east")))
	const service = `{type: MeshService, mesh: default, name: %s, spec: {selector: {dataplaneTags: {kuma.io/service: ` +
		`web}}, ports: [{port: 80, appProtocol: http}]}}`
	path := func(name string) string {
		return "/meshes/default/meshservices/" + copied(kind.MeshServices, "default", name, "west")
	}
	policy := func(name string) string {
		return "/meshes/default/meshtimeouts/" + copied(kind.MeshTimeouts, "default", name+"."+c.namespace, "")
	}
	apply(t, global, fmt.Sprintf(namedTimeout, "slow."+c.namespace, "3s"))
	awaitRead(t, west, "/meshes/default", "default")
	apply(t, west, fmt.Sprintf(service, "before"))
	awaitRead(t, east, path("before"), "web")
	awaitRead(t, east, policy("slow"), "3s")
	backup := filepath.Join(t.TempDir(), "etcd")
	if err := c.SaveEtcd(backup); err != nil {
		t.Fatal(err)
	}
	apply(t, global, fmt.Sprintf(namedTimeout, "slow."+c.namespace, "4s")+"\n---\n"+
		fmt.Sprintf(namedTimeout, "later."+c.namespace, "4s"))
	apply(t, west, fmt.Sprintf(service, "after"))
	awaitRead(t, east, path("after"), "web")
	awaitRead(t, west, policy("slow"), "4s")
	awaitRead(t, west, policy("later"), "4s")

	lost := make(chan string, 1)
	stop := make(chan struct{})
	go func() {
		defer close(lost)
		for tick := time.NewTicker(time.Millisecond); ; {
			for _, name := range []string{"before", "after"} {
				if err := east.Admin.Get(t.Context(), path(name), nil, new([]byte)); err != nil {
					lost <- fmt.Sprintf("east lost %s of west: %v", name, err)
					return
				}
			}
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
	}()
	c.restored(t, backup, global)
	again := servertest.Start(t, options)
	for _, name := range []string{"before", "after"} {
		awaitRead(t, again, path(name), `"kuma.io/zone":"west"`)
		c.reads(t, crd.Path(kind.MeshServices, c.namespace)+"/"+copied(kind.MeshServices, "default", name, "west"),
			"kuma.io/zone:west")
	}
	for _, zone := range []*servertest.Plane{west, east} {
		awaitRead(t, zone, policy("slow"), "3s")
		testwait.UntilTrue(t, "what global does not have any more is gone", func() bool {
			return zone.Admin.Get(t.Context(), policy("later"), nil, new([]byte)) != nil
		})
	}
	apply(t, again, fmt.Sprintf(namedTimeout, "new."+c.namespace, "5s"))
	apply(t, west, fmt.Sprintf(service, "new"))
	awaitRead(t, east, policy("new"), "5s")
	awaitRead(t, east, path("new"), "web")
	close(stop)
	if problem, failed := <-lost; failed {
		t.Error(problem)
	}
}
