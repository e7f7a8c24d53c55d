package xds

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"weft/internal/testwait"
)

// room is a server on a real connection, with one resource set that every stream follows.
type room struct {
	catalog *Catalog
	set     *ResourceSet
	server  *Server
	address string
	creds   credentials.TransportCredentials
	events  chan string
}

func newRoom(t *testing.T) *room {
	web := httptest.NewUnstartedServer(nil) // for its certificate
	web.StartTLS()
	t.Cleanup(web.Close)
	roots := x509.NewCertPool()
	roots.AddCert(web.Certificate())
	r := &room{
		catalog: NewCatalog(),
		creds:   credentials.NewTLS(&tls.Config{RootCAs: roots, ServerName: "example.com"}),
		events:  make(chan string, 1000),
	}
	r.set = r.catalog.NewResourceSet()
	r.server = NewServer(Config{Catalog: r.catalog, Accept: r.accept, Log: slog.New(slog.DiscardHandler)})
	gs := grpc.NewServer(ServerOptions(credentials.NewServerTLSFromCert(&web.TLS.Certificates[0]))...)
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(gs, r.server)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.address = listener.Addr().String()
	go func() { _ = gs.Serve(listener) }()
	t.Cleanup(gs.Stop)
	return r
}

func (r *room) accept(_ context.Context, node *corev3.Node, stream *Stream) (Peer, error) {
	switch node.Id {
	case "stranger":
		return nil, errors.New("token is for another mesh")
	case "panic":
		panic("a bug")
	}
	stream.SetResourceSets(r.set)
	return &witness{node.Id, r.events}, nil
}

// witness records its calls.
type witness struct {
	node   string
	events chan string
}

func (w *witness) OnAck(t Type)          { w.events <- fmt.Sprintf("%s acked %s", w.node, t) }
func (w *witness) NACKed(r NACK, _ bool) { w.events <- fmt.Sprintf("%s rejected %s", w.node, r.Name) }
func (w *witness) OnClose(err error)     { w.events <- fmt.Sprintf("%s closed: %v", w.node, err) }

func (r *room) expect(t *testing.T, want string) {
	t.Helper()
	if got := testwait.Receive(t, "there is the event "+want, r.events); got != want {
		t.Fatalf("event %q, want %q", got, want)
	}
}

type client struct {
	discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	t     *testing.T
	close context.CancelFunc
}

func (r *room) dial(t *testing.T) discoveryv3.AggregatedDiscoveryServiceClient {
	conn, err := grpc.NewClient(r.address, grpc.WithTransportCredentials(r.creds))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return discoveryv3.NewAggregatedDiscoveryServiceClient(conn)
}

func (r *room) connect(t *testing.T, node string) *client {
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	stream, err := r.dial(t).DeltaAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	c := &client{stream, t, cancel}
	c.say(&discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: node}, TypeUrl: Cluster.URL()})
	return c
}

func (c *client) say(request *discoveryv3.DeltaDiscoveryRequest) {
	c.t.Helper()
	if err := c.Send(request); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) ack(response *discoveryv3.DeltaDiscoveryResponse) {
	c.t.Helper()
	c.say(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: response.TypeUrl, ResponseNonce: response.Nonce})
}

// expectResponse returns the next response; want is "name@version ...".
func (c *client) expectResponse(want string) *discoveryv3.DeltaDiscoveryResponse {
	c.t.Helper()
	response, err := c.Recv()
	if err != nil {
		c.t.Fatal(err)
	}
	var got []string
	for _, r := range response.Resources {
		got = append(got, r.Name+"@"+r.Version)
	}
	if strings.Join(got, " ") != want {
		c.t.Fatalf("got %q, want %q", got, want)
	}
	return response
}

func TestServerSendsChangesAndReportsACKs(t *testing.T) {
	r := newRoom(t)
	r.set.Commit([]*Resource{fake(Cluster, "a", "1")}, nil)
	c := r.connect(t, "web")
	c.ack(c.expectResponse("a@1"))
	r.expect(t, "web acked cluster")

	r.set.Commit([]*Resource{fake(Cluster, "a", "2")}, nil)
	response := c.expectResponse("a@2")
	c.say(&discoveryv3.DeltaDiscoveryRequest{
		TypeUrl: response.TypeUrl, ResponseNonce: response.Nonce,
		ErrorDetail: &rpcstatus.Status{Message: "no"},
	})
	r.expect(t, "web rejected a")
	if got := r.server.Streams()[0].NACKs(); len(got) != 1 || got[0].Message != "no" || got[0].Version != "2" {
		t.Errorf("the stream's NACKs are %+v", got)
	}
	c.close()
	r.expect(t, "web closed: <nil>")
}

// A proxy has the listeners of its group and its own. Only together do they show that it serves.
func TestAnACKIsReportedOnceNothingOfItsTypeIsOutstanding(t *testing.T) {
	s := newSession(NewCatalog(), func() {})
	group, own := s.catalog.NewResourceSet(), s.catalog.NewResourceSet()
	s.follow([]*ResourceSet{group, own})
	if _, err := s.step(&request{typeURL: Listener.URL()}); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		what     string
		rejected [2]bool // the response of the group, and the one of the proxy
		complete bool
	}{
		{"both acked", [2]bool{false, false}, true},
		{"the first one rejected", [2]bool{true, false}, true},
		{"the last one rejected", [2]bool{false, true}, true},
		{"both rejected", [2]bool{true, true}, false},
	} {
		s.catalog.Commit(Change{Set: group, Changed: []*Resource{fake(Listener, "a", test.what)}},
			Change{Set: own, Changed: []*Resource{fake(Listener, "b", test.what)}})
		sent := s.ready()
		if len(sent) != 2 {
			t.Fatalf("%s: %d responses", test.what, len(sent))
		}
		for i, response := range sent {
			reaction := &request{typeURL: Listener.URL(), nonce: response.nonce}
			if test.rejected[i] {
				reaction.rejection = &rpcstatus.Status{Message: "no"}
			}
			result, err := s.step(reaction)
			if err != nil {
				t.Fatal(err)
			}
			if want := test.complete && i == 1; result.complete != want {
				t.Errorf("%s: after response %d complete is %t, want %t", test.what, i+1, result.complete, want)
			}
		}
	}
}

func TestServerRejectsWithAReason(t *testing.T) {
	clusters := Cluster.URL()
	tests := []struct {
		name  string
		first *discoveryv3.DeltaDiscoveryRequest
		then  *discoveryv3.DeltaDiscoveryRequest
		code  codes.Code
		text  string
	}{
		{"no node", &discoveryv3.DeltaDiscoveryRequest{TypeUrl: clusters}, nil, codes.InvalidArgument, "node.id"},
		{"not accepted", &discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: "stranger"}, TypeUrl: clusters}, nil,
			codes.PermissionDenied, "another mesh"},
		{"a bug on accepting", &discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: "panic"}, TypeUrl: clusters},
			nil, codes.Internal, "log"},
		{"unknown type", &discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: "a"}, TypeUrl: "x"}, nil,
			codes.InvalidArgument, `type_url "x"`},
		{"second node", &discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: "a"}, TypeUrl: clusters},
			&discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: "b"}, TypeUrl: clusters}, codes.InvalidArgument,
			"node changed"},
		{"endless name", &discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: "a"}, TypeUrl: clusters,
			ResourceNamesSubscribe: []string{strings.Repeat("x", maxName+1)}}, nil, codes.InvalidArgument,
			"longer than"},
	}
	r := newRoom(t)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			stream, err := r.dial(t).DeltaAggregatedResources(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			_ = stream.Send(test.first) // the response has the error
			if test.then != nil {
				_ = stream.Send(test.then)
			}
			for err == nil {
				_, err = stream.Recv()
			}
			if status.Code(err) != test.code || !strings.Contains(err.Error(), test.text) {
				t.Errorf("ended with %v, want %v and %q", err, test.code, test.text)
			}
		})
	}
	t.Run("state of the world", func(t *testing.T) {
		stream, err := r.dial(t).StreamAggregatedResources(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err = stream.Recv(); status.Code(err) != codes.Unimplemented ||
			!strings.Contains(err.Error(), "DELTA_GRPC") {
			t.Errorf("ended with %v, want Unimplemented and what to set", err)
		}
	})
}

func TestCloseEndsTheStreamWithItsReason(t *testing.T) {
	r := newRoom(t)
	c := r.connect(t, "web")
	c.expectResponse("")
	r.server.Streams()[0].Close(status.Error(codes.PermissionDenied, "the Dataplane is gone"))
	if _, err := c.Recv(); status.Code(err) != codes.PermissionDenied {
		t.Errorf("the client sees %v", err)
	}
}

func TestWaitAcked(t *testing.T) {
	r := newRoom(t)
	fast, rejecting, leaving, slow := r.connect(t, "fast"), r.connect(t, "rejecting"), r.connect(t, "leaving"),
		r.connect(t, "slow")
	clients := []*client{fast, rejecting, leaving, slow}
	for _, c := range clients {
		c.ack(c.expectResponse(""))
	}
	revision := r.set.Commit([]*Resource{fake(Cluster, "a", "1")}, nil)

	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan SyncState)
	go func() {
		s, _ := r.server.WaitAcked(ctx, revision, nil)
		result <- s
	}()
	r.awaited(t)
	fast.ack(fast.expectResponse("a@1"))
	response := rejecting.expectResponse("a@1")
	rejecting.say(&discoveryv3.DeltaDiscoveryRequest{
		TypeUrl: response.TypeUrl, ResponseNonce: response.Nonce, ErrorDetail: &rpcstatus.Status{Message: "no"}})
	leaving.expectResponse("a@1")
	leaving.close()
	slow.expectResponse("a@1")
	for seen := 0; seen < 7; seen++ { // four first responses, and the responses of three streams
		<-r.events
	}
	cancel()
	if got, want := <-result, (SyncState{InSync: 2, NACKed: 1, Lost: 1, Pending: 1}); got != want {
		t.Errorf("the state is %+v, want %+v", got, want)
	}
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	of := func(name string) func(NACK) bool { return func(r NACK) bool { return r.Name == name } }
	for name, want := range map[string]int{"a": 1, "b": 0} {
		if got, _ := r.server.WaitAcked(ctx, revision, of(name)); got.NACKed != want || got.InSync != 2 {
			t.Errorf("with the NACKs of %s the state is %+v, want %d NACKed", name, got, want)
		}
	}
}

func TestWaitHalfAckedDoesNotWaitForTheSlowHalf(t *testing.T) {
	r := newRoom(t)
	fast, slow := r.connect(t, "fast"), r.connect(t, "slow")
	for _, c := range []*client{fast, slow} {
		c.ack(c.expectResponse(""))
	}
	revision := r.set.Commit([]*Resource{fake(Cluster, "a", "1")}, nil)
	result := make(chan error)
	go func() { result <- r.server.WaitHalfAcked(t.Context(), revision, nil) }()
	r.awaited(t)
	slow.expectResponse("a@1")
	response := fast.expectResponse("a@1")
	select {
	case err := <-result:
		t.Fatalf("no client has acked, and the wait ended: %v", err)
	default:
	}
	fast.ack(response)
	if err := <-result; err != nil {
		t.Errorf("one of two has acked: %v", err)
	}
	for _, stream := range r.server.Streams() {
		stream.mu.Lock()
		if len(stream.waits) > 0 {
			t.Errorf("%s is still waited for", stream.Node())
		}
		stream.mu.Unlock()
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.server.WaitHalfAcked(ctx, revision+1, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("no client has acked a revision to come: %v", err)
	}
}

// A server that is busy with thousands of streams has each of them in sync late, and all of them ack meanwhile.
func TestEachAckOfAStreamIsProgress(t *testing.T) {
	r := newRoom(t)
	clients := []*client{r.connect(t, "a"), r.connect(t, "b")}
	for _, c := range clients {
		c.ack(c.expectResponse(""))
		c.say(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: Secret.URL(), ResourceNamesSubscribe: []string{"s"}})
		c.ack(c.expectResponse(""))
	}
	for range 4 {
		<-r.events
	}
	revision := r.set.Commit([]*Resource{fake(Cluster, "c", "1"), fake(Secret, "s", "1")}, nil)
	progress := make(chan struct{}, 10)
	result := make(chan error, 1)
	go func() {
		result <- r.server.WaitHalfAcked(t.Context(), revision, func() { progress <- struct{}{} })
	}()
	r.awaited(t)
	for _, c := range clients {
		c.expectResponse("c@1")
	}
	select {
	case <-progress:
		t.Error("no client has acked, and there is progress")
	default:
	}
	for _, c := range clients {
		c.ack(c.expectResponse("s@1")) // and not the cluster
	}
	for range clients {
		<-progress
	}
	select {
	case err := <-result:
		t.Errorf("no client is in sync, and the wait ended: %v", err)
	default:
	}
}

// awaited returns once every stream is waited for.
func (r *room) awaited(t *testing.T) {
	for _, stream := range r.server.Streams() {
		testwait.UntilTrue(t, "a stream is waited for", func() bool {
			stream.mu.Lock()
			defer stream.mu.Unlock()
			return len(stream.waits) > 0
		})
	}
}

// TestManyStreamsUnderChanges is for the race detector, and for the final state of every stream.
func TestManyStreamsUnderChanges(t *testing.T) {
	const streams, changes = 20, 50
	r := newRoom(t)
	go func() {
		for range r.events {
		}
	}()
	var wg sync.WaitGroup
	for i := range streams {
		c := r.connect(t, fmt.Sprint("proxy-", i))
		wg.Go(func() { c.until(fmt.Sprint(changes)) })
	}
	for i := range changes {
		r.set.Commit([]*Resource{fake(Cluster, "a", fmt.Sprint(i+1)),
			fake(Cluster, fmt.Sprint("b", i%7), fmt.Sprint(i))}, nil)
	}
	wg.Wait()
	if s, err := r.server.WaitAcked(testwait.Context(t), r.catalog.Revision(), nil); err != nil || s.InSync != streams {
		t.Errorf("the state is %+v, %v", s, err)
	}
}

// until reads responses until the cluster a has this version.
func (c *client) until(version string) {
	for {
		response, err := c.Recv()
		if err != nil {
			c.t.Errorf("before version %s: %v", version, err)
			return
		}
		_ = c.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: response.TypeUrl, ResponseNonce: response.Nonce})
		for _, resource := range response.Resources {
			if resource.Name == "a" && resource.Version == version {
				return
			}
		}
	}
}

func TestStreamsInOnePositionShareBytes(t *testing.T) {
	catalog := NewCatalog()
	set := catalog.NewResourceSet()
	set.Commit([]*Resource{fake(Cluster, "a", "1"), fake(Cluster, "b", "1")}, nil)
	var first *response
	for range 3 {
		s := newSession(catalog, func() {})
		s.follow([]*ResourceSet{set})
		if _, err := s.step(&request{typeURL: Cluster.URL()}); err != nil {
			t.Fatal(err)
		}
		sent := s.ready()
		if first == nil {
			first = sent[0]
		}
		if len(sent) != 1 || sent[0] != first {
			t.Fatal("a second stream encoded for itself what the first one has sent")
		}
	}
}

// TestRemovedNamesAreDropped: a resource set whose names come and go does not grow.
func TestRemovedNamesAreDropped(t *testing.T) {
	catalog := NewCatalog()
	set := catalog.NewResourceSet()
	s := newSession(catalog, func() {})
	s.follow([]*ResourceSet{set})
	for i := range 10 * minSweep {
		set.Commit([]*Resource{fake(Route, fmt.Sprint("r", i), "1")}, []Key{{Route, fmt.Sprint("r", i-1)}})
		s.ready()
	}
	if n := len(set.types[Route].byID); n > 3*minSweep {
		t.Errorf("%d ids for one route", n)
	}
}

// TestAMessageIsAPrintableLine: what is kept of a client's reason is one line that a terminal shows, within its bound.
func TestAMessageIsAPrintableLine(t *testing.T) {
	s := newSession(NewCatalog(), func() {})
	set := s.catalog.NewResourceSet()
	s.follow([]*ResourceSet{set})
	if _, err := s.step(&request{typeURL: Listener.URL()}); err != nil {
		t.Fatal(err)
	}
	set.Commit([]*Resource{fake(Listener, "a", "1")}, nil)
	sent := s.ready()
	if len(sent) != 1 {
		t.Fatalf("%d responses, want 1", len(sent))
	}
	result, err := s.step(&request{typeURL: Listener.URL(), nonce: sent[0].nonce,
		rejection: &rpcstatus.Status{Message: "two\nlines \x1b[2J" + strings.Repeat("é", 4000)}})
	if err != nil || len(result.nacks) != 1 {
		t.Fatalf("the NACKs are %+v (%v)", result.nacks, err)
	}
	got := result.nacks[0].Message
	if !strings.HasPrefix(got, `two lines \u001b[2Jé`) || len(got) > 1024 || len(got) < 1023 || !utf8.ValidString(got) {
		t.Errorf("the message has %d bytes and begins with %.40q", len(got), got)
	}
}
