package node_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weft/internal/process"
	"weft/kind"
	"weft/test/kubernetes/shop"
)

const (
	spireDomain = "weft.test"
	// spireNodes, with the name of a node, and spireMachines are the SPIFFE IDs of the agents of nodes and of the
	// machines.
	spireNodes    = "spiffe://" + spireDomain + "/nodes/"
	spireMachines = "spiffe://" + spireDomain + "/machines"
	// spireFolder is the folder of the node with the agent's socket.
	spireFolder = "/run/spire/agent"
)

// spireMesh is a mesh whose identities SPIRE provides.
const spireMesh = `
apiVersion: kuma.io/v1alpha1
kind: Mesh
metadata: {name: spire}
spec: {}
---
apiVersion: kuma.io/v1alpha1
kind: MeshIdentity
metadata: {name: spire, namespace: kuma-system, labels: {kuma.io/mesh: spire}}
` + spireIdentity

// spireIdentity states no socket: each zone has its own.
const spireIdentity = `
spec:
  selector: {dataplane: {matchLabels: {}}}
  spiffeID: {trustDomain: ` + spireDomain + `}
  provider: {type: Spire}
`

// byHostPath are the values of the chart by which sidecars and zone proxies have the socket of the agent, from a folder
// of the Node.
var byHostPath = []string{"dataPlane.spire.enabled=true", "dataPlane.spire.hostPath=" + spireFolder}

// spire is a SPIRE server with agents.
type spire struct {
	*world
	programs, dir string
	server        *process.Process
	agents        []*process.Process
}

// command runs a command of SPIRE's server, and returns its output.
func (s *spire) command(args ...string) (string, error) {
	out, err := exec.Command(filepath.Join(s.programs, "spire-server"),
		append(args, "-socketPath", s.dir+"/server.sock")...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("spire-server %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), err
}

// must runs a command of SPIRE's server, and returns its output.
func (s *spire) must(args ...string) string {
	s.t.Helper()
	out, err := s.command(args...)
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

// register gives the Pods of a ServiceAccount on the node a SPIFFE ID.
func (s *spire) register(namespace, account, id string) {
	s.t.Helper()
	s.registerAt(s.world, namespace, account, id)
}

// registerAt is the same on the node of a cluster.
func (s *spire) registerAt(of *world, namespace, account, id string) {
	s.t.Helper()
	s.entry(spireNodes+of.Name(), id, "k8s:ns:"+namespace, "k8s:sa:"+account)
}

// entry gives the processes that an agent attests with these selectors a SPIFFE ID.
func (s *spire) entry(agent, id string, selectors ...string) {
	s.t.Helper()
	args := []string{"entry", "create", "-parentID", agent, "-spiffeID", id}
	for _, selector := range selectors {
		args = append(args, "-selector", selector)
	}
	s.must(args...)
}

// startSPIRE starts a server, whose certificates are valid for ttl, and the agent of the node.
func (w *world) startSPIRE(ttl string) *spire {
	w.t.Helper()
	out, err := exec.Command("../../spire/build", "--print").Output()
	if err != nil {
		w.t.Fatal(err)
	}
	s := &spire{world: w, programs: strings.TrimSpace(string(out)), dir: w.t.TempDir()}
	w.address(spireMachine)
	s.server = s.start(w, "spire-server", "server.conf", []string{
		"/var/lib/spire/server", s.dir, "/run/spire/server.sock", s.dir + "/server.sock",
		`"1h"`, fmt.Sprintf("%q\n    agent_ttl = \"1h\"", ttl)}, "spire-server")
	w.eventually("the SPIRE server responds", func(context.Context) error {
		_, err := s.command("healthcheck")
		return err
	})
	s.startNodeAgent(w)
	return s
}

// startNodeAgent starts the agent of a cluster's node, which asks the kubelet for the Pod of a process.
func (s *spire) startNodeAgent(of *world) {
	s.t.Helper()
	// The agent would make it for its own user.
	if err := s.in(s.t.Context(), of, "mkdir", "-p", "-m", "755", spireFolder); err != nil {
		s.t.Fatal(err)
	}
	s.startAgent(of, spireNodes+of.Name(), spireFolder+"/socket", `"unix"`, `"k8s"`, "discover_workload_path = true",
		"skip_kubelet_verification = true\n            use_anonymous_authentication = true")
}

// in runs a program where the node of a cluster is.
func (s *spire) in(ctx context.Context, of *world, program string, args ...string) error {
	command := of.Command(program, args...)
	out, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", command, err, out)
	}
	return err
}

// startAgent starts an agent by its SPIFFE ID where the node of a cluster is, with changes of the example's
// configuration.
func (s *spire) startAgent(of *world, id, socket string, changes ...string) {
	s.t.Helper()
	name := "spire-agent-" + path.Base(id)
	token := s.must("token", "generate", "-spiffeID", id)
	changes = append(changes, "/var/lib/spire/agent", filepath.Join(s.dir, name), "/run/spire/agent.sock", socket,
		"insecure_bootstrap = true", "insecure_bootstrap = true\n    experimental { sync_interval = \"1s\" }")
	s.agents = append(s.agents, s.start(of, name, "agent.conf", changes, "spire-agent", "-joinToken",
		strings.TrimSpace(strings.TrimPrefix(token, "Token:"))))
	s.eventually(id+" has its certificate, and listens at "+socket, func(ctx context.Context) error {
		return s.in(ctx, of, filepath.Join(s.programs, "spire-agent"), "healthcheck", "-socketPath", socket)
	})
}

// start starts a program of SPIRE where the node of a cluster is, with changes of the example's configuration, until
// the end of the test.
func (s *spire) start(
	of *world, name, example string, changes []string, program string, args ...string,
) *process.Process {
	s.t.Helper()
	text, err := os.ReadFile("../../../examples/spire/" + example)
	if err != nil {
		s.t.Fatal(err)
	}
	config := filepath.Join(s.dir, name+".conf")
	changes = append(changes, "127.0.0.1", spireMachine)
	err = os.WriteFile(config, []byte(strings.NewReplacer(changes...).Replace(string(text))), 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	process, err := process.Start(s.dir, name, of.Command(filepath.Join(s.programs, program),
		append([]string{"run", "-config", config}, args...)...)...)
	if err != nil {
		s.t.Fatalf("SPIRE is not built, `make spire` does so once, in about 5 minutes: %v", err)
	}
	s.t.Cleanup(func() {
		if said, err := os.ReadFile(process.Log); err == nil && s.t.Failed() {
			s.t.Logf("%s: %s", name, said)
		}
		process.Kill()
	})
	return process
}

// backdated is the time by which SPIRE's server has a certificate begin earlier.
const backdated = 10 * time.Second

// renewed returns when all proxies of the mesh that have certificates have newer ones, at these control planes.
func (w *world) renewed(since time.Time, apis ...string) {
	w.t.Helper()
	for _, api := range apis {
		w.eventually("all proxies at "+api+" have new certificates", func(ctx context.Context) error {
			out, err := shop.RunWeft(ctx, w.Node, "--api", api, "--mesh", "spire", "get", "dataplane-insights", "-o",
				"json")
			if err != nil {
				return err
			}
			var insights []struct {
				Name        string
				Certificate *kind.Certificate
			}
			if err := json.Unmarshal([]byte(out), &insights); err != nil {
				return err
			}
			proxies := 0
			for _, of := range insights {
				if of.Certificate == nil { // a zone ingress
					continue
				}
				if proxies++; of.Certificate.NotBefore.Add(backdated).Before(since) {
					err = errors.Join(err, fmt.Errorf("%s has one of %s", of.Name, of.Certificate.NotBefore))
				}
			}
			if proxies == 0 {
				return errors.New("no proxy has a certificate: " + out)
			}
			return err
		})
	}
}

// removeSPIREMesh deletes the mesh with SPIRE at the end of the test, once its namespace is gone: a Mesh with
// Dataplanes is not deleted.
func (w *world) removeSPIREMesh(namespace string) {
	w.t.Cleanup(func() {
		ctx := context.Background()
		if err := w.Wait(ctx, "namespace/"+namespace, "delete"); err != nil {
			w.t.Error(err)
		}
		if err := shop.Eventually(ctx, "the mesh is deleted", func(ctx context.Context) error {
			_, err := w.Kubectl(ctx, "", "delete", "--ignore-not-found", "-n", "kuma-system", "meshidentity/spire",
				"mesh/spire")
			return err
		}); err != nil {
			w.t.Error(err)
		}
	})
}

// ofSPIRE returns manifests of the mesh default as those of the mesh with SPIRE.
func ofSPIRE(manifests ...string) string {
	return strings.NewReplacer("mesh: default", "mesh: spire", "default.default.mesh.local", spireDomain,
		"default.machines.mesh.local", spireDomain).Replace(strings.Join(manifests, ""))
}

func spireID(namespace, account string) string {
	return "spiffe://" + spireDomain + "/ns/" + namespace + "/sa/" + account
}

// TestSPIRE: Pods of a mesh with identities of SPIRE talk mTLS with the certificates that SPIRE's agent has issued to
// their Envoys, by a socket that the injector mounts from the Node. The MeshIdentity states no socket. A Pod that no
// permission allows is denied, and so is one of a mesh without SPIRE on the same Node, whose Pods talk mTLS as before.
func TestSPIRE(t *testing.T) {
	w := mesh(t)
	const namespace = "spire"
	s := w.startSPIRE("1h")
	for _, account := range []string{"web", "client", "stranger"} {
		s.register(namespace, account, spireID(namespace, account))
	}
	w.removeSPIREMesh(namespace)
	w.restore()
	w.install(byHostPath...)
	w.namespace(namespace, "kuma.io/sidecar-injection=enabled", "kuma.io/mesh=spire")
	w.apply(spireMesh + ofSPIRE(shop.Server(namespace, "web", 1), shop.Client(namespace, "client"),
		shop.Client(namespace, "stranger"), shop.Permission(namespace, "web", "client")))
	w.wait("pod/client", "condition=Ready", "-n", namespace)
	client := &shop.Shop{Node: w.Node, Namespace: namespace, Client: w.podIP(namespace, "client")}
	w.eventually("web verifies the client by its certificate of SPIRE", func(ctx context.Context) error {
		of, err := client.Call(ctx)
		if want := spireID(namespace, "client"); err == nil && of.Client != want {
			err = fmt.Errorf("web sees the client %q, want %s", of.Client, want)
		}
		return err
	})
	w.strangerIsDenied(namespace)
	w.besideSPIRE("beside-spire", namespace)
}

// besideSPIRE opens a namespace of the mesh without SPIRE, whose Pods talk mTLS, and reach none of a namespace of the
// mesh with it.
func (w *world) besideSPIRE(namespace, of string) *shop.Shop {
	w.t.Helper()
	s := w.open(namespace, shop.Server(namespace, "web", 1))
	if got, err := shop.Get(w.t.Context(), s.Client, shop.Web+"."+of); err != nil || got.Error == "" {
		w.t.Errorf("a Pod of the mesh without SPIRE gets %d %s of one of the mesh with it: %v", got.Status, got.Body,
			err)
	}
	return s
}
