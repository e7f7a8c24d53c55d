package push

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"weft/internal/admission"
	"weft/internal/bubble"
	"weft/internal/envoy"
	"weft/internal/graph"
	"weft/internal/mirror"
	"weft/internal/replica"
	"weft/internal/state"
	"weft/internal/store"
	"weft/internal/store/memory"
	"weft/internal/testwait"
	"weft/internal/xds"
	"weft/kind"
	"weft/resource"
)

// replicas are the replicas of a control plane on one store, in a bubble.
type replicas struct {
	t      *testing.T
	rows   store.Store
	writer *admission.Writer
	all    []*testReplica
}

// testReplica is one replica, with the streams of its clients.
type testReplica struct {
	*Hub
	id     string
	rows   *replicas
	member *replica.Member
	client discoveryv3.AggregatedDiscoveryServiceClient
	stop   func()
}

func startReplicas(t *testing.T, n int) *replicas {
	t.Helper()
	rows := memory.New(memory.Options{})
	t.Cleanup(func() { rows.Close() })
	writer := admission.New(rows, admission.Options{Zone: "default", Patches: envoy.TypeNames(nil)})
	rs := &replicas{t: t, rows: rows, writer: writer}
	for i := range n {
		rs.all = append(rs.all, rs.start(fmt.Sprint("cp-", i+1)))
		testwait.Pass(2*time.Second, simulated) // the first one leads
	}
	return rs
}

func (rs *replicas) first() *testReplica { return rs.all[0] }
func (rs *replicas) last() *testReplica  { return rs.all[len(rs.all)-1] }

func (rs *replicas) start(id string) *testReplica {
	rs.t.Helper()
	ctx, cancel := context.WithCancel(rs.t.Context())
	log := slog.New(slog.DiscardHandler)
	g, catalog := graph.NewState("default"), xds.NewCatalog()
	r := &testReplica{Hub: NewHub(g, catalog, log), id: id, rows: rs}
	var err error
	r.member, err = replica.Join(ctx, replica.Config{
		ID: id, Store: rs.rows, Writer: rs.writer, LocalAcked: r.Acks.Here, Lost: Bound, Log: log,
		HasLostClients: func(string) bool { return false },
	})
	if err != nil {
		rs.t.Fatal(err)
	}
	r.Use(ctx, Callbacks{Waiter: Streams{}, Replicas: r.member, Version: mirror.StoredIn(rs.rows)})
	wait, err := mirror.Start(ctx, mirror.Config{Store: rs.rows, Kinds: g.Tables.Kinds(), Decode: admission.Decode,
		Apply: r.Apply, Log: log})
	if err != nil {
		rs.t.Fatal(err)
	}
	ran := make(chan struct{})
	go func() { defer close(ran); r.member.Run(ctx) }()
	hangUp := r.serve(xds.NewServer(xds.Config{Catalog: catalog, Accept: r.accept, Log: log}))
	r.stop = sync.OnceFunc(func() { hangUp(); cancel(); <-ran; wait() })
	rs.t.Cleanup(r.stop)
	return r
}

// serve serves streams over memory.
func (r *testReplica) serve(server *xds.Server) (stop func()) {
	listener := bufconn.Listen(1 << 16)
	g := grpc.NewServer(xds.ServerOptions(insecure.NewCredentials())...)
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, server)
	go g.Serve(listener)
	conn, err := grpc.NewClient("passthrough:memory", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return listener.DialContext(ctx)
		}))
	if err != nil {
		r.rows.t.Fatal(err)
	}
	r.client = discoveryv3.NewAggregatedDiscoveryServiceClient(conn)
	return func() { conn.Close(); g.Stop() }
}

// streamPeer records the subscription of a stream, as the server of proxies does.
type streamPeer struct {
	*testReplica
	key    state.ProxyKey
	detach func()
}

func (p *streamPeer) OnAck(xds.Type)        {}
func (p *streamPeer) NACKed(xds.NACK, bool) {}
func (p *streamPeer) OnClose(error) {
	p.detach()
	p.subscribe(p.key, &kind.Time{Time: time.Now()})
}

func (r *testReplica) accept(_ context.Context, node *corev3.Node, stream *xds.Stream) (xds.Peer, error) {
	mesh, name, _ := strings.Cut(node.Id, ".")
	key := state.ProxyKey{Mesh: mesh, Name: name}
	detach, err := r.Proxies.Attach(key, stream)
	if err != nil {
		return nil, err
	}
	r.subscribe(key, nil)
	return &streamPeer{r, key, detach}, nil
}

// subscribe stores the last subscription of a proxy, which is at this replica.
func (r *testReplica) subscribe(key state.ProxyKey, disconnected *kind.Time) {
	_ = admission.Modify(context.Background(), r.rows.writer, key.InsightKind(), key.Mesh, key.Name,
		func(o *resource.Object[kind.DataplaneInsight]) bool {
			n := len(o.Spec.Subscriptions)
			if disconnected != nil && n > 0 && o.Spec.Subscriptions[n-1].ControlPlaneInstanceID != r.id {
				return false // it is at another replica by now
			}
			o.Spec.Subscriptions = []kind.Subscription{{ControlPlaneInstanceID: r.id, DisconnectTime: disconnected}}
			return true
		})
}

// behavior is how an Envoy responds to configuration.
type behavior int32

const (
	accepts behavior = iota
	rejects
	hangs
)

// fakeEnvoy is the client of a stream.
type fakeEnvoy struct {
	behavior atomic.Int32
	hangUp   func()
}

// connect opens the stream of a proxy at a replica.
func (r *testReplica) connect(key state.ProxyKey, b behavior) *fakeEnvoy {
	t := r.rows.t
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := r.client.DeltaAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	e := &fakeEnvoy{hangUp: cancel}
	e.behavior.Store(int32(b))
	for _, kind := range []xds.Type{xds.Cluster, xds.Listener} {
		if err := stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: kind.URL(),
			Node: &corev3.Node{Id: key.String()}}); err != nil {
			t.Fatal(err)
		}
	}
	go e.respond(stream)
	testwait.Pass(time.Second, simulated)
	return e
}

func (e *fakeEnvoy) respond(stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient) {
	for {
		response, err := stream.Recv()
		if err != nil {
			return
		}
		reply := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: response.TypeUrl, ResponseNonce: response.Nonce}
		switch behavior(e.behavior.Load()) {
		case hangs:
			continue
		case rejects:
			reply.ErrorDetail = &rpcstatus.Status{Message: "duplicate address"}
		}
		_ = stream.Send(reply) // Recv returns the reason
	}
}

const otherMesh = "shop"

// newWaits starts replicas with two meshes, each with a service and a quick client at the first replica.
func newWaits(t *testing.T, n int) *replicas {
	rs := startReplicas(t, n)
	for _, m := range []string{mesh, otherMesh} {
		storeAll(t, rs.rows, kind.Meshes.Make("", m, kind.Mesh{}), clientOf(m, "quick"))
	}
	testwait.Pass(time.Second, simulated)
	for _, m := range []string{mesh, otherMesh} {
		rs.first().connect(state.ProxyKey{Mesh: m, Name: "quick"}, accepts)
	}
	return rs
}

func clientOf(mesh, name string) resource.Any {
	return kind.Dataplanes.Make(mesh, name, kind.Dataplane{Networking: kind.Networking{
		Address: "10.0.0.9", TransparentProxying: &kind.TransparentProxying{},
	}})
}

// change changes the configuration of every client, and of the service that the waits are about.
func (rs *replicas) change() {
	for _, m := range []string{mesh, otherMesh} {
		storeAll(rs.t, rs.rows, kind.MeshServices.Make(m, "web", kind.MeshService{
			Selector: kind.ServiceSelector{DataplaneTags: map[string]string{kind.ServiceTag: "web"}},
			Ports:    []kind.ServicePort{{Port: 8080}},
		}))
	}
	testwait.Pass(time.Second, simulated)
}

// simulated is why the tests of waits sleep: they run in a bubble.
const simulated = "the time is simulated"

// slowClient is the client that a wait meets, at the last replica.
type slowClient struct {
	*replicas
	*fakeEnvoy
	key state.ProxyKey
}

// situation is what a client does during a wait.
type situation struct {
	mesh     string // empty: that of the wait
	lifetime time.Duration
	behavior behavior
	event    func(*slowClient) // once the wait runs; nil: nothing happens
}

var situations = map[string]situation{
	"one of another mesh rejects":                      certified(rejects, nil).of(otherMesh),
	"one of another mesh hangs":                        certified(hangs, nil).of(otherMesh),
	"one rejects":                                      certified(rejects, nil),
	"one hangs":                                        certified(hangs, nil),
	"one hangs, and disconnects":                       certified(hangs, (*slowClient).disconnect),
	"one hangs, and its Dataplane is deleted":          certified(hangs, (*slowClient).delete),
	"one without a certificate rejects":                {behavior: rejects},
	"one without a certificate hangs":                  {behavior: hangs},
	"one without a certificate hangs, and disconnects": {behavior: hangs, event: (*slowClient).disconnect},
	"one hangs, and its certificate expires": {lifetime: 10 * time.Second, behavior: hangs,
		event: (*slowClient).disconnect},
	"one hangs, and acks at another replica": certified(hangs, func(c *slowClient) {
		c.disconnect()
		c.ackAtFirst()
	}),
	"one hangs, and goes on hanging at another replica": certified(hangs, func(c *slowClient) {
		c.disconnect()
		c.hangAtFirst()
	}),
}

// certified is the situation of a client of the wait's mesh with a certificate.
func certified(b behavior, event func(*slowClient)) situation {
	return situation{lifetime: time.Hour, behavior: b, event: event}
}

func (s situation) of(mesh string) situation { s.mesh = mesh; return s }

func (c *slowClient) disconnect() { c.hangUp(); testwait.Pass(time.Second, simulated) }

func (c *slowClient) ackAtFirst()  { c.first().connect(c.key, accepts) }
func (c *slowClient) hangAtFirst() { c.first().connect(c.key, hangs) }

func (c *slowClient) delete() {
	err := c.writer.Delete(c.t.Context(), c.key.Resource(), admission.Change{ControlPlane: true})
	if err != nil {
		c.t.Error(err)
	}
	c.disconnect()
}

// outcome runs a wait in a situation for 12 seconds, and returns "ends" or the clients that it waits for.
func outcome(t *testing.T, n int, wait kind.AckWait, s situation) (result string) {
	bubble.Test(t, func(t *testing.T) {
		rs := newWaits(t, n)
		c := &slowClient{replicas: rs, key: state.ProxyKey{Mesh: cmp.Or(s.mesh, mesh), Name: "slow"}}
		isIngress := wait == kind.IngressForwards && c.key.Mesh == mesh
		if isIngress {
			storeAll(t, rs.rows, zoneIngressOf("slow", "10.0.0.1"),
				told(kind.ZoneProxyAddress{Name: "slow", Address: "192.168.1.100", Port: 30001, Healthy: true}))
		} else {
			storeAll(t, rs.rows, clientOf(c.key.Mesh, c.key.Name))
		}
		if s.lifetime > 0 {
			storeAll(t, rs.rows, certificateOf(c.key, s.lifetime))
		}
		testwait.Pass(time.Second, simulated)
		c.fakeEnvoy = rs.last().connect(c.key, accepts)
		c.behavior.Store(int32(s.behavior))
		if isIngress {
			storeAll(t, rs.rows, zoneIngressOf("slow", "10.0.0.2"))
		}
		rs.change()
		result = c.await(wait, s.event)
	})
	return result
}

func certificateOf(key state.ProxyKey, lifetime time.Duration) resource.Any {
	return kind.DataplaneCertificatesList.Make(key.Mesh, key.Name, kind.DataplaneCertificates{
		Certificates: []kind.WorkloadCertificate{{SpiffeIDs: kind.SpiffeIDsOf("spiffe://m/slow"), Root: "root",
			Until: kind.Time{Time: time.Now().Add(lifetime)}}},
	})
}

func (c *slowClient) await(wait kind.AckWait, event func(*slowClient)) string {
	clients := kind.AckClients{Wait: wait, Mesh: mesh}
	if wait == kind.IngressForwards {
		ingress := kind.Dataplanes.Key(mesh, c.key.Name)
		clients = kind.AckClients{Wait: wait, Proxy: &ingress}
	}
	ctx, cancel := context.WithTimeout(c.t.Context(),
		testwait.Input(20*time.Second, "the timeout of the wait, in simulated time"))
	defer cancel()
	var last atomic.Pointer[kind.PendingAcks]
	ended := make(chan error, 1)
	go func() {
		acks := c.first().Acks
		ended <- acks.everywhere(ctx, clients, acks.revision(),
			[]resource.Key{kind.MeshServices.Key(mesh, "web")}, func(p kind.PendingAcks) { last.Store(&p) })
	}()
	testwait.Pass(2*time.Second, simulated)
	if event != nil {
		event(c)
	}
	testwait.Pass(10*time.Second, simulated)
	synctest.Wait()
	select {
	case err := <-ended:
		if err != nil {
			c.t.Errorf("the wait ended with %v", err)
		}
		return "ends"
	default:
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		c.t.Errorf("the wait ended with %v", err)
	}
	if p := last.Load(); p != nil {
		return "waits for " + p.String()
	}
	return "waits for no client"
}

const waitsForSlow = "waits for Dataplane default/slow"

// delays are the situations that delay each wait of a zone. Any other situation ends it.
var delays = map[kind.AckWait][]string{
	kind.CertifiedApply: {
		"one rejects", "one hangs", "one hangs, and disconnects", "one hangs, and goes on hanging at another replica",
	},
	kind.ProxiesApply: {
		"one rejects", "one hangs", "one hangs, and disconnects", "one hangs, and goes on hanging at another replica",
		"one without a certificate rejects", "one without a certificate hangs",
	},
	kind.ConnectedApply: {
		"one rejects", "one hangs", "one hangs, and disconnects", "one hangs, and goes on hanging at another replica",
		"one without a certificate rejects", "one without a certificate hangs",
	},
	kind.EndpointRemoved: {
		"one rejects", "one hangs", "one hangs, and disconnects", "one hangs, and goes on hanging at another replica",
		"one without a certificate rejects", "one without a certificate hangs",
		"one without a certificate hangs, and disconnects", "one hangs, and its certificate expires",
		"one hangs, and its Dataplane is deleted",
	},
	kind.ProxyDrained: {"one hangs", "one without a certificate hangs"},
	kind.IngressForwards: {
		"one hangs", "one without a certificate hangs", "one hangs, and disconnects",
		"one without a certificate hangs, and disconnects", "one hangs, and its certificate expires",
		"one hangs, and its Dataplane is deleted", "one hangs, and goes on hanging at another replica",
	},
}

// TestAWaitIsForTheSameClientsWithOneAndWithThreeReplicas: a situation delays a wait with three replicas, whose last
// one has the client, if it does with one, and the wait names the client.
func TestAWaitIsForTheSameClientsWithOneAndWithThreeReplicas(t *testing.T) {
	for wait, delays := range delays {
		for name, s := range situations {
			t.Run(fmt.Sprint(wait, "/", name), func(t *testing.T) {
				want := "ends"
				if slices.Contains(delays, name) {
					want = waitsForSlow
				}
				for _, n := range []int{1, 3} {
					if got := outcome(t, n, wait, s); got != want {
						t.Errorf("with %d replicas it %s, and it should be: %s", n, got, want)
					}
				}
			})
		}
	}
}

// TestEveryWaitIsCompared: a wait that replicas know has a row above, or belongs to global.
func TestEveryWaitIsCompared(t *testing.T) {
	for _, wait := range kind.AckWaits {
		_, compared := delays[wait]
		if _, known := localWaits[wait]; known != compared || !known && wait != kind.ZonesApply {
			t.Errorf("%s: an instance waits for it: %t, and it is compared: %t", wait, known, compared)
		}
	}
	for wait := range delays {
		if !slices.Contains(kind.AckWaits, wait) {
			t.Errorf("%s is not in kind.AckWaits", wait)
		}
	}
}

// TestAWaitEndsWithItsReplica: the clients of a replica that dies are waited for until they have acked at another one,
// their certificates have expired or their Dataplanes are deleted. The text names them meanwhile.
func TestAWaitEndsWithItsReplica(t *testing.T) {
	for name, c := range map[string]struct {
		event func(*slowClient)
		want  string
	}{
		"its client acks at another replica":       {(*slowClient).ackAtFirst, "ends"},
		"its client is pending at another replica": {(*slowClient).hangAtFirst, waitsForSlow},
		"its client is pending at one that has responded": {func(c *slowClient) {
			c.all[1].connect(c.key, hangs)
		}, waitsForSlow},
		"its client stays away":                  {func(*slowClient) {}, waitsForSlow},
		"the Dataplane of its client is deleted": {(*slowClient).delete, "ends"},
	} {
		t.Run(name, func(t *testing.T) {
			s := certified(hangs, func(slow *slowClient) {
				slow.last().stop()
				testwait.Pass(time.Second, simulated)
				c.event(slow)
			})
			if got := outcome(t, 3, kind.CertifiedApply, s); got != c.want {
				t.Errorf("it %s, and it should be: %s", got, c.want)
			}
		})
	}
}
