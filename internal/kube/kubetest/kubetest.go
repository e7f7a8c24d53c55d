// Package kubetest runs a kube-apiserver and its etcd for the tests of one package.
//
// The programs are those that `make apiserver` builds. Without them a test is skipped, unless the flag -apiserver is
// given: then it fails. No kubelet and no controller runs, so nothing collects garbage and no Pod starts.
package kubetest

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

var required = flag.Bool("apiserver", false, "fail without kube-apiserver and etcd, which `make apiserver` builds")

// startTimeout bounds the start of a program. Both are ready after 5 s on free cores.
const startTimeout = 2 * time.Minute

// adminToken authenticates a user of the group system:masters, which RBAC allows everything.
const adminToken = "admin"

// Server is a running API server. Its data is removed when [Main] ends.
type Server struct {
	programs, dir  string
	etcd, api      *program
	etcdPort, port int
}

var shared struct {
	sync.Once
	*Server
	err error
}

// Main runs the tests of a package, and then stops the server that they started.
func Main(m *testing.M) {
	code := m.Run()
	if shared.Server != nil {
		shared.close()
	}
	os.Exit(code)
}

// Start returns the server of this test run. The first call starts it.
func Start(t testing.TB) *Server {
	t.Helper()
	programs := programs(t)
	shared.Do(func() { shared.Server, shared.err = start(programs) })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.Server
}

// Config returns the configuration of an administrator's client.
func (s *Server) Config() *rest.Config {
	return &rest.Config{
		Host: "https://127.0.0.1:" + strconv.Itoa(s.port), BearerToken: adminToken,
		TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(s.dir, "tls", "apiserver.crt")},
		QPS:             -1, // no limit of requests
	}
}

// programs returns the folder of kube-apiserver and etcd.
func programs(t testing.TB) string {
	t.Helper()
	_, file, _, _ := runtime.Caller(0)
	build := filepath.Join(filepath.Dir(file), "..", "..", "..", "test", "kubernetes", "apiserver", "build")
	out, err := exec.Command(build, "--print").Output()
	if err != nil {
		t.Fatalf("%s: %v", build, err)
	}
	dir := strings.TrimSpace(string(out))
	if _, err := os.Stat(filepath.Join(dir, "kube-apiserver")); err != nil {
		if !*required {
			t.Skip("the build of kube-apiserver takes minutes, once: make apiserver")
		}
		t.Fatalf("kube-apiserver is not built, `make apiserver` does so once, in about 8 minutes: %v", err)
	}
	return dir
}

func start(programs string) (*Server, error) {
	dir, err := os.MkdirTemp("", "weft-apiserver-")
	if err != nil {
		return nil, err
	}
	s := &Server{programs: programs, dir: dir}
	if err := s.run(); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// run starts etcd, then the API server. Another process may take a free port before the program does, so a program
// that ended at once is started again with other ports.
func (s *Server) run() error {
	if err := s.writeFiles(); err != nil {
		return err
	}
	for attempt := 0; ; attempt++ {
		err := s.startEtcd()
		if err == nil {
			break
		}
		if attempt == 3 {
			return err
		}
	}
	for attempt := 0; ; attempt++ {
		port, err := freePort()
		if err != nil {
			return err
		}
		s.port = port
		if err = s.startAPI(); err == nil {
			return nil
		}
		if attempt == 3 {
			return err
		}
	}
}

// writeFiles writes the token of the administrator and the key of service account tokens.
func (s *Server) writeFiles() error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(s.dir, "sa.key"), pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY",
			Bytes: x509.MarshalPKCS1PrivateKey(key)}), 0o600),
		os.WriteFile(filepath.Join(s.dir, "tokens.csv"),
			[]byte(adminToken+`,admin,admin,"system:masters"`+"\n"), 0o600))
}

func (s *Server) startEtcd() error {
	port, err := freePort()
	if err != nil {
		return err
	}
	peers, err := freePort()
	if err != nil {
		return err
	}
	clients, peer := "http://127.0.0.1:"+strconv.Itoa(port), "http://127.0.0.1:"+strconv.Itoa(peers)
	s.etcdPort = port
	s.etcd, err = runProgram(s.programs, "etcd", "--data-dir", filepath.Join(s.dir, "etcd"), "--unsafe-no-fsync",
		"--listen-client-urls", clients, "--advertise-client-urls", clients, "--listen-peer-urls", peer,
		"--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer, "--log-level", "error")
	if err != nil {
		return err
	}
	return s.etcd.ready(clients+"/health", http.DefaultClient)
}

func (s *Server) startAPI() (err error) {
	s.api, err = runProgram(s.programs, "kube-apiserver",
		"--etcd-servers", "http://127.0.0.1:"+strconv.Itoa(s.etcdPort),
		"--bind-address", "127.0.0.1", "--advertise-address", "127.0.0.1", "--endpoint-reconciler-type", "none",
		"--secure-port", strconv.Itoa(s.port), "--cert-dir", filepath.Join(s.dir, "tls"),
		"--service-account-issuer", "https://kubernetes.default.svc",
		"--service-account-key-file", filepath.Join(s.dir, "sa.key"),
		"--service-account-signing-key-file", filepath.Join(s.dir, "sa.key"),
		"--service-cluster-ip-range", "10.96.0.0/16", "--authorization-mode", "RBAC",
		"--token-auth-file", filepath.Join(s.dir, "tokens.csv"), "--shutdown-delay-duration", "0s")
	if err != nil {
		return err
	}
	config := s.Config()
	config.CAFile, config.Insecure = "", true // the server writes its certificate while it starts
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	return s.api.ready(config.Host+"/readyz", client)
}

// StopAPI kills the API server. etcd keeps its data.
func (s *Server) StopAPI() { s.api.kill() }

// StartAPI starts the API server again, at the same port.
func (s *Server) StartAPI(t testing.TB) {
	t.Helper()
	if err := s.startAPI(); err != nil {
		t.Fatal(err)
	}
}

// close stops both programs, the API server first, and removes their data.
func (s *Server) close() {
	s.api.kill()
	s.etcd.kill()
	os.RemoveAll(s.dir)
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// program is a running program.
type program struct {
	name   string
	stop   context.CancelFunc
	exited chan struct{}
	output bytes.Buffer // read once the process has ended
}

// runProgram starts a program, which the kernel kills with this process.
func runProgram(dir, name string, args ...string) (*program, error) {
	ctx, stop := context.WithCancel(context.Background())
	p := &program{name: name, stop: stop, exited: make(chan struct{})}
	cmd := exec.CommandContext(ctx, filepath.Join(dir, name), args...)
	cmd.Stdout, cmd.Stderr = &p.output, &p.output
	endWithParent(cmd)
	started := make(chan error)
	go func() {
		// The signal is sent when the thread that started the program ends.
		runtime.LockOSThread()
		defer close(p.exited)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return p, nil
}

// ready waits until the program responds with success. It returns an error with the program's output once it exited.
func (p *program) ready(url string, client *http.Client) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	retry := time.NewTicker(20 * time.Millisecond)
	defer retry.Stop()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-retry.C:
		case <-p.exited:
			return fmt.Errorf("%s ended: %s", p.name, lastLines(p.output.String()))
		case <-ctx.Done():
			p.kill()
			return fmt.Errorf("%s is not ready after %s: %s", p.name, startTimeout, lastLines(p.output.String()))
		}
	}
}

// kill ends the program, and waits until it has ended. A program that was not started has.
func (p *program) kill() {
	if p != nil {
		p.stop()
		<-p.exited
	}
}

// lastLines returns the end of a program's output.
func lastLines(output string) string {
	lines := strings.Split(strings.TrimSpace(output), "\n")
	return strings.Join(lines[max(0, len(lines)-10):], "\n")
}
