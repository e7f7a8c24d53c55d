// Package e2e drives the real programs: weft, weft-dp and Envoy, on loopback addresses of this machine, as users start
// them. Every wait is for an event, and every test counts failures of clients.
package e2e

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"weft/internal/process"
	"weft/internal/testnet"
	"weft/internal/testwait"
	"weft/test/mesh"
)

var (
	binaries string // the folder of weft, weft-dp and the load tool
	envoy    string
	subnets  atomic.Int32 // every test has a subnet 127.30.N.0/24
)

// builtIn is the environment variable with the folder of the programs. They are built before the tests enter their own
// network, from which no module can be downloaded.
const builtIn = "WEFT_TEST_PROGRAMS"

func TestMain(m *testing.M) {
	end, err := build()
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		os.Exit(1)
	}
	code := testnet.Run(func() int {
		code, err := prepare(m)
		if err != nil {
			fmt.Fprintln(os.Stderr, "e2e:", err)
			return 1
		}
		return code
	})
	end()
	os.Exit(code)
}

// build builds weft and weft-dp in a new folder, which end removes, unless the process has them already.
func build() (end func(), err error) {
	if binaries = os.Getenv(builtIn); binaries != "" {
		return func() {}, nil
	}
	if binaries, err = os.MkdirTemp("", "weft-e2e-"); err != nil {
		return nil, err
	}
	end = func() { os.RemoveAll(binaries) }
	build := exec.Command("go", "build", "-tags=grpcnotrace", "-ldflags=-s=1 -w=1", "-o", binaries, "weft/cmd/weft",
		"weft/cmd/weft-dp", "weft/test/load")
	if out, err := build.CombinedOutput(); err != nil {
		end()
		return nil, fmt.Errorf("%s: %w\n%s", build, err, out)
	}
	return end, os.Setenv(builtIn, binaries)
}

// given reports whether the command line sets a flag.
func given(name string) (is bool) {
	flag.Visit(func(f *flag.Flag) { is = is || f.Name == name })
	return is
}

func prepare(m *testing.M) (int, error) {
	flag.Parse()
	if !given("test.parallel") {
		flag.Set("test.parallel", strconv.Itoa(3*runtime.GOMAXPROCS(0))) // tests mostly wait
	}
	var err error
	if envoy, err = findEnvoy(); err != nil {
		return 0, err
	}
	if *busy {
		end, err := startBusy(busyPerCore * runtime.NumCPU())
		defer end()
		if err != nil {
			return 0, err
		}
	}
	code := m.Run()
	if *showDrills {
		drills.Print(os.Stdout)
	}
	if *showAttacks {
		printAttacks(os.Stdout)
	}
	return code, nil
}

// touchSources reads every source file. go test reuses a result while no file has changed that a test read, and this
// package does not import the programs.
var touchSources = sync.OnceValue(func() error {
	return filepath.WalkDir("../..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") {
			return err
		}
		_, err = os.Stat(path)
		return err
	})
})

func findEnvoy() (string, error) {
	if path := os.Getenv("WEFT_ENVOY"); path != "" {
		return path, nil
	}
	if path, err := exec.LookPath("envoy"); err == nil {
		return path, nil
	}
	path, err := filepath.Abs("../../.tools/envoy/envoy")
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(path); err != nil {
		return "", errors.New("there is no Envoy: run `make tools`, or set WEFT_ENVOY")
	}
	return path, nil
}

// world is one control plane with its proxies. The end of the test stops them.
type world struct {
	t          *testing.T
	dir        string
	machine    *machine // that runs it; nil: the machine of the tests
	network    string   // the first three bytes of its addresses
	zone       string   // its name, where it has joined global
	plane      *mesh.Plane
	cpAddress  string // for agents
	processes  []*process.Process
	env        []string
	agentFlags []string // further ones
	tokenFlags []string // of dataplane tokens, beside the Dataplane's file
}

// newWorld starts a control plane.
func newWorld(t *testing.T) *world {
	t.Parallel()
	w := newInstance(t, int(subnets.Add(1)))
	w.startPlane()
	return w
}

// newInstance returns a control plane with its own folder and ports, not started yet.
func newInstance(t *testing.T, subnet int, settings ...string) *world {
	if err := touchSources(); err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, dir: t.TempDir(), network: fmt.Sprintf("127.30.%d", subnet)}
	allowed := "KUMA_EGRESS_ALLOWED_LOCAL_NETWORKS=127.0.0.0/8" // with all servers of a test
	var err error
	if w.plane, err = mesh.NewPlane(filepath.Join(binaries, "weft"), w.dir, "control-plane",
		append([]string{allowed}, settings...)...); err != nil {
		t.Fatal(err)
	}
	w.cpAddress = "https://" + w.plane.DataPlane
	w.env = append(w.plane.Env,
		fmt.Sprintf("WEFT_API=http://127.0.0.1:%d", w.plane.Ports.API),
		"WEFT_CONFIG="+filepath.Join(w.dir, "home", "config")) // with the links to administrators' sockets
	return w
}

// freePorts returns unused ports.
func freePorts(t *testing.T, n int) []int {
	t.Helper()
	ports, err := testnet.Ports(n)
	if err != nil {
		t.Fatal(err)
	}
	return ports
}

// startPlane starts the control plane, again once it has ended, and returns when it is ready.
func (w *world) startPlane() {
	w.t.Helper()
	w.prepare(w.machine, w.plane.Process)
	if err := w.plane.Run(testwait.Timeout); err != nil {
		w.t.Fatal(err)
	}
}

// address returns an address of this world's subnet.
func (w *world) address(host int) string { return fmt.Sprintf("%s.%d", w.network, host) }

func (w *world) start(name, program string, args ...string) *process.Process {
	w.t.Helper()
	return w.startOn(w.machine, name, program, args...)
}

// startOn starts a program on a machine, as a member of the proxy's group, or on the machine of the tests for nil.
func (w *world) startOn(m *machine, name, program string, args ...string) *process.Process {
	w.t.Helper()
	if !filepath.IsAbs(program) {
		program = filepath.Join(binaries, program)
	}
	p := process.New(w.dir, name, append([]string{program}, args...)...)
	w.prepare(m, p)
	if err := p.Start(); err != nil {
		w.t.Fatal(err)
	}
	return p
}

// prepare has a program run on a machine until the end of the test.
func (w *world) prepare(m *machine, p *process.Process) {
	p.Env, p.Dir = w.env, w.dir
	if m != nil {
		p.Launch = func(command *exec.Cmd) error {
			command.SysProcAttr.Credential = &syscall.Credential{Gid: proxyGroup}
			return m.do(command.Start)
		}
	}
	if slices.Contains(w.processes, p) { // it starts again
		return
	}
	w.processes = append(w.processes, p)
	w.t.Cleanup(func() {
		p.Kill()
		if w.t.Failed() {
			text, _ := os.ReadFile(p.Log)
			w.t.Logf("%s said:\n%s", p.Name, text)
		}
	})
}

// exits waits until a program has exited.
func (w *world) exits(p *process.Process) {
	w.t.Helper()
	testwait.Receive(w.t, p.Name+" exits", p.Exit())
}

// stops stops a program by SIGTERM, and waits until it has exited.
func (w *world) stops(p *process.Process) {
	w.t.Helper()
	if err := p.Signal(syscall.SIGTERM); err != nil {
		w.t.Fatalf("SIGTERM to %s: %v", p.Name, err)
	}
	w.exits(p)
}

// weft runs one command.
func (w *world) weft(args ...string) (string, error) {
	return w.weftWith("", args...)
}

func (w *world) weftWith(input string, args ...string) (string, error) {
	cmd := exec.Command(filepath.Join(binaries, "weft"), args...)
	cmd.Env, cmd.Dir, cmd.Stdin = w.env, w.dir, strings.NewReader(input)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := w.machine.run(cmd); err != nil {
		return out.String(), fmt.Errorf("weft %s: %w: %s", strings.Join(args, " "), err, errs.String())
	}
	return out.String(), nil
}

// apply writes resources. In them, NET stands for the first three bytes of this test's addresses, and LIFE for
// renewedLife.
func (w *world) apply(resources string) {
	w.t.Helper()
	if _, err := w.weftWith(w.expand(resources), "apply", "-f", "-"); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) expand(text string) string {
	// Neither string ends like this in base64.
	return strings.NewReplacer("NET.", w.network+".", ": LIFE", ": "+renewedLife.String()).Replace(text)
}

// file writes a file into the test's folder.
func (w *world) file(name, text string) string {
	w.t.Helper()
	path := filepath.Join(w.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return path
}

// token returns a dataplane token for a name. It vouches for the name only, unless flags state more.
func (w *world) token(mesh, name string, flags ...string) string {
	w.t.Helper()
	return w.generate(append([]string{"--mesh", mesh, "--name", name}, flags...)...)
}

// generate returns a dataplane token.
func (w *world) generate(flags ...string) string {
	w.t.Helper()
	token, err := w.weft(append([]string{"generate", "dataplane-token"}, flags...)...)
	if err != nil {
		w.t.Fatal(err)
	}
	return strings.TrimSpace(token)
}

// proxy starts weft-dp for a Dataplane and waits until it is ready.
func (w *world) proxy(mesh, name, dataplane string) *process.Process {
	w.t.Helper()
	return w.proxyOn(w.machine, mesh, name, dataplane)
}

// proxyOn starts weft-dp on a machine that reaches the control plane, and waits until it is ready.
func (w *world) proxyOn(m *machine, mesh, name, dataplane string) *process.Process {
	w.t.Helper()
	p, ready := w.begin(m, mesh, name, dataplane)
	w.ready(m, p, ready)
	return p
}

// proxies starts weft-dp for Dataplanes of a mesh side by side, and waits until all are ready.
func (w *world) proxies(mesh string, dataplanes ...string) (agents []*process.Process) {
	w.t.Helper()
	var ports []int
	for _, dataplane := range dataplanes {
		p, port := w.begin(w.machine, mesh, nameOf.FindStringSubmatch(dataplane)[1], dataplane)
		agents, ports = append(agents, p), append(ports, port)
	}
	for i, p := range agents {
		w.ready(w.machine, p, ports[i])
	}
	return agents
}

// nameOf finds the name of a resource in YAML.
var nameOf = regexp.MustCompile(`(?m)^name: (\S+)$`)

// begin starts weft-dp on a machine with a token that vouches for its Dataplane, and returns its readiness port.
func (w *world) begin(m *machine, mesh, name, dataplane string) (p *process.Process, ready int) {
	w.t.Helper()
	file := w.file(name+".yaml", w.expand(dataplane))
	return w.beginWith(m, name, dataplane,
		w.generate(append([]string{"--mesh", mesh, "--dataplane-file", file}, w.tokenFlags...)...))
}

// beginWith starts weft-dp on a machine with a token, and returns its readiness port.
func (w *world) beginWith(m *machine, name, dataplane, token string) (p *process.Process, ready int) {
	w.t.Helper()
	ready = freePorts(w.t, 1)[0]
	return w.startOn(m, name, "weft-dp", w.agent(name, dataplane, token, ready).Args(w.agentFlags...)...), ready
}

// agent returns the flags of weft-dp for a Dataplane and a token.
func (w *world) agent(name, dataplane, token string, readiness int) mesh.AgentFlags {
	w.t.Helper()
	return mesh.AgentFlags{Address: w.cpAddress, CA: w.plane.CA(), Dataplane: w.file(name+".yaml", w.expand(dataplane)),
		Token: w.file(name+".token", token), Envoy: envoy, Readiness: readiness}
}

// ready waits until an agent is ready, by a port of its machine.
func (w *world) ready(m *machine, p *process.Process, port int) {
	w.t.Helper()
	url := fmt.Sprintf("http://127.0.0.1:%d/ready", port)
	if err := p.Await(testwait.Timeout, url, func(context.Context) error {
		_, err := m.fetch(url)
		return err
	}); err != nil {
		w.t.Fatal(err)
	}
}

// service starts an HTTP application that responds with its name.
func (w *world) service(host, port int, name string) *http.Server {
	w.t.Helper()
	return w.serve(w.listen(host, port), name)
}

func (w *world) listen(host, port int) net.Listener {
	w.t.Helper()
	return w.machine.listen(w.t, fmt.Sprintf("%s:%d", w.address(host), port))
}

// serve is service at a listener.
func (w *world) serve(l net.Listener, name string) *http.Server {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Protocols: protocols,
		Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(rw, "%s %s", name, r.Header.Get("x-forwarded-client-cert"))
		})}
	go server.Serve(l)
	w.t.Cleanup(func() { server.Close() })
	return server
}

// client is a client of proxies and of applications. Each of its requests ends: a proxy has a timeout for it.
var client = &http.Client{Timeout: testwait.Timeout, Transport: &http.Transport{MaxIdleConnsPerHost: 16}}

func get(url string) error {
	_, err := fetch(url)
	return err
}

func fetch(url string) (string, error) { return fetchBy(client, url) }

func fetchBy(client *http.Client, url string) (string, error) {
	response, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	if response.StatusCode != http.StatusOK {
		return string(body), fmt.Errorf("GET %s: %s: %s", url, response.Status, body)
	}
	return string(body), nil
}

// eventually waits for a result of other programs.
func (w *world) eventually(what string, try func() error) {
	w.t.Helper()
	testwait.Until(w.t, what, try)
}
