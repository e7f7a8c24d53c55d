package e2e

import (
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/workloadapi"

	"weft/internal/envoy/envoytest"
	"weft/internal/process"
	"weft/internal/testwait"
	"weft/internal/traffic"
)

// spire is a SPIRE server with one agent, on this machine.
type spire struct {
	w       *world
	folder  string            // with the programs
	control string            // the server's admin socket
	socket  string            // the agent's workload socket
	changes *strings.Replacer // of the example configuration
}

var withSPIRE = flag.Bool("spire", false, "run the tests with a real SPIRE too, which `make spire` builds")

// spirePrograms returns the folder of SPIRE's programs.
func spirePrograms(t *testing.T) string {
	t.Helper()
	if !*withSPIRE {
		t.Skip("SPIRE's build takes minutes: make test-real")
	}
	out, err := exec.Command("../spire/build", "--print").Output()
	if err != nil {
		t.Fatal(err)
	}
	folder := strings.TrimSpace(string(out))
	if _, err := os.Stat(folder); err != nil {
		t.Fatalf("SPIRE is not built, `make spire` does so once, in about 5 minutes: %v", err)
	}
	return folder
}

// startSPIRE starts a server of the trust domain weft.test, whose certificates are valid for ttl. entries are SPIFFE
// IDs by the paths of programs.
func (w *world) startSPIRE(ttl string, entries map[string]string) *spire {
	w.t.Helper()
	s := &spire{
		w: w, folder: spirePrograms(w.t),
		control: filepath.Join(w.dir, "server.sock"), socket: filepath.Join(w.dir, "spire.sock"),
	}
	s.changes = strings.NewReplacer(
		"/var/lib/spire/server", w.dir, "/var/lib/spire/agent", filepath.Join(w.dir, "agent"),
		"/run/spire/server.sock", s.control, "/run/spire/agent.sock", s.socket,
		`"8081"`, fmt.Sprintf("%q", fmt.Sprint(freePorts(w.t, 1)[0])), `"1h"`, fmt.Sprintf("%q", ttl),
		"insecure_bootstrap = true", `insecure_bootstrap = true
    experimental { sync_interval = "1s" }`, // an agent's default interval is 5 s
	)
	config := w.file("server.conf", s.changes.Replace(example(w.t, "spire/server.conf")))
	w.start("spire-server", filepath.Join(s.folder, "spire-server"), "run", "-config", config)
	w.eventually("the SPIRE server answers", func() error {
		_, err := s.command("healthcheck")
		return err
	})
	for path, id := range entries {
		s.register(path, id)
	}
	return s
}

// startAgent starts the agent of this machine.
func (s *spire) startAgent() {
	w := s.w
	w.t.Helper()
	said, err := s.command("token", "generate", "-spiffeID", machineID)
	if err != nil {
		w.t.Fatal(err)
	}
	token := strings.TrimSpace(strings.TrimPrefix(said, "Token:"))
	config := w.file("agent.conf", s.changes.Replace(example(w.t, "spire/agent.conf")))
	w.start("spire-agent", filepath.Join(s.folder, "spire-agent"), "run", "-config", config, "-joinToken", token)
	w.eventually("the SPIRE agent listens", func() error {
		_, err := os.Stat(s.socket)
		return err
	})
}

// machineID is the SPIFFE ID of the agent of this machine.
const machineID = "spiffe://weft.test/machine"

// example returns a file of the examples.
func example(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../examples", path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// command runs a command of the SPIRE server.
func (s *spire) command(command ...string) (string, error) {
	out, err := exec.Command(filepath.Join(s.folder, "spire-server"),
		append(command, "-socketPath", s.control)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("spire-server %s: %w: %s", strings.Join(command, " "), err, out)
	}
	return string(out), nil
}

// register gives the processes of a program a SPIFFE ID.
func (s *spire) register(program, id string) {
	s.w.t.Helper()
	if _, err := s.command("entry", "create", "-parentID", machineID, "-spiffeID", id, "-selector",
		"unix:path:"+program); err != nil {
		s.w.t.Fatal(err)
	}
}

// ownEnvoy returns a copy of Envoy with its own path, by which SPIRE distinguishes it from the others on this machine.
func (w *world) ownEnvoy(name string) string {
	w.t.Helper()
	path := filepath.Join(w.dir, "envoy-"+name)
	if _, err := os.Stat(path); err != nil {
		envoytest.Copy(w.t, envoy, path)
	}
	return path
}

// attested starts weft-dp with its own copy of Envoy.
func (w *world) attested(mesh, name, dataplane string) *process.Process {
	w.t.Helper()
	w.agentFlags = []string{"--envoy", w.ownEnvoy(name)}
	return w.proxy(mesh, name, dataplane)
}

// mesh returns a mesh whose proxies have identities of SPIRE with a prefix of their own, and in which the client of
// that name may call.
func (s *spire) mesh(name string) string {
	resources := strings.NewReplacer("mesh: default", "mesh: "+name, "/default/", "/"+name+"/", "/run/spire/agent.sock",
		s.socket).
		Replace(example(s.w.t, "spire/mesh.yaml"))
	return "type: Mesh\nname: " + name + "\n---\n" + resources + "---\n"
}

// Sidecars of two meshes in one trust domain have certificates of SPIRE. Certificates are replaced, and the control
// plane is killed, without a lost request.
func TestDrillIdentitiesFromSPIRE(t *testing.T) {
	w := newWorld(t)
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const id = "spiffe://weft.test/"
	s := w.startSPIRE("1m", map[string]string{
		w.ownEnvoy("web-1"):  id + "default/web",
		w.ownEnvoy("client"): id + "default/client",
		w.ownEnvoy("other"):  id + "default/other",
		w.ownEnvoy("web-2"):  id + "second/web",
		program:              id + "second/client",
	})
	s.startAgent()
	w.apply(s.mesh("default") + s.mesh("second"))
	w.service(2, 18080, "web-1")
	w.service(5, 18080, "web-2")
	w.attested("default", "web-1", server("web-1", "web", "http", 2, 20080))
	w.attested("default", "client", caller("client", 3, "tags: {kuma.io/service: web}"))
	w.attested("default", "other", caller("other", 4, "tags: {kuma.io/service: web}"))
	w.attested("second", "web-2", strings.Replace(server("web-2", "web", "http", 5, 20080), "mesh: default",
		"mesh: second", 1))

	url := fmt.Sprintf("http://%s:10001/", w.address(3))
	w.eventually("the client is let in, under the name that SPIRE gives it", func() error {
		body, err := fetch(url)
		if err == nil && !strings.Contains(body, "URI="+id+"default/client") {
			err = fmt.Errorf("the server saw %q", body)
		}
		return err
	})
	w.eventually("a caller without a rule is denied", func() error {
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
	w.plane.Kill()
	w.startPlane()
	w.eventually("the certificate is replaced, which the control plane learns", func() error {
		err := w.replaced(inbound, before.SerialNumber.Text(16))
		if err != nil {
			testwait.Pass(time.Second, "it is replaced after half a minute")
		}
		return err
	})
	d.more(50)
	d.end()

	// The other mesh has the same roots: its client is authenticated, and has no permission here.
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

// replaced returns an error unless an inbound presents a certificate with another serial, which its insight has too.
func (w *world) replaced(inbound, before string) error {
	certificate, err := presented(inbound)
	if err != nil {
		return err
	}
	serial := certificate.SerialNumber.Text(16)
	if serial == before {
		return fmt.Errorf("it is %s still", serial)
	}
	out, err := w.weft("get", "dataplane-insight", "web-1", "-o", "yaml")
	if err == nil && !strings.Contains(out, serial) {
		err = fmt.Errorf("the insight does not tell %s:\n%s", serial, out)
	}
	return err
}

// caller returns a client with the SPIFFE ID of this program, which accepts any server.
func (s *spire) caller(ctx context.Context) *http.Client {
	s.w.t.Helper()
	source, err := workloadapi.NewX509Source(ctx,
		workloadapi.WithClientOptions(workloadapi.WithAddr("unix://"+s.socket)))
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

// A proxy without a certificate of SPIRE, or with another SPIFFE ID, serves no client and reports the remedy. It
// continues as soon as that is applied.
func TestAProxyThatSPIREDoesNotKnow(t *testing.T) {
	w := newWorld(t)
	s := w.startSPIRE("1h", map[string]string{w.ownEnvoy("web-1"): "spiffe://weft.test/default/somebody"})
	w.apply(s.mesh("default"))
	w.service(2, 18080, "web-1")
	w.agentFlags = []string{"--envoy", w.ownEnvoy("web-1")}
	p, ready := w.begin(nil, "default", "web-1", server("web-1", "web", "http", 2, 20080)+
		"  outbound: [{address: NET.2, port: 10001, tags: {kuma.io/service: web}}]")
	w.tells("connect: no such file or directory: start the SPIRE agent there, or correct " +
		"provider.spire.agent.socketPath of MeshIdentity spire")
	s.startAgent()
	w.tells("Envoy has a certificate of spiffe://weft.test/default/somebody, and wants one of " +
		"spiffe://weft.test/default/web: register an entry")
	if out, _ := w.weft("get", "meshservice", "web", "-o", "yaml"); strings.Contains(out, "healthy: 1") {
		t.Errorf("it counts as healthy:\n%s", out)
	}
	w.apply(strings.ReplaceAll(s.mesh("default"), "/{{ .Workload }}", "/somebody"))
	w.ready(nil, p, ready)
}

// Certificates of SPIRE and of the control plane are incompatible: both sides reject each other, no plaintext is sent,
// and the conflict is reported.
func TestSPIREAndAnotherProviderRejectEachOther(t *testing.T) {
	w := newWorld(t)
	s := w.startSPIRE("1h", map[string]string{w.ownEnvoy("web-1"): "spiffe://weft.test/default/web"})
	s.startAgent()
	w.apply(s.mesh("default") + `
type: MeshIdentity
mesh: default
name: own
spec:
  selector: {dataplane: {matchLabels: {kuma.io/workload: client}}}
  spiffeID: {trustDomain: weft.test, path: "/default/{{ .Workload }}"}
  provider: {type: Bundled}
`)
	w.service(2, 18080, "web-1")
	w.attested("default", "web-1", server("web-1", "web", "http", 2, 20080))
	w.agentFlags = nil
	w.proxy("default", "client", caller("client", 3, "tags: {kuma.io/service: web}"))
	w.eventually("the connection fails, though the name is allowed", func() error {
		body, err := fetch(fmt.Sprintf("http://%s:10001/", w.address(3)))
		if err == nil || !strings.Contains(body, "remote connection failure") {
			return fmt.Errorf("%v: %s", err, body)
		}
		return nil
	})
	w.told(`certificates of its proxies come from SPIRE of the trust domain "weft.test" and from the control plane`,
		"check")
	w.told("MixedProviders", "get", "meshidentity", "own", "-o", "yaml")
	w.told("MixedProviders", "get", "meshidentity", "spire", "-o", "yaml")
	if log, err := os.ReadFile(w.plane.Log); err != nil ||
		strings.Count(string(log), "have providers that don't go together") != 1 {
		t.Errorf("%v: the log does not say it once:\n%s", err, log)
	}
}

// A zone egress has its identity from SPIRE like every other workload. A client reaches an external service through it,
// and the egress authenticates the client by its SPIFFE ID.
func TestAZoneEgressOfSPIRE(t *testing.T) {
	w := newWorld(t)
	s := w.startSPIRE("1h", map[string]string{
		w.ownEnvoy("egress"): "spiffe://weft.test/default/egress",
		w.ownEnvoy("client"): "spiffe://weft.test/default/client",
		w.ownEnvoy("other"):  "spiffe://weft.test/default/other",
	})
	s.startAgent()
	w.service(9, 18080, "outside")
	forbidding := "name: default\nrouting: {defaultForbidMeshExternalServiceAccess: true}\n"
	w.apply(strings.Replace(s.mesh("default"), "name: default\n", forbidding, 1) + `
type: MeshExternalService
mesh: default
name: api
spec: {match: {type: HostnameGenerator, port: 80, protocol: http}, endpoints: [{address: NET.9, port: 18080}]}
`)
	w.attested("default", "egress", `
type: Dataplane
mesh: default
name: egress
labels: {kuma.io/workload: egress}
networking: {zoneEgress: {address: NET.2, port: 10002}}
`)
	for i, name := range []string{"client", "other"} {
		w.attested("default", name, caller(name, 3+i, "backendRef: {kind: MeshExternalService, name: api, port: 80}"))
	}
	w.eventually("the client is let in", func() error { return get(fmt.Sprintf("http://%s:10001/", w.address(3))) })
	w.eventually("a caller without a rule is denied", func() error {
		body, err := fetch(fmt.Sprintf("http://%s:10001/", w.address(4)))
		if err == nil || !strings.Contains(err.Error(), "403") {
			return fmt.Errorf("%v: %s", err, body)
		}
		return nil
	})
}

// A ZoneEgress has its identity from SPIRE too. Clients of two meshes reach an external service of their own mesh
// through it, and the permissions of each mesh apply to its own service. (Zone Egress Identity.)
func TestAZoneEgressOfSPIREServesTwoMeshes(t *testing.T) {
	w := newWorld(t)
	const id = "spiffe://weft.test/"
	s := w.startSPIRE("1h", map[string]string{
		w.ownEnvoy("egress"):  id + "default/zone-egress",
		w.ownEnvoy("client"):  id + "default/client",
		w.ownEnvoy("shopper"): id + "shop/client",
		w.ownEnvoy("other"):   id + "shop/other",
	})
	s.startAgent()
	forbidding := func(mesh string) string {
		return strings.Replace(s.mesh(mesh), "name: "+mesh+"\n",
			"name: "+mesh+"\nrouting: {defaultForbidMeshExternalServiceAccess: true}\n", 1)
	}
	w.apply(forbidding("default") + forbidding("shop") + externalOf("default", "api", 9) + "---" + externalOf("shop",
		"api", 8))
	w.service(9, 18080, "of-default")
	w.service(8, 18080, "of-shop")
	w.agentFlags = []string{"--envoy", w.ownEnvoy("egress")}
	w.zoneEgress("egress", 10)
	w.attested("default", "client", callerOf("default", "client", 3, "api"))
	w.attested("shop", "shopper", strings.Replace(callerOf("shop", "shopper", 4, "api"), "workload: shopper",
		"workload: client", 1))
	w.attested("shop", "other", callerOf("shop", "other", 5, "api"))
	w.reaches(3, "of-default")
	w.reaches(4, "of-shop")
	w.eventually("a caller that no rule allows is denied", func() error {
		body, err := fetch(fmt.Sprintf("http://%s:15001/", w.address(5)))
		if err == nil || !strings.Contains(err.Error(), "403") {
			return fmt.Errorf("%v: %s", err, body)
		}
		return nil
	})
}

// tells waits until the insight of web-1 and `weft check` report why it has no certificate.
func (w *world) tells(why string) {
	w.t.Helper()
	w.told(why, "get", "dataplane-insight", "web-1", "-o", "json")
	w.told(why, "check")
}

// told waits until the output of a command contains a text.
func (w *world) told(what string, command ...string) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("weft %s tells: %s", strings.Join(command, " "), what), func() error {
		out, err := w.weft(command...)
		if !strings.Contains(out, what) {
			return fmt.Errorf("%v: %s", err, out)
		}
		return nil
	})
}
