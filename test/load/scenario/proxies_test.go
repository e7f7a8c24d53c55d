package scenario

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"weft/internal/client"
	"weft/internal/diag"
	"weft/internal/xds"
	"weft/kind"
	"weft/test/mesh"
)

// fakePlane is a control plane with Dataplanes and endpoints only.
type fakePlane struct {
	t         *testing.T
	catalog   *xds.Catalog
	endpoints *xds.ResourceSet

	mu       sync.Mutex
	stored   map[string]json.RawMessage // by path
	services map[string]map[string]bool // service, address: ready
}

func (f *fakePlane) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	switch {
	case r.URL.Path == "/tokens/dataplane":
		_, _ = io.WriteString(w, "token")
	case r.Method == http.MethodPut:
		f.stored[r.URL.Path] = body
		if strings.Contains(r.URL.Path, "/dataplanes/") {
			f.dataplane(body)
		}
		_, _ = io.WriteString(w, "{}")
	case r.Method == http.MethodDelete:
		delete(f.stored, r.URL.Path)
		_, _ = io.WriteString(w, "{}")
	default:
		f.read(w, r.URL.Path)
	}
}

func (f *fakePlane) read(w http.ResponseWriter, path string) {
	if one, ok := f.stored[path]; ok {
		_, _ = w.Write(one)
		return
	}
	if path == "/meshes/load" {
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"status": 404, "title": "no such mesh"}`)
		return
	}
	items := []json.RawMessage{}
	for p, body := range f.stored {
		if strings.HasPrefix(p, path+"/") {
			items = append(items, body)
		}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"total": len(items), "items": items})
}

func (f *fakePlane) dataplane(body []byte) {
	var dp kind.Dataplane
	if err := json.Unmarshal(body, &dp); err != nil {
		f.t.Errorf("a Dataplane that is none: %v", err)
		return
	}
	inbound := dp.Networking.Inbound[0]
	service := inbound.Tags[kind.ServiceTag]
	if f.services[service] == nil {
		f.services[service] = map[string]bool{}
	}
	f.services[service][dp.Networking.Address] = inbound.State != kind.NotReady
	locality := &endpointv3.LocalityLbEndpoints{}
	for address, ready := range f.services[service] {
		if ready {
			locality.LbEndpoints = append(locality.LbEndpoints, &endpointv3.LbEndpoint{
				HostIdentifier: &endpointv3.LbEndpoint_Endpoint{
					Endpoint: &endpointv3.Endpoint{Address: socket(address)}}})
		}
	}
	f.endpoints.Commit([]*xds.Resource{
		xds.NewResource(xds.Cluster, service, edsCluster(service)),
		xds.NewResource(xds.Endpoint, service, &endpointv3.ClusterLoadAssignment{
			ClusterName: service, Endpoints: []*endpointv3.LocalityLbEndpoints{locality}}),
		xds.NewResource(xds.Listener, service, &listenerv3.Listener{Name: service}),
	}, nil)
}

func edsCluster(name string) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:                 name,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{
			EdsConfig: &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Ads{}}},
	}
}

// startPlane serves the fake control plane over HTTP, and its configuration over TLS.
func startPlane(t *testing.T) *mesh.Plane {
	f := &fakePlane{t: t, catalog: xds.NewCatalog(), stored: map[string]json.RawMessage{},
		services: map[string]map[string]bool{}}
	f.endpoints = f.catalog.NewResourceSet()
	certificate, root, err := selfSigned()
	if err != nil {
		t.Fatal(err)
	}
	server := xds.NewServer(xds.Config{
		Catalog: f.catalog, Log: slog.New(slog.DiscardHandler),
		Accept: func(_ context.Context, _ *corev3.Node, s *xds.Stream) (xds.Peer, error) {
			s.SetResourceSets(f.endpoints)
			return ignoringPeer{}, nil
		},
	})
	gs := grpc.NewServer(xds.ServerOptions(credentials.NewServerTLSFromCert(&certificate))...)
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(gs, server)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = gs.Serve(listener) }()
	t.Cleanup(gs.Stop)
	return &mesh.Plane{Admin: serveAdmin(t, f), DataPlane: listener.Addr().String(), Roots: rootsOf(root)}
}

// serveAdmin serves an API beside the diagnostics of this process, and returns a client of both.
func serveAdmin(t *testing.T, api http.Handler) *client.Client {
	mux := http.NewServeMux()
	mux.Handle("/", api)
	mux.Handle("/debug/", diag.Handler())
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	c, err := client.New(client.Options{Address: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func rootsOf(root string) *x509.CertPool {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(root))
	return roots
}

type ignoringPeer struct{}

func (ignoringPeer) OnAck(xds.Type)        {}
func (ignoringPeer) NACKed(xds.NACK, bool) {}
func (ignoringPeer) OnClose(error)         {}

// floorHere runs the floor in the test's own process.
func floorHere(ctx context.Context, config FloorConfig) (where ServerAddresses, stop func() error, err error) {
	ctx, cancel := context.WithCancel(ctx)
	out, in := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- ServeFloor(ctx, config, in) }()
	stop = func() error {
		cancel()
		return <-done
	}
	return where, stop, json.NewDecoder(out).Decode(&where)
}

func TestProxiesAreMeasured(t *testing.T) {
	plane := startPlane(t)
	var progress bytes.Buffer
	w := &world{Environment: &Environment{StartFloor: floorHere, Progress: &progress}, Proxies: 6, Services: 3,
		Changes: 10, Idle: time.Millisecond, Quiet: 50 * time.Millisecond, Plane: plane}
	report := &ProxiesReport{}
	if err := runSteps(t.Context(), report, w.measurePlane, w.measureFloor); err != nil {
		t.Fatalf("%v after:\n%s", err, &progress)
	}
	for name, cost := range map[string]Cost{"control plane": report.Plane, "floor": report.Floor} {
		if cost.FirstBytes < 500 || cost.FirstCPUSeconds <= 0 || cost.ChangeCPUMicros <= 0 ||
			cost.ChangeMaxMillis < cost.ChangeP50Millis || cost.ChangeP50Millis <= 0 {
			t.Errorf("%s: impossible values: %+v", name, cost)
		}
	}
	if got := report.Floor.ChangeBytes; got < changeBytes-10 || got > changeBytes {
		t.Errorf("a change of the floor has %d bytes, want about %d", got, changeBytes)
	}
	if got, want := report.Floor.FirstBytes, report.Plane.FirstBytes; got < want*9/10 || got > want*11/10 {
		t.Errorf("the floor's first configuration has %d bytes, the control plane's %d", got, want)
	}
}

func TestClientSubscribesAsEnvoy(t *testing.T) {
	message, err := newReader().decode(sample(t))
	if err != nil {
		t.Fatal(err)
	}
	subscriptions := map[xds.Type][]string{}
	for _, part := range message.parts {
		for typ, names := range part.subscriptions {
			subscriptions[typ] = append(subscriptions[typ], names...)
		}
	}
	want := map[xds.Type][]string{xds.Endpoint: {"backend"}, xds.Secret: {"system_trust_bundle"},
		xds.Route: {"backend-routes"}, xds.Extension: {"rbac", "slot"}}
	for typ, names := range want {
		if got := subscriptions[typ]; !slices.Equal(got, names) {
			t.Errorf("asks for %s %q, want %q", typ, got, names)
		}
	}
}

// A proxy waits for every name but those with a default.
func TestClientWaitsAsEnvoy(t *testing.T) {
	message, err := newReader().decode(sample(t))
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{}
	p.recordMessage(message)
	if p.open != 4 || !p.subscribed[xds.Extension]["slot"] || p.subscribed[xds.Extension]["rbac"] {
		t.Errorf("waits for %d names (%v), want 4 and not the slot", p.open, p.subscribed)
	}
}

func TestPercentile(t *testing.T) {
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(i + 1)
	}
	for percent, want := range map[int]time.Duration{50: 50, 99: 99, 100: 100} {
		if got := percentile(hundred, percent); got != want {
			t.Errorf("p%d of 1 to 100 is %d", percent, got)
		}
	}
	if got := percentile(hundred[:1], 99); got != 1 {
		t.Errorf("p99 of one value is %d", got)
	}
}

func TestReportMarksValuesOverBudget(t *testing.T) {
	report := &ProxiesReport{Plane: Cost{MemoryBytes: 101_000, ChangeP99Millis: 39}, Floor: Cost{ChangeP99Millis: 10}}
	var table bytes.Buffer
	if err := Print(&table, report); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(table.String()) {
		memory := strings.Contains(line, "memory for each")
		if over := strings.Contains(line, "OVER"); over != memory {
			t.Errorf("over budget is the memory alone, and the table says: %s", line)
		}
	}
}
