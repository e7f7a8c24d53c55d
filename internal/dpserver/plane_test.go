package dpserver_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	"weft/internal/admission"
	"weft/internal/audit"
	"weft/internal/dpserver"
	"weft/internal/envoy"
	"weft/internal/graph"
	"weft/internal/mirror"
	"weft/internal/pki"
	"weft/internal/push"
	"weft/internal/replica"
	"weft/internal/store"
	"weft/internal/store/memory"
	"weft/internal/store/storetest"
	"weft/internal/testwait"
	"weft/internal/wire"
	"weft/internal/xds"
	"weft/kind"
	"weft/resource"
)

// plane is a control plane without its API, in memory, and a connection to its data plane server.
type plane struct {
	t      *testing.T
	rows   *storetest.Outage
	writer *admission.Writer
	server *dpserver.Server
	// renews is [dpserver.Config.RenewsUnrecorded].
	renews atomic.Bool
	conn   *grpc.ClientConn
	agent  wire.AgentClient
	audit  bytes.Buffer // written before the response
}

// signingKey is generated once: RSA keys are slow to generate.
var signingKey = sync.OnceValue(func() []byte {
	text, err := pki.NewSigningKey()
	if err != nil {
		panic(err)
	}
	return text
})

// newPlane has the mesh default with a token signing key, an empty mesh other without one, and the given resources.
func newPlane(t *testing.T, given ...resource.Any) *plane {
	t.Helper()
	return newPlaneOf(t, alone, given...)
}

// alone is the only instance on its store.
func alone(context.Context, store.Store, *admission.Writer) *replica.Member {
	return replica.NewSingle(replica.Config{ID: "cp-1"})
}

// newPlaneOf is newPlane for an instance that may share the store with others.
func newPlaneOf(t *testing.T, instance func(context.Context, store.Store, *admission.Writer) *replica.Member,
	given ...resource.Any) *plane {
	t.Helper()
	return newPlaneFor(t, nil, instance, given...)
}

// newPlaneFor is newPlaneOf with what verifies the tokens of Pods.
func newPlaneFor(t *testing.T, pods dpserver.PodTokens, instance func(context.Context, store.Store,
	*admission.Writer) *replica.Member, given ...resource.Any) *plane {
	t.Helper()
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	ctx, cancel := context.WithCancel(t.Context())
	rows := &storetest.Outage{Store: memory.New(memory.Options{})}
	writer := admission.New(rows, admission.Options{Zone: "east", Patches: envoy.TypeNames(nil)})
	state := graph.NewState("east")
	catalog := xds.NewCatalog()
	hub := push.NewHub(state, catalog, log)
	self := instance(ctx, rows, writer)
	p := &plane{t: t, rows: rows, writer: writer}
	server := dpserver.New(dpserver.Config{Rows: hub.Rows, Proxies: hub.Proxies, Acks: hub.Acks,
		AwaitAdditions: hub.Additions.Await, Keys: pki.NewKeyring(hub.Rows.Secret), Pods: pods, Nodes: nodes{},
		Audit: audit.New(&p.audit, "cp-1", time.Now, log), Writer: writer, Catalog: catalog, Zone: "east",
		Instance: self, RenewsUnrecorded: p.renews.Load, Log: log})
	hub.Follow(server.Observe)
	hub.Use(ctx, push.Callbacks{Waiter: push.Streams{}, Replicas: self})
	p.server = server
	p.put(kind.Meshes.Make("", "default", kind.Mesh{}))
	p.put(kind.Meshes.Make("", "other", kind.Mesh{}))
	p.put(kind.Secrets.Make("default", pki.DataplaneRealm("default").SigningKey("1").Name,
		kind.Secret{Data: signingKey()}))
	for _, o := range given {
		p.put(o)
	}

	wait, err := mirror.Start(ctx, mirror.Config{Store: rows, Kinds: state.Tables.Kinds(), Decode: admission.Decode,
		Apply: hub.Apply, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	p.connect(ctx, server)
	ended := make(chan struct{})
	go func() { defer close(ended); server.Run(ctx) }()
	t.Cleanup(func() { cancel(); wait(); <-ended; rows.Close() })
	return p
}

func (p *plane) connect(ctx context.Context, server *dpserver.Server) {
	dir := p.t.TempDir()
	certificate, err := pki.ServerCertificate(dir, nil, time.Now())
	if err != nil {
		p.t.Fatal(err)
	}
	g :=
		grpc.NewServer(
			xds.ServerOptions(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{certificate}}))...)
	server.Register(g)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		p.t.Fatal(err)
	}
	go g.Serve(listener)
	context.AfterFunc(ctx, g.Stop)
	trust, err := credentials.NewClientTLSFromFile(dir+"/ca.crt", "localhost")
	if err != nil {
		p.t.Fatal(err)
	}
	if p.conn, err = grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(trust)); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { p.conn.Close() })
	p.agent = wire.NewAgentClient(p.conn)
}

func (p *plane) put(o resource.Any) {
	p.t.Helper()
	if _, err := p.writer.Put(p.t.Context(), o, admission.Change{ControlPlane: true}); err != nil {
		p.t.Fatal(err)
	}
}

// withIdentity gives every Dataplane of the mesh default an identity of a CA of its own.
func withIdentity(t *testing.T) []resource.Any {
	t.Helper()
	cert, key, err := pki.NewCA(time.Now(), "default.east.mesh.local")
	if err != nil {
		t.Fatal(err)
	}
	authority := append(cert, key...)
	return []resource.Any{
		kind.SigningCAs.Make("default", "identity", kind.SigningCA{
			TrustDomain: "default.east.mesh.local", Life: kind.Duration(time.Hour), Authority: authority,
			Fingerprint: "first",
		}),
		kind.MeshIdentities.Make("default", "identity", kind.MeshIdentity{
			Selector: &kind.IdentitySelector{Dataplane: &kind.LabelSelector{MatchLabels: map[string]string{}}},
			Provider: kind.IdentityProvider{Type: "Bundled", Bundled: &kind.BundledProvider{}},
		}),
	}
}

// dataplaneToken is a context with a token for a Dataplane; an empty name: for every Dataplane of the mesh.
func (p *plane) dataplaneToken(name string) context.Context {
	p.t.Helper()
	return p.tokenWithClaims(pki.DataplaneClaims{Mesh: "default", Name: name})
}

// web1Token is a context with a token that vouches for web-1 as it is in [web].
func (p *plane) web1Token() context.Context {
	p.t.Helper()
	return p.tokenWithClaims(pki.DataplaneClaims{Mesh: "default", Name: "web-1", Workload: "web"})
}

// tokenWithClaims is a context with a token that has these claims.
func (p *plane) tokenWithClaims(claims pki.DataplaneClaims) context.Context {
	p.t.Helper()
	ctx, _ := p.tokenAndID(claims)
	return ctx
}

// tokenAndID returns a context with a token, and the ID of the token.
func (p *plane) tokenAndID(claims pki.DataplaneClaims) (context.Context, string) {
	p.t.Helper()
	key, err := pki.ParseSigningKey(signingKey())
	if err != nil {
		p.t.Fatal(err)
	}
	token, err := pki.Issue(key, "1", &claims, time.Hour, time.Now())
	if err != nil {
		p.t.Fatal(err)
	}
	return metadata.AppendToOutgoingContext(testwait.Context(p.t), "authorization", "Bearer "+token), claims.ID
}

const web = `{type: Dataplane, mesh: default, name: web-1, labels: {kuma.io/workload: web},
  networking: {address: 10.0.0.1, inbound: [{port: 8080, tags: {kuma.io/service: web}}]}}`

func (p *plane) register() {
	p.t.Helper()
	if _, err := p.agent.Register(p.web1Token(), &wire.RegisterRequest{Dataplane: []byte(web)}); err != nil {
		p.t.Fatal(err)
	}
	p.eventually(func() bool { _, known := p.server.Rows.Dataplane(web1); return known }, func() any {
		return "the Dataplane is not known"
	})
}

// session opens a session of web-1, and returns it with its first settings.
func (p *plane) session(run string, serving ...*wire.ReadyListener) (wire.Agent_SessionClient, *wire.Settings) {
	p.t.Helper()
	stream, err := p.agent.Session(p.dataplaneToken("web-1"))
	if err != nil {
		p.t.Fatal(err)
	}
	p.send(stream, &wire.Report{Mesh: "default", Name: "web-1", Run: run, ReadyListeners: serving})
	return stream, p.settings(stream, func(*wire.Settings) bool { return true })
}

func (p *plane) send(stream wire.Agent_SessionClient, report *wire.Report) {
	p.t.Helper()
	report.Mesh, report.Name = "default", "web-1"
	if err := stream.Send(report); err != nil {
		p.t.Fatal(err)
	}
}

// settings waits for settings that are right.
func (p *plane) settings(stream wire.Agent_SessionClient, right func(*wire.Settings) bool) *wire.Settings {
	p.t.Helper()
	for {
		settings, err := stream.Recv()
		if err != nil {
			p.t.Fatalf("no settings as expected: %v", err)
		}
		if right(settings) {
			return settings
		}
	}
}

// stored waits until the stored row of web-1 in a kind is right.
func stored[S any](p *plane, k *resource.Kind[S], right func(S) bool) {
	p.t.Helper()
	ctx, cancel := context.WithCancel(testwait.Context(p.t))
	defer cancel()
	rows, cursor, err := p.rows.List(ctx, k.Name)
	if err != nil {
		p.t.Fatal(err)
	}
	watch, err := p.rows.Watch(ctx, []string{k.Name}, cursor)
	if err != nil {
		p.t.Fatal(err)
	}
	var last S
	look := func(row store.Row) bool {
		if row.Key != k.Key("default", "web-1") {
			return false
		}
		o, err := admission.Decode(row)
		if err != nil {
			p.t.Fatal(err)
		}
		last = o.(*resource.Object[S]).Spec
		return right(last)
	}
	for _, row := range rows {
		if look(row) {
			return
		}
	}
	for events := range watch {
		for _, e := range events {
			if look(e.Row) {
				return
			}
		}
	}
	p.t.Fatalf("%s of web-1 stays at %+v", k.Name, last)
}

// discover opens a configuration stream with a node id.
func (p *plane) discover(ctx context.Context,
	node string) (discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient, error) {
	p.t.Helper()
	return p.discoverAs(ctx, &corev3.Node{Id: node})
}

// discoverAs opens a configuration stream of a node.
func (p *plane) discoverAs(ctx context.Context,
	node *corev3.Node) (discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient, error) {
	p.t.Helper()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(p.conn).DeltaAggregatedResources(ctx)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, t := range []xds.Type{xds.Cluster, xds.Listener} {
		if err := stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: t.URL()}); err != nil {
			break // Recv returns the reason
		}
	}
	return stream, nil
}

// newRequest is a certificate request with the SANs of another workload.
func newRequest(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		DNSNames: []string{"admin.default.dataplane.mesh.local"},
		URIs:     []*url.URL{{Scheme: "spiffe", Host: "default.east.mesh.local", Path: "/workload/admin"}},
	}, key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}
