package node_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"weft/test/kubernetes/cluster"
	"weft/test/kubernetes/shop"
)

const (
	spireDomain  = "weft.test"
	spireMachine = "spiffe://" + spireDomain + "/node"
	// spireFolder is the folder of the node with the agent's socket.
	spireFolder = "/run/spire/agent"
)

// spireServer is the configuration of SPIRE's server, with the folder of its files.
const spireServer = `
server {
    bind_address = "127.0.0.1"
    bind_port = "18081"
    socket_path = "%[1]s/server.sock"
    trust_domain = "weft.test"
    data_dir = "%[1]s"
}
plugins {
    DataStore "sql" { plugin_data { database_type = "sqlite3" connection_string = "%[1]s/datastore.sqlite3" } }
    NodeAttestor "join_token" { plugin_data {} }
    KeyManager "memory" { plugin_data {} }
}
`

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
spec:
  selector: {dataplane: {matchLabels: {}}}
  spiffeID: {trustDomain: ` + spireDomain + `}
  provider: {type: Spire}
`

// spireAgent is the configuration of SPIRE's agent, which asks the kubelet for the Pod of a process.
const spireAgent = `
agent {
    data_dir = "%[1]s/agent"
    server_address = "127.0.0.1"
    server_port = "18081"
    socket_path = "` + spireFolder + `/socket"
    trust_domain = "weft.test"
    insecure_bootstrap = true
    experimental { sync_interval = "1s" }
}
plugins {
    NodeAttestor "join_token" { plugin_data {} }
    KeyManager "memory" { plugin_data {} }
    WorkloadAttestor "k8s" {
        plugin_data { skip_kubelet_verification = true use_anonymous_authentication = true }
    }
}
`

// spire is a SPIRE server with the agent of the node.
type spire struct {
	*world
	programs, dir string
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

// register gives the Pods of a ServiceAccount a SPIFFE ID.
func (s *spire) register(namespace, account, id string) {
	s.t.Helper()
	s.must("entry", "create", "-parentID", spireMachine, "-spiffeID", id, "-selector", "k8s:ns:"+namespace,
		"-selector", "k8s:sa:"+account)
}

// startSPIRE starts a server and the node's agent.
func (w *world) startSPIRE() *spire {
	w.t.Helper()
	out, err := exec.Command("../../spire/build", "--print").Output()
	if err != nil {
		w.t.Fatal(err)
	}
	s := &spire{w, strings.TrimSpace(string(out)), w.t.TempDir()}
	for name, config := range map[string]string{"server.conf": spireServer, "agent.conf": spireAgent} {
		if err := os.WriteFile(filepath.Join(s.dir, name), fmt.Appendf(nil, config, s.dir), 0o600); err != nil {
			w.t.Fatal(err)
		}
	}
	if err := os.MkdirAll(spireFolder, 0o755); err != nil { // the agent would make it for its own user
		w.t.Fatal(err)
	}
	s.start("spire-server", "run", "-config", s.dir+"/server.conf")
	w.eventually("the SPIRE server responds", func(context.Context) error {
		_, err := s.command("healthcheck")
		return err
	})
	token := s.must("token", "generate", "-spiffeID", spireMachine)
	s.start("spire-agent", "run", "-config", s.dir+"/agent.conf", "-joinToken",
		strings.TrimSpace(strings.TrimPrefix(token, "Token:")))
	w.eventually("the SPIRE agent listens", func(context.Context) error {
		conn, err := net.Dial("unix", spireFolder+"/socket")
		if err == nil {
			conn.Close()
		}
		return err
	})
	return s
}

// start starts a program of SPIRE, until the end of the test.
func (s *spire) start(program string, args ...string) {
	s.t.Helper()
	process, err := cluster.StartProcess(s.dir, program,
		append([]string{filepath.Join(s.programs, program)}, args...)...)
	if err != nil {
		s.t.Fatalf("SPIRE is not built, `make spire` does so once, in about 5 minutes: %v", err)
	}
	s.t.Cleanup(func() {
		if said, err := os.ReadFile(process.Log); err == nil && s.t.Failed() {
			s.t.Logf("%s: %s", program, said)
		}
		process.Kill()
	})
}

// removeMesh deletes the mesh with SPIRE at the end of the test, once its namespace is gone: a Mesh with Dataplanes is
// not deleted.
func (s *spire) removeMesh(namespace string) {
	s.t.Cleanup(func() {
		if err := s.Wait(context.Background(), "namespace/"+namespace, "delete"); err != nil {
			s.t.Error(err)
		}
		for _, object := range []string{"meshidentity/spire", "mesh/spire"} {
			_, err := s.Kubectl(context.Background(), "", "delete", object, "-n", "kuma-system")
			if err != nil {
				s.t.Error(err)
			}
		}
	})
}

// ofSPIRE returns manifests of the mesh default as those of the mesh with SPIRE.
func ofSPIRE(manifests ...string) string {
	return strings.NewReplacer("kuma.io/mesh: default", "kuma.io/mesh: spire",
		"spiffe://default.default.mesh.local/", "spiffe://"+spireDomain+"/").Replace(strings.Join(manifests, ""))
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
	s := w.startSPIRE()
	for _, account := range []string{"web", "client", "stranger"} {
		s.register(namespace, account, spireID(namespace, account))
	}
	s.removeMesh(namespace)
	w.restore()
	w.install("dataPlane.spire.enabled=true", "dataPlane.spire.hostPath="+spireFolder)
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
	beside := w.open("beside-spire", shop.Server("beside-spire", "web", 1))
	if got, err := shop.Get(t.Context(), beside.Client, shop.Web+"."+namespace); err != nil || got.Error == "" {
		t.Errorf("a Pod of the mesh without SPIRE gets %d %s of one of the mesh with it: %v", got.Status, got.Body, err)
	}
}
