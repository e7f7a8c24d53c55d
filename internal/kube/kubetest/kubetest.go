// Package kubetest runs a kube-apiserver and its etcd for the tests of one package.
//
// The programs are those that `make apiserver` builds. Without them a test is skipped, unless the flag -apiserver is
// given: then it fails. No kubelet and no controller runs, so nothing collects garbage and no Pod starts.
package kubetest

import (
	"encoding/json"
	"errors"
	"flag"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"weft/test/kubernetes/cluster"
)

var required = flag.Bool("apiserver", false, "fail without kube-apiserver and etcd, which `make apiserver` builds")

// Server is a running API server. Its data is removed when [Main] ends.
type Server struct {
	*cluster.Server
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
		shared.Close()
		os.RemoveAll(shared.Dir)
	}
	os.Exit(code)
}

// Start returns the server of this test run. The first call starts it.
func Start(t testing.TB) *Server {
	t.Helper()
	programs, err := cluster.Programs()
	if err != nil {
		if !*required {
			t.Skip(err)
		}
		t.Fatal(err)
	}
	shared.Do(func() { shared.Server, shared.err = start(programs) })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.Server
}

// auditPolicy records the requests of service accounts.
const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, userGroups: ["system:serviceaccounts"]}
- {level: None}
`

const auditLog = "audit.log"

// Request is a request that a service account has sent.
type Request struct {
	Verb      string
	User      struct{ Username string }
	ObjectRef struct{ APIGroup, Resource, Subresource, Namespace, Name string }
	Response  struct{ Code int } `json:"responseStatus"`
}

// Requests returns the requests of a user.
func (s *Server) Requests(t testing.TB, user string) []Request {
	t.Helper()
	file, err := os.Open(filepath.Join(s.Dir, auditLog))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var all []Request
	for decoder := json.NewDecoder(file); ; {
		var r Request
		switch err := decoder.Decode(&r); {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF): // the last line may be incomplete
			return all
		case err != nil:
			t.Fatal(err)
		case r.User.Username == user:
			all = append(all, r)
		}
	}
}

func start(programs string) (*Server, error) {
	dir, err := os.MkdirTemp("", "weft-apiserver-")
	if err != nil {
		return nil, err
	}
	policy := filepath.Join(dir, "audit.yaml")
	if err = os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	server, err := cluster.Start(cluster.Options{Programs: programs, Dir: dir, Flags: []string{
		"--audit-policy-file", policy, "--audit-log-path", filepath.Join(dir, auditLog),
		// Webhooks are called at the endpoints of their Service, without kube-proxy.
		"--enable-aggregator-routing"}})
	if err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	return &Server{server}, nil
}

// Serve runs an HTTP server until stop is called, or the test ends.
func Serve(t testing.TB, at net.Listener, server *http.Server) (stop func()) {
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(at) }()
	stop = sync.OnceFunc(func() {
		server.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// StartAPI starts the API server again, at the same port.
func (s *Server) StartAPI(t testing.TB) {
	t.Helper()
	if err := s.Server.StartAPI(); err != nil {
		t.Fatal(err)
	}
}
