package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spiffe/go-spiffe/v2/workloadapi"

	"weft/internal/traffic"
)

// spire is a SPIRE server with one agent, on this machine.
type spire struct {
	w       *world
	folder  string // of the programs
	domain  string
	control string // the server's own socket
	socket  string // the agent's, for workloads
}

// spireServer is the server's configuration: certificates of seconds, so that they are renewed in a test.
const spireServer = `
server {
    bind_address = "127.0.0.1"
    bind_port = "%d"
    socket_path = %q
    trust_domain = %q
    data_dir = %q
    log_level = "INFO"
    ca_ttl = "24h"
    default_x509_svid_ttl = %q
}
plugins {
    DataStore "sql" {
        plugin_data {
            database_type = "sqlite3"
            connection_string = %q
        }
    }
    NodeAttestor "join_token" {
        plugin_data {}
    }
    KeyManager "memory" {
        plugin_data {}
    }
}
`

// spireAgent is the agent's: a workload is who runs a program, and which.
const spireAgent = `
agent {
    data_dir = %q
    log_level = "INFO"
    server_address = "127.0.0.1"
    server_port = "%d"
    socket_path = %q
    insecure_bootstrap = true
    trust_domain = %q
    join_token = %q
    experimental {
        sync_interval = "1s"
    }
}
plugins {
    NodeAttestor "join_token" {
        plugin_data {}
    }
    KeyManager "memory" {
        plugin_data {}
    }
    WorkloadAttestor "unix" {
        plugin_data {
            discover_workload_path = true
        }
    }
}
`

// spirePrograms is the folder of SPIRE's programs.
func spirePrograms(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("../spire/build", "--print").Output()
	if err != nil {
		t.Fatal(err)
	}
	folder := strings.TrimSpace(string(out))
	if _, err := os.Stat(folder); err != nil {
		t.Skip("nothing was tested: SPIRE is not built here, `make spire` does so once, in about 5 minutes")
	}
	return folder
}

// startSPIRE starts a server of a trust domain, whose certificates are valid for ttl, and its agent. The
// entries, SPIFFE IDs by the paths of programs, are there before the agent asks.
func (w *world) startSPIRE(domain, ttl string, entries map[string]string) *spire {
	w.t.Helper()
	s := &spire{
		w: w, folder: spirePrograms(w.t), domain: domain,
		control: filepath.Join(w.dir, "server.sock"), socket: filepath.Join(w.dir, "spire.sock"),
	}
	port := freePorts(w.t, 1)[0]
	config := fmt.Sprintf(spireServer, port, s.control, domain, w.dir, ttl, filepath.Join(w.dir, "spire.sqlite3"))
	w.start("spire-server", filepath.Join(s.folder, "spire-server"), "run", "-config", w.file("server.conf", config))
	w.eventually("the SPIRE server answers", func() error { return s.server("healthcheck") })
	for path, id := range entries {
		s.register(path, id)
	}
	token := s.ask("token", "generate", "-spiffeID", "spiffe://"+domain+"/machine")
	token = strings.TrimSpace(strings.TrimPrefix(token, "Token:"))
	config = fmt.Sprintf(spireAgent, filepath.Join(w.dir, "agent"), port, s.socket, domain, token)
	w.start("spire-agent", filepath.Join(s.folder, "spire-agent"), "run", "-config", w.file("agent.conf", config))
	w.eventually("the SPIRE agent listens", func() error {
		_, err := os.Stat(s.socket)
		return err
	})
	return s
}

// server runs a command of the SPIRE server's.
func (s *spire) server(command ...string) error {
	args := append(command, "-socketPath", s.control)
	out, err := exec.Command(filepath.Join(s.folder, "spire-server"), args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("spire-server %s: %w: %s", strings.Join(command, " "), err, out)
	}
	return nil
}

func (s *spire) ask(command ...string) string {
	s.w.t.Helper()
	out, err := exec.Command(filepath.Join(s.folder, "spire-server"), append(command, "-socketPath", s.control)...).Output()
	if err != nil {
		s.w.t.Fatalf("spire-server %s: %v", strings.Join(command, " "), err)
	}
	return string(out)
}

// register gives whoever runs a program a SPIFFE ID.
func (s *spire) register(program, id string) {
	s.w.t.Helper()
	err := s.server("entry", "create", "-parentID", "spiffe://"+s.domain+"/machine", "-spiffeID", id, "-selector", "unix:path:"+program)
	if err != nil {
		s.w.t.Fatal(err)
	}
}

// ownEnvoy answers an Envoy of a path of its own, by which SPIRE tells it from the others of this machine.
func (w *world) ownEnvoy(name string) string {
	w.t.Helper()
	path := filepath.Join(w.dir, "envoy-"+name)
	if _, err := os.Stat(path); err == nil {
		return path
	}
	original, err := filepath.EvalSymlinks(envoy)
	if err != nil {
		w.t.Fatal(err)
	}
	if os.Link(original, path) == nil {
		return path
	}
	in, err := os.Open(original)
	if err != nil {
		w.t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err = io.Copy(out, in); err == nil {
		err = out.Close()
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return path
}

// attested starts weft-dp with an Envoy of its own.
func (w *world) attested(mesh, name, dataplane string) *process {
	w.t.Helper()
	w.agentFlags = []string{"--envoy", w.ownEnvoy(name)}
	return w.proxy(mesh, name, dataplane)
}

// bySPIRE is a mesh whose proxies have their identities from SPIRE, under names of its own, and where a client
// of that name may call.
func bySPIRE(mesh, socket string) string {
	return fmt.Sprintf(`
type: Mesh
name: %[1]s
---
type: MeshIdentity
mesh: %[1]s
name: identity
spec:
  selector: {dataplane: {matchLabels: {}}}
  spiffeID: {trustDomain: weft.test, path: "/%[1]s/{{ .Workload }}"}
  provider: {type: Spire, spire: {agent: {socketPath: %[2]q}}}
---
type: MeshTrafficPermission
mesh: %[1]s
name: clients
spec: {rules: [{default: {allow: [{spiffeID: {type: Exact, value: "spiffe://weft.test/%[1]s/client"}}]}}]}
`, mesh, socket)
}

// Sidecars of two meshes under one trust domain have their certificates from SPIRE. Certificates are replaced,
// and the control plane is killed, under requests of which none is lost.
func TestDrillIdentitiesFromSPIRE(t *testing.T) {
	w := newWorld(t)
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const id = "spiffe://weft.test/"
	s := w.startSPIRE("weft.test", "16s", map[string]string{
		w.ownEnvoy("web-1"):  id + "default/web",
		w.ownEnvoy("client"): id + "default/client",
		w.ownEnvoy("other"):  id + "default/other",
		w.ownEnvoy("web-2"):  id + "second/web",
		program:              id + "second/client",
	})
	w.apply(bySPIRE("default", s.socket) + "---" + bySPIRE("second", s.socket))
	w.service(2, 18080, "web-1")
	w.service(5, 18080, "web-2")
	w.attested("default", "web-1", server("web-1", "web", "http", 2, 20080))
	w.attested("default", "client", caller("client", 3, "tags: {kuma.io/service: web}"))
	w.attested("default", "other", caller("other", 4, "tags: {kuma.io/service: web}"))
	w.attested("second", "web-2", strings.Replace(server("web-2", "web", "http", 5, 20080), "mesh: default", "mesh: second", 1))

	url := fmt.Sprintf("http://%s:10001/", w.address(3))
	w.eventually("the client is let in, under the name that SPIRE gives it", func() error {
		body, err := fetch(url)
		if err == nil && !strings.Contains(body, "URI="+id+"default/client") {
			err = fmt.Errorf("the server saw %q", body)
		}
		return err
	})
	w.eventually("whom no rule names is refused", func() error {
		body, err := fetch(fmt.Sprintf("http://%s:10001/", w.address(4)))
		if err == nil || !strings.Contains(err.Error(), "403") {
			return fmt.Errorf("%v: %s", err, body)
		}
		return nil
	})

	d := w.drill("certificates of SPIRE are replaced, and the control plane is killed", traffic.Get(url))
	inbound := w.address(2) + ":20080"
	before, err := presented(inbound)
	if err != nil {
		t.Fatal(err)
	}
	w.plane.kill()
	w.startPlane()
	w.eventually("the certificate is replaced, which the control plane learns", func() error {
		return w.replaced(inbound, before.SerialNumber.Text(16))
	})
	d.more(50)
	d.end()

	// The other mesh's roots are the same: its client is believed, and has no permission here.
	caller := s.caller(t.Context())
	for address, want := range map[string]int{w.address(2): http.StatusForbidden, w.address(5): http.StatusOK} {
		response, err := caller.Get("https://" + address + ":20080/")
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("a client of the mesh second was answered %s at %s, want %d", response.Status, address, want)
		}
	}
}

// replaced says whether an inbound presents a certificate of another serial, which its insight tells.
func (w *world) replaced(inbound, before string) error {
	leaf, err := presented(inbound)
	if err != nil {
		return err
	}
	serial := leaf.SerialNumber.Text(16)
	if serial == before {
		return fmt.Errorf("it is %s still", serial)
	}
	out, err := w.weft("get", "dataplane-insight", "web-1", "-o", "yaml")
	if err == nil && !strings.Contains(out, serial) {
		err = fmt.Errorf("the insight does not tell %s:\n%s", serial, out)
	}
	return err
}

// caller is a client under the SPIFFE ID of this program, which takes any server.
func (s *spire) caller(ctx context.Context) *http.Client {
	s.w.t.Helper()
	source, err := workloadapi.NewX509Source(ctx, workloadapi.WithClientOptions(workloadapi.WithAddr("unix://"+s.socket)))
	if err != nil {
		s.w.t.Fatal(err)
	}
	s.w.t.Cleanup(func() { source.Close() })
	svid, err := source.GetX509SVID()
	if err != nil {
		s.w.t.Fatal(err)
	}
	certificate := tls.Certificate{PrivateKey: svid.PrivateKey}
	for _, c := range svid.Certificates {
		certificate.Certificate = append(certificate.Certificate, c.Raw)
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
		InsecureSkipVerify: true, Certificates: []tls.Certificate{certificate},
	}}}
}

// A proxy that SPIRE does not know serves nobody, and says what to do; once it is registered it serves.
func TestAProxyThatSPIREDoesNotKnow(t *testing.T) {
	w := newWorld(t)
	s := w.startSPIRE("weft.test", "1h", map[string]string{w.ownEnvoy("web-1"): "spiffe://weft.test/default/somebody"})
	w.apply(bySPIRE("default", s.socket))
	w.service(2, 18080, "web-1")
	w.agentFlags = []string{"--envoy", w.ownEnvoy("web-1")}
	p, ready := w.begin(nil, "default", "web-1", server("web-1", "web", "http", 2, 20080))
	w.tells("Envoy has a certificate of spiffe://weft.test/default/somebody, and wants one of spiffe://weft.test/default/web: register an entry")
	if leaf, err := presented(w.address(2) + ":20080"); err == nil {
		t.Logf("meanwhile it presents %s, which no client takes", leaf.URIs[0])
	}
	out, _ := w.weft("get", "meshservice", "web", "-o", "yaml")
	if strings.Contains(out, "healthy: 1") {
		t.Errorf("it counts as healthy:\n%s", out)
	}

	w.apply(bySPIRE("default", filepath.Join(w.dir, "nobody.sock")))
	w.tells("nobody.sock: connect: no such file or directory: start the SPIRE agent there, or correct provider.spire.agent.socketPath of MeshIdentity identity")

	w.apply(strings.ReplaceAll(bySPIRE("default", s.socket), "/{{ .Workload }}", "/somebody"))
	w.ready(nil, p, ready)
}

// tells waits until the insight of web-1 and `weft check` tell why it has no certificate.
func (w *world) tells(why string) {
	w.t.Helper()
	for _, command := range [][]string{{"get", "dataplane-insight", "web-1", "-o", "json"}, {"check"}} {
		w.eventually(fmt.Sprintf("%q is told by weft %s", why, command[0]), func() error {
			out, err := w.weft(command...)
			if !strings.Contains(out, why) {
				return fmt.Errorf("%v: %s", err, out)
			}
			return nil
		})
	}
}
