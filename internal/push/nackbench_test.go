package push

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"weft/internal/graph"
	"weft/internal/mirror"
	"weft/internal/state"
	"weft/internal/testwait"
	"weft/internal/xds"
	"weft/kind"
	"weft/resource"
)

// BenchmarkAProxyThatNACKsEverything measures the cost of one write of a policy about all services, in a mesh of 200
// proxies and 100 services: with 200 proxies that ACK, and with one of them that NACKs every response. The CPU is that
// of the process with its clients, the memory that after all writes, and late the time until the last of the others has
// acked.
func BenchmarkAProxyThatNACKsEverything(b *testing.B) {
	for _, hostile := range []int{0, 1} {
		b.Run(fmt.Sprintf("nacking=%d", hostile), func(b *testing.B) { benchNACKs(b, hostile) })
	}
}

func benchNACKs(b *testing.B, hostile int) {
	const services, proxies = 100, 200
	m := &nackMesh{hub: NewHub(graph.NewState("default"), xds.NewCatalog(), slog.New(slog.DiscardHandler))}
	batch := mirror.Batch{}
	for i := range services {
		name := fmt.Sprint("own-", i)
		batch.Put = append(batch.Put, kind.MeshServices.Make(mesh, name, kind.MeshService{
			Selector: kind.ServiceSelector{DataplaneTags: map[string]string{kind.ServiceTag: name}},
			Ports:    []kind.ServicePort{{Port: 80, TargetPort: &kind.PortRef{Number: 8080}, AppProtocol: kind.HTTP}},
		}))
	}
	for i := range proxies {
		batch.Put = append(batch.Put, benchDataplane(i), benchServing(i, false))
	}
	for i := range 20 {
		batch.Put = append(batch.Put, timeoutAbout(fmt.Sprint("p", i), nil, fmt.Sprint("own-", i), i+1))
	}
	batch.Put = append(batch.Put, m.policy(0))
	m.hub.Apply(batch)
	dial := m.serve(b)
	for i := range proxies {
		m.connect(b, dial(), fmt.Sprint("d", i), i < hostile)
	}
	for len(m.server.Streams()) < proxies {
		testwait.Pass(10*time.Millisecond, "streams are accepted one by one")
	}
	m.await(b)
	testwait.Pass(500*time.Millisecond, "the exceptions of the first configuration")
	cpu, late, n := processCPU(), time.Duration(0), 0
	responses := m.nacked.Load()
	for b.Loop() {
		n++
		began := time.Now()
		m.hub.Apply(mirror.Batch{Put: []resource.Any{m.policy(n)}})
		m.await(b)
		late += time.Since(began)
		testwait.Pass(20*time.Millisecond, "the proxy that NACKs goes on")
	}
	b.ReportMetric(float64(processCPU()-cpu)/float64(n)/1e6, "cpu-ms/write")
	b.ReportMetric(float64(late)/float64(n)/1e6, "late-ms/write")
	b.ReportMetric(float64(m.nacked.Load()-responses)/float64(n), "nacks/write")
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	b.ReportMetric(float64(stats.HeapAlloc)/(1<<20), "MB")
}

func processCPU() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// nackMesh is a hub with streams. It stores the exceptions of proxies as the server of proxies does.
type nackMesh struct {
	hub     *Hub
	server  *xds.Server
	hostile sync.Map // names
	nacked  atomic.Int64
}

// policy is a MeshTimeout about all services in its n-th version.
func (m *nackMesh) policy(n int) resource.Any {
	timeout := kind.Duration(time.Duration(n+1) * time.Second)
	o := kind.MeshTimeouts.Make(mesh, "all", kind.MeshTimeout{To: []kind.ToItem[kind.TimeoutConf]{{
		TargetRef: kind.DestinationRef{Kind: "Mesh"}, Default: kind.TimeoutConf{ConnectionTimeout: &timeout}}}})
	o.Version, o.Modified = fmt.Sprint(n), time.Unix(int64(n), 0)
	return o
}

// serve returns a function that returns a client with a connection of its own.
func (m *nackMesh) serve(b *testing.B) func() discoveryv3.AggregatedDiscoveryServiceClient {
	m.server = xds.NewServer(xds.Config{Catalog: m.hub.catalog, Log: slog.New(slog.DiscardHandler),
		Accept: func(_ context.Context, node *corev3.Node, stream *xds.Stream) (xds.Peer, error) {
			_, name, _ := strings.Cut(node.Id, ".")
			p := &nackPeer{nackMesh: m, key: state.ProxyKey{Mesh: mesh, Name: name}, stream: stream}
			_, err := m.hub.Proxies.Attach(p.key, stream)
			return p, err
		}})
	listener := bufconn.Listen(1 << 16)
	g := grpc.NewServer(xds.ServerOptions(insecure.NewCredentials())...)
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, m.server)
	go func() { _ = g.Serve(listener) }()
	b.Cleanup(g.Stop)
	return func() discoveryv3.AggregatedDiscoveryServiceClient {
		conn, err := grpc.NewClient("passthrough:memory",
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
				return listener.DialContext(ctx)
			}))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { conn.Close() })
		return discoveryv3.NewAggregatedDiscoveryServiceClient(conn)
	}
}

func (m *nackMesh) connect(b *testing.B, client discoveryv3.AggregatedDiscoveryServiceClient, name string, nacks bool) {
	stream, err := client.DeltaAggregatedResources(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	if nacks {
		m.hostile.Store(mesh+"."+name, true)
	}
	for _, t := range []xds.Type{xds.Cluster, xds.Listener} {
		if err := stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: mesh + "." + name},
			TypeUrl: t.URL()}); err != nil {
			b.Fatal(err)
		}
	}
	go func() {
		for {
			response, err := stream.Recv()
			if err != nil {
				return
			}
			request := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: response.TypeUrl, ResponseNonce: response.Nonce}
			if nacks {
				m.nacked.Add(1)
				request.ErrorDetail = &rpcstatus.Status{Message: strings.Repeat("no ", 2000)}
			}
			if stream.Send(request) != nil {
				return
			}
		}
	}()
}

// await waits until all proxies that ACK are in sync.
func (m *nackMesh) await(b *testing.B) {
	var streams []*xds.Stream
	for _, s := range m.server.Streams() {
		if _, hostile := m.hostile.Load(s.Node()); !hostile {
			streams = append(streams, s)
		}
	}
	if _, err := xds.WaitAcked(b.Context(), streams, m.hub.catalog.Revision(), nil); err != nil {
		b.Fatal(err)
	}
}

// nackPeer stores the NACKs and the exceptions of a proxy.
type nackPeer struct {
	*nackMesh
	key        state.ProxyKey
	stream     *xds.Stream
	exceptions []kind.Exception
}

func (p *nackPeer) OnAck(xds.Type) {}
func (p *nackPeer) OnClose(error)  {}
func (p *nackPeer) NACKed(_ xds.NACK, last bool) {
	if !last {
		return
	}
	var nacks []kind.NACK
	all := p.stream.NACKs()
	for _, nack := range all[:min(20, len(all))] {
		nacks = append(nacks, kind.NACK{Type: nack.Type.String(), Name: nack.Name, Version: nack.Version,
			Message: nack.Message, Causes: p.hub.Rows.Causes(p.key, nack.Type, nack.Name)})
	}
	p.exceptions = p.hub.Proxies.Exceptions(p.key, p.stream, nacks, p.exceptions)
	p.hub.Apply(mirror.Batch{Put: []resource.Any{kind.DataplaneInsights.Make(mesh, p.key.Name,
		kind.DataplaneInsight{NACKs: nacks, Exceptions: p.exceptions})}})
}
