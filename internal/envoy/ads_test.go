package envoy

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"weft/internal/testwait"
	"weft/internal/xds"
)

// adsEnvoy is a real Envoy that gets its resources over delta ADS, as from a control plane. Only its secrets are
// static.
type adsEnvoy struct {
	t      *testing.T
	set    *xds.ResourceSet
	stream *xds.Stream
	admin  string
}

// serveEnvoy runs an Envoy and returns once it has all resources and accepts connections.
func serveEnvoy(t *testing.T, resources ...*xds.Resource) *adsEnvoy {
	t.Helper()
	catalog := xds.NewCatalog()
	s := &adsEnvoy{t: t, set: catalog.NewResourceSet()}
	bootstrap, rest := withStaticSecrets(t, resources)
	accepted := make(chan *xds.Stream, 1)
	bootstrap.StaticResources.Clusters[0].LoadAssignment.Endpoints[0].LbEndpoints[0] =
		lbEndpoint("127.0.0.1", serveADS(t, catalog, s.set, accepted))
	bootstrap.DynamicResources.CdsConfig, bootstrap.DynamicResources.LdsConfig = ads(), ads()
	admin := freePort(t)
	s.admin = fmt.Sprintf("http://127.0.0.1:%d", admin)
	bootstrap.Admin = &bootstrapv3.Admin{Address: socketAddress("127.0.0.1", admin)}
	revision := s.set.Commit(rest, nil)
	runEnvoy(t, writeBootstrap(t, bootstrap))
	s.stream = testwait.Receive(t, "Envoy opens a stream", accepted)
	s.wait(revision)
	listeners := 0
	for _, r := range rest {
		if r.Type == xds.Listener {
			listeners++
		}
	}
	// Envoy acks a listener before its worker, the only one, accepts connections.
	testwait.UntilTrue(t, "the worker has every listener", func() bool {
		return s.stat("listener_manager.listener_create_success") >= listeners
	})
	return s
}

// withStaticSecrets returns a bootstrap with the secrets, and the other resources with references to these.
func withStaticSecrets(t *testing.T, resources []*xds.Resource) (*bootstrapv3.Bootstrap, []*xds.Resource) {
	t.Helper()
	var secrets, rest []*xds.Resource
	resolve := &resolver{secrets: map[string]bool{}}
	for _, r := range resources {
		if r.Type == xds.Secret {
			secrets, resolve.secrets[r.Name] = append(secrets, r), true
		} else {
			rest = append(rest, r)
		}
	}
	for i, r := range rest {
		m := message(t, r)
		visit(t, m, resolve.resolve)
		rest[i] = xds.NewResource(r.Type, r.Name, m)
	}
	return static(t, secrets), rest
}

func serveADS(t *testing.T, catalog *xds.Catalog, set *xds.ResourceSet, accepted chan<- *xds.Stream) (port uint32) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(xds.ServerOptions(insecure.NewCredentials())...)
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, xds.NewServer(xds.Config{
		Catalog: catalog,
		Accept: func(_ context.Context, _ *corev3.Node, stream *xds.Stream) (xds.Peer, error) {
			stream.SetResourceSets(set)
			accepted <- stream
			return accepting{t}, nil
		},
		Log: slog.New(slog.DiscardHandler),
	}))
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return uint32(listener.Addr().(*net.TCPAddr).Port)
}

// accepting fails the test where Envoy rejects a resource.
type accepting struct{ t *testing.T }

func (accepting) OnAck(xds.Type) {}
func (a accepting) NACKed(nack xds.NACK, _ bool) {
	a.t.Errorf("Envoy rejects %s %s: %s", nack.Type, nack.Name, nack.Message)
}
func (accepting) OnClose(error) {}

// change changes and removes resources, and returns once Envoy has acked that.
func (s *adsEnvoy) change(changed []*xds.Resource, removed ...xds.Key) {
	s.t.Helper()
	s.wait(s.set.Commit(changed, removed))
}

func (s *adsEnvoy) wait(revision uint64) {
	s.t.Helper()
	if err := s.stream.WaitAcked(testwait.Context(s.t), revision); err != nil {
		s.t.Fatal(err)
	}
}

// stat returns a counter or gauge of Envoy, or 0 where Envoy has none of the name.
func (s *adsEnvoy) stat(name string) int {
	s.t.Helper()
	return statAt(s.t, s.admin, name)
}

// statAt returns the counter or gauge of the Envoy with an administration interface.
func statAt(t *testing.T, admin, name string) int {
	t.Helper()
	response, err := http.Get(admin + "/stats?filter=^" + name + "$")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	_, value, found := strings.Cut(strings.TrimSpace(string(body)), ": ")
	if !found {
		return 0
	}
	n, err := strconv.Atoi(value)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
