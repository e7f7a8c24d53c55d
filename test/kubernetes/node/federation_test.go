package node_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"weft/internal/process"
	"weft/test/kubernetes/shop"
	"weft/test/network"
)

// Addresses of the control planes' APIs.
const (
	globalAPI   = "http://127.0.0.1:5681"
	machinesAPI = "http://127.0.0.1:15681"
	clusterAPI  = "kubernetes:"
)

// federation is a global control plane for several zones, which runs beside the cluster of the world.
type federation struct {
	*world
	whole    *testing.T // beside that of a subtest
	dir      string
	global   *process.Process
	resolver *network.Resolver // of all zones
	// spire issues the certificates of zone proxies and machines, whose mesh is "spire"; nil: their mesh is "default".
	spire *spire

	balancers int // the number of load balancers that were started
}

// meshName is the name of the mesh of zone proxies and machines.
func (f *federation) meshName() string {
	if f.spire != nil {
		return "spire"
	}
	return "default"
}

// of returns manifests of the mesh default as those of this mesh.
func (f *federation) of(manifests string) string {
	if f.spire != nil {
		return ofSPIRE(manifests)
	}
	return manifests
}

// startGlobal starts global until the end of the test.
func (w *world) startGlobal() *federation {
	w.t.Helper()
	f := &federation{world: w, whole: w.t, dir: w.t.TempDir()}
	w.address(globalMachine)
	socket, err := net.ListenPacket("udp", resolverAddress)
	f.must(err)
	f.resolver = network.StartResolver(socket)
	w.t.Cleanup(f.resolver.Stop)
	f.global = f.program("global", shop.Weft(), "cp", "run", "--mode", "global", "--data-dir", f.path("global/data"))
	f.awaitAPI(globalAPI)
	return f
}

// token generates the token of a zone's control plane, and returns the file with it.
func (f *federation) token(zone string) string {
	f.t.Helper()
	return f.file(zone+".token", f.weft(globalAPI, "generate", "zone-token", "--zone", zone, "--scope", "cp"))
}

// address adds an address of a machine to the network of the node. A former test may have added it.
func (w *world) address(address string) {
	w.t.Helper()
	if err := exec.Command("ip", "address", "replace", address+"/32", "dev", "lo").Run(); err != nil {
		w.t.Fatal(err)
	}
}

func (f *federation) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *federation) path(name string) string { return filepath.Join(f.dir, name) }

// file writes a file, and returns its path.
func (f *federation) file(name, content string) string {
	f.t.Helper()
	f.must(os.WriteFile(f.path(name), []byte(content), 0o600))
	return f.path(name)
}

// program starts a program whose files are in a folder of its own, until the end of the test.
func (f *federation) program(name, path string, args ...string) *process.Process {
	f.t.Helper()
	f.must(os.MkdirAll(f.path(name), 0o755))
	p, err := process.Start(f.path(name), name, append([]string{path}, args...)...)
	f.must(err)
	f.whole.Cleanup(func() {
		p.Kill()
		if log, err := os.ReadFile(p.Log); f.whole.Failed() && err == nil {
			f.whole.Logf("%s:\n%s", name, log[max(0, len(log)-4000):])
		}
	})
	return p
}

// weft runs weft against the API of a control plane, and returns its output.
func (f *federation) weft(api string, args ...string) string {
	f.t.Helper()
	out, err := shop.RunWeft(f.t.Context(), f.Node, append([]string{"--api", api}, args...)...)
	f.must(err)
	return strings.TrimSpace(out)
}

func (f *federation) put(api, name, documents string) {
	f.t.Helper()
	f.weft(api, "apply", "-f", f.file(name+".yaml", documents))
}

func (f *federation) awaitAPI(api string) {
	f.t.Helper()
	f.eventually(api+" responds", func(ctx context.Context) error {
		_, err := shop.RunWeft(ctx, f.Node, "--api", api, "get", "meshes")
		return err
	})
}

// access gives a cluster the token of a zone, and the CA of global.
func (f *federation) access(w *world, zone string) {
	f.t.Helper()
	for name, file := range map[string]string{"zone-token": "token=" + f.token(zone),
		"global-ca": "ca.crt=" + f.path("global/data/ca.crt")} {
		w.apply(w.kubectl("create", "secret", "generic", name, "-n", "kuma-system", "--from-file", file,
			"--dry-run=client", "-o", "yaml"))
	}
}

// joinCluster installs the control plane of a cluster as a zone of global, with zone proxies. The cluster brings no
// service of a former test along: a service of several zones takes the namespace of the oldest one.
func (f *federation) joinCluster(w *world, values ...string) {
	f.t.Helper()
	w.awaitDeletions()
	const mount = "/var/run/secrets/kuma.io/zone-token"
	if f.spire != nil {
		values = append(values, byHostPath...)
	}
	f.must(shop.InstallControlPlane(f.t.Context(), w.Node, append([]string{
		shop.Small, "controlPlane.kdsGlobalAddress=grpcs://" + globalMachine + ":5685",
		"controlPlane.tls.kdsZoneClient.secretName=global-ca",
		"controlPlane.extraSecrets.token.name=zone-token", "controlPlane.extraSecrets.token.mountPath=" + mount,
		"controlPlane.envVars.KUMA_MULTIZONE_ZONE_KDS_AUTH_CP_TOKEN_PATH=" + mount + "/token",
		"controlPlane.envVars.KUMA_HOST_NAMES_RESOLVERS=" + resolverAddress,
		"controlPlane.envVars.KUMA_HOST_NAMES_DRAIN_TIME=" + drainTime,
		"meshes[0].name=" + f.meshName(), "meshes[0].ingress.enabled=true", "meshes[0].egress.enabled=true",
	}, values...)...))
	for _, name := range []string{"control-plane", f.meshName() + "-ingress", f.meshName() + "-egress"} {
		w.kubectl("rollout", "status", "deployment/kuma-"+name, "-n", "kuma-system", "--timeout", "3m")
	}
}

// nodePort is the value of the chart by which other zones dial the ingress at the Node, and loadBalancer the one by
// which they dial the load balancer of its Service.
const (
	nodePort     = "meshes[0].ingress.service.type=NodePort"
	loadBalancer = "meshes[0].ingress.service.type=LoadBalancer"
)

// restoreAlone has the cluster run alone again at the end of the test, without zone proxies, with values of the chart.
func (w *world) restoreAlone(values ...string) {
	w.restore(values...)
	w.t.Cleanup(func() { // before that
		_, err := w.Kubectl(context.Background(), "", "delete", "deployment", "-n", "kuma-system", "--ignore-not-found",
			"kuma-default-ingress", "kuma-default-egress", "kuma-spire-ingress", "kuma-spire-egress")
		if err != nil {
			w.t.Error(err)
		}
	})
}

// run runs a subtest, whose failure ends this subtest alone. Programs that it starts go on until the end of the test.
func (f *federation) run(name string, subtest func()) {
	f.whole.Run(name, func(t *testing.T) {
		of := *f.world
		whole := f.world
		of.t = t
		f.in(&of)
		defer f.in(whole)
		subtest()
	})
}

// in has the helpers fail the test of a world.
func (f *federation) in(w *world) {
	f.world = w
	if f.spire != nil {
		f.spire.world = w
	}
}
