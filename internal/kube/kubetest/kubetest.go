// Package kubetest runs a kube-apiserver and its etcd for the tests of one package.
//
// The programs are those that `make apiserver` builds. A test is skipped unless the flag -apiserver is given: then it
// fails without them. No kubelet and no controller runs, so nothing collects garbage and no Pod starts.
package kubetest

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"testing"

	"weft/internal/testnet"
	"weft/test/kubernetes/cluster"
)

var enabled = flag.Bool("apiserver", false, "run the tests with kube-apiserver and etcd, which `make apiserver` builds")

// Server is a running API server. Its data is removed when [Main] ends.
type Server struct {
	*cluster.Server
}

var shared struct {
	sync.Once
	*Server
	err error
}

// Main runs the tests of a package in a network of their own, and then stops the server that they started.
func Main(m *testing.M) {
	flag.Parse()
	if *enabled {
		// From the network of the tests no module can be downloaded.
		if _, err := moduleOfGatewayAPI(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(testnet.Run(func() int {
		code := m.Run()
		if shared.Server != nil {
			shared.Close()
			os.RemoveAll(shared.Dir)
		}
		return code
	}))
}

// Start returns the server of this test run. The first call starts it.
func Start(t testing.TB) *Server {
	t.Helper()
	if !*enabled {
		t.Skip("without -apiserver: `make test-real` runs this test")
	}
	programs, err := cluster.Programs()
	if err != nil {
		t.Fatal(err)
	}
	shared.Do(func() { shared.Server, shared.err = start(programs) })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.Server
}

// Request is a request that a service account has sent.
type Request = cluster.Request

// Requests returns the requests of a user.
func (s *Server) Requests(t testing.TB, user string) []Request {
	t.Helper()
	all, _, err := s.Server.Requests(user, 0)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func start(programs string) (*Server, error) {
	dir, err := os.MkdirTemp("", "weft-apiserver-")
	if err != nil {
		return nil, err
	}
	server, err := cluster.Start(cluster.Options{Programs: programs, Dir: dir, Audit: true, Flags: []string{
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
