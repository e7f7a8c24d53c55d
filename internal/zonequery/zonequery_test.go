package zonequery_test

import (
	"context"
	"errors"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"weft/internal/admission"
	"weft/internal/envoysim"
	"weft/internal/inspect"
	"weft/internal/preview"
	"weft/internal/rest"
	"weft/internal/state"
	"weft/internal/store/memory"
	"weft/internal/testwait"
	"weft/internal/wire"
	"weft/internal/xds"
	"weft/internal/zonequery"
	"weft/kind"
	"weft/resource"
)

// inspector is the inspector of a zone: web calls db of the zone west, whose backend is db-1.
type inspector struct{ zone string }

func (i inspector) Explain(r envoysim.Request, remote envoysim.RemoteZones) (*envoysim.Explanation, error) {
	if r.From.Name == "older" { // of a release that ignores headers and SNIs
		return &envoysim.Explanation{Route: "safe"}, nil
	}
	if r.From.Name != "web" {
		return nil, errors.New("there is no proxy " + r.From.String())
	}
	arrival, err := remote("west", envoysim.CrossZoneRequest{
		Ingress: state.ProxyKey{Mesh: r.From.Mesh, Name: "zi"}, Mesh: r.From.Mesh, SNI: "db.ms",
		SpiffeIDs: []string{"spiffe://east/web"}, Method: "PUT", Path: r.Path, Headers: r.Headers,
	})
	if err != nil {
		return &envoysim.Explanation{From: r.From.String(), SNI: r.SNI, Verdict: envoysim.Unknown,
			Reason: err.Error()}, nil
	}
	return &envoysim.Explanation{From: r.From.String(), Headers: r.Headers, SNI: r.SNI, Verdict: envoysim.Allowed,
		Listener: arrival.Listener}, nil
}

func (i inspector) CrossZone(c envoysim.CrossZoneRequest) (*envoysim.IngressResult, error) {
	return &envoysim.IngressResult{Listener: strings.Join([]string{i.zone, c.Ingress.String(), c.SNI,
		strings.Join(c.SpiffeIDs, " "), c.Method, c.Path, c.Headers["x-a"]}, " "), Cluster: c.SNI,
		Headers: i.headers(c)}, nil
}

// headers returns the headers of a request, or none for an ingress of a release that ignores them.
func (i inspector) headers(c envoysim.CrossZoneRequest) map[string]string {
	if c.Ingress.Name == "older" {
		return nil
	}
	return c.Headers
}

// Config has a secret for web of the zone, and no other proxy. ShadowConfig has another one.
func (i inspector) Config(key state.ProxyKey) ([]*xds.Resource, bool) { return i.secret(key, "sent") }

func (i inspector) ShadowConfig(key state.ProxyKey) ([]*xds.Resource, bool) {
	return i.secret(key, "shadow")
}

func (i inspector) secret(key state.ProxyKey, name string) ([]*xds.Resource, bool) {
	name += " of " + i.zone
	return []*xds.Resource{xds.NewResource(xds.Secret, name, &tlsv3.Secret{Name: name})}, key.Name == "web"
}

// compared is the inspector of a zone that has a changed proxy for each resource of a change.
type compared struct {
	rest.Inspector
	zone string
}

func (i compared) Diff(_ context.Context, c preview.Change, o preview.Options) (*preview.Diff, error) {
	diff := &preview.Diff{Zone: i.zone}
	for _, put := range c.Put {
		diff.Groups = append(diff.Groups, preview.Group{Proxies: 1, Names: []string{put.Key().String()}})
	}
	for _, key := range c.Removed {
		diff.Groups = append(diff.Groups, preview.Group{Proxies: 1, Names: []string{"no " + key.String()}})
	}
	if o.Fields {
		diff.Groups[0].Resources = []preview.Resource{{Name: strings.Repeat("a", 1000)}}
	}
	return diff, nil
}

func (i inspector) Backends(key state.ServiceKey) *inspect.Backends {
	if key != (state.ServiceKey{Mesh: "default", Name: "db"}) {
		return nil
	}
	return &inspect.Backends{Servers: []inspect.Server{{Port: 80, Dataplane: "db-1"}}}
}

// zones are a global control plane and its connected zones. A caller is the zone that it states.
type zones struct {
	global *zonequery.Global
	server *grpc.Server
	conn   func(zone string) *grpc.ClientConn
}

func newZones(t *testing.T) *zones {
	global := zonequery.NewGlobal(func(ctx context.Context) (string, error) {
		return metadata.ValueFromIncomingContext(ctx, "zone")[0], nil
	}, func(zone string) string { return map[string]string{"south": "b-2"}[zone] },
		func(_ context.Context, replica string, q *wire.ZoneRequest) (*wire.ZoneResponse, error) {
			return nil, resource.Errorf(resource.Unavailable, "%s is sent to %s", q.Zone, replica)
		})
	server := grpc.NewServer()
	wire.RegisterZoneQueriesServer(server, global)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	conn := func(zone string) *grpc.ClientConn {
		c, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithStreamInterceptor(func(ctx context.Context, d *grpc.StreamDesc, c *grpc.ClientConn, m string,
				s grpc.Streamer, o ...grpc.CallOption) (grpc.ClientStream, error) {
				return s(metadata.AppendToOutgoingContext(ctx, "zone", zone), d, c, m, o...)
			}),
			grpc.WithUnaryInterceptor(func(ctx context.Context, m string, req, reply any, c *grpc.ClientConn,
				i grpc.UnaryInvoker, o ...grpc.CallOption) error {
				return i(metadata.AppendToOutgoingContext(ctx, "zone", zone), m, req, reply, c, o...)
			}))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	return &zones{global, server, conn}
}

// join connects a zone until the test ends, and returns once it responds.
func (z *zones) join(t *testing.T, name string) *zonequery.Zone {
	rows := memory.New(memory.Options{})
	t.Cleanup(func() { rows.Close() })
	writer := admission.New(rows, admission.Options{Zone: name, Joined: true})
	mesh := admission.Received{Kind: kind.Meshes, Name: "default", Body: body(t, kind.Meshes.Make("", "default",
		kind.Mesh{}))}
	if err := writer.Receive(t.Context(), mesh); err != nil {
		t.Fatal(err)
	}
	zone := zonequery.NewZone(name, inspector{name}, rest.NewZoneDiffs(writer, compared{zone: name}))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); zone.Follow(ctx, z.conn(name), nil) }()
	t.Cleanup(func() { cancel(); <-done })
	testwait.Until(t, name+" can be queried", func() error {
		_, err := z.global.CrossZone(t.Context(), name, envoysim.CrossZoneRequest{})
		if err != nil && resource.CodeOf(err) != resource.Unavailable {
			t.Fatal(err)
		}
		return err
	})
	return zone
}

// body returns a resource of global as it is stored.
func body(t *testing.T, o resource.Any) []byte {
	t.Helper()
	meta := o.Envelope()
	meta.Labels = map[string]string{kind.OriginLabel: kind.OriginGlobal, kind.DisplayName: meta.Name}
	text, err := resource.Body(o)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// timeout is a MeshTimeout of global.
func timeout(t *testing.T, name string) preview.ReceivedResource {
	t.Helper()
	second := kind.Duration(time.Second)
	return preview.ReceivedResource{Kind: "MeshTimeout", Mesh: "default", Name: name,
		Body: body(t, kind.MeshTimeouts.Make("default", name, kind.MeshTimeout{To: []kind.ToItem[kind.TimeoutConf]{{
			TargetRef: kind.DestinationRef{Kind: "Mesh"}, Default: kind.TimeoutConf{IdleTimeout: &second}}}}))}
}

// A zone compares its proxies before and after it receives a change, under the names that it would give the resources.
func TestGlobalComparesTheProxiesOfAZone(t *testing.T) {
	z := newZones(t)
	z.join(t, "east")
	put := preview.Received{Put: []preview.ReceivedResource{timeout(t, "slow"), timeout(t, "fast")}}
	names := func(diff *preview.Diff, err error) string {
		if err != nil {
			return err.Error()
		}
		var all []string
		for _, g := range diff.Groups {
			all = append(all, g.Names...)
		}
		return strings.Join(all, ", ")
	}
	copied := func(name string) string {
		return "MeshTimeout default/" + kind.SyncedName(&kind.MeshTimeouts.Info, "default", name, kind.Owner{})
	}
	want := copied("fast") + ", " + copied("slow")
	for range 2 { // nothing is stored
		if got := names(z.global.Diff(t.Context(), "east", put, preview.Options{}, 1<<20)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	diff, err := z.global.Diff(t.Context(), "east", put, preview.Options{Fields: true}, 500)
	if err != nil || len(diff.Groups) > 1 || diff.More == 0 || diff.Zone != "east" {
		t.Errorf("within 500 bytes: %+v, %v", diff, err)
	}
	removed := preview.Received{Removed: []preview.ReceivedResource{{Kind: "MeshTimeout", Mesh: "default",
		Name: "absent"}}}
	if got := names(z.global.Diff(t.Context(), "east", removed, preview.Options{}, 1<<20)); got != "" {
		t.Errorf("a resource that the zone does not have: %s", got)
	}
	invalid := preview.Received{Put: []preview.ReceivedResource{{Kind: "MeshTimeout", Mesh: "other", Name: "a",
		Body: timeout(t, "a").Body}}}
	if got := names(z.global.Diff(t.Context(), "east", invalid, preview.Options{}, 1<<20)); !strings.Contains(got,
		`the zone east: the Mesh "other" does not exist in the zone "east" yet`) {
		t.Errorf("a mesh that the zone does not have: %s", got)
	}
	unknown := preview.Received{Put: []preview.ReceivedResource{{Kind: "MeshOfTheFuture", Mesh: "default", Name: "a"}}}
	if got := names(z.global.Diff(t.Context(), "east", unknown, preview.Options{}, 1<<20)); !strings.Contains(got,
		`the zone east: its release does not receive resources of the kind "MeshOfTheFuture"`) {
		t.Errorf("a kind that the zone does not know: %s", got)
	}
	if got := names(z.global.Diff(t.Context(), "west", put, preview.Options{}, 1<<20)); !strings.Contains(got,
		"the zone west cannot be queried") {
		t.Errorf("a zone that is disconnected: %s", got)
	}
}

var request = envoysim.Request{From: state.ProxyKey{Mesh: "default", Name: "web"}, To: "db", Path: "/a",
	Headers: map[string]string{"x-a": "b"}, SNI: "db.example.com"}

// A caller of global follows a request through both zones; each zone computes its part.
func TestGlobalQueriesBothZones(t *testing.T) {
	z := newZones(t)
	z.join(t, "east")
	z.join(t, "west")
	got, err := z.global.Explain(t.Context(), "east", request)
	if err != nil || got.Verdict != envoysim.Allowed || got.Headers["x-a"] != "b" ||
		got.SNI != request.SNI ||
		got.Listener != "west default.zi db.ms spiffe://east/web PUT /a b" {
		t.Errorf("%+v, %v", got, err)
	}
	for shadow, name := range map[bool]string{false: "sent of east", true: "shadow of east"} {
		config, err := z.global.Config(t.Context(), "east", request.From, shadow)
		want, _ := inspector{"east"}.secret(request.From, strings.TrimSuffix(name, " of east"))
		if err != nil || !reflect.DeepEqual(config, want) {
			t.Errorf("%+v, %v, want %+v", config, err, want)
		}
	}
	backends, err := z.global.Backends(t.Context(), "west", state.ServiceKey{Mesh: "default", Name: "db"})
	if err != nil || len(backends.Servers) != 1 || backends.Servers[0].Dataplane != "db-1" {
		t.Errorf("%+v, %v", backends, err)
	}
}

// A zone's reason for an error is distinguishable from a failed query.
func TestNoResponse(t *testing.T) {
	z := newZones(t)
	east := z.join(t, "east")
	for name, test := range map[string]struct {
		query func() error
		want  string
	}{
		"no such proxy": {func() error {
			_, err := z.global.Explain(t.Context(), "east",
				envoysim.Request{From: state.ProxyKey{Mesh: "default", Name: "missing"}})
			return err
		}, "the zone east: there is no proxy default.missing"},
		"headers in a zone of an older release": {func() error {
			_, err := z.global.Explain(t.Context(), "east", envoysim.Request{
				From: state.ProxyKey{Mesh: "default", Name: "older"}, Headers: map[string]string{"x-a": "b"}})
			return err
		}, "the release of the zone east explains no headers; upgrade its control plane, or leave the headers out"},
		"an SNI in a zone of an older release": {func() error {
			_, err := z.global.Explain(t.Context(), "east", envoysim.Request{
				From: state.ProxyKey{Mesh: "default", Name: "older"}, SNI: "db.example.com"})
			return err
		}, "the release of the zone east explains no SNI; upgrade its control plane, or leave the SNI out"},
		"headers at an ingress of an older release": {func() error {
			_, err := z.global.CrossZone(t.Context(), "east", envoysim.CrossZoneRequest{SNI: "db.ms",
				Ingress: state.ProxyKey{Mesh: "default", Name: "older"}, Headers: map[string]string{"x-a": "b"}})
			return err
		}, "the release of the zone east explains no headers; upgrade its control plane, or leave the headers out"},
		"no configuration": {func() error {
			_, err := z.global.Config(t.Context(), "east", state.ProxyKey{Mesh: "default", Name: "missing"}, false)
			return err
		}, "the zone east: there is no Dataplane default/missing"},
		"no such service": {func() error {
			_, err := z.global.Backends(t.Context(), "east", state.ServiceKey{Mesh: "default", Name: "nothing"})
			return err
		}, "the zone east: there is no MeshService default/nothing"},
		"global asks a zone that is away": {func() error {
			_, err := z.global.Explain(t.Context(), "north", request)
			return err
		}, "the zone north cannot be queried: it is not connected to the global control plane"},
		"global asks a zone of another replica": {func() error {
			_, err := z.global.Explain(t.Context(), "south", request)
			return err
		}, "south is sent to b-2"},
		"a zone asks a zone that is away": {func() error {
			_, err := east.CrossZone(t.Context(), "north", envoysim.CrossZoneRequest{})
			return err
		}, "through global: the zone north cannot be queried: it is not connected to the global control plane"},
		"a zone that is alone": {func() error {
			_, err := zonequery.NewZone("alone", nil, nil).CrossZone(t.Context(), "east", envoysim.CrossZoneRequest{})
			return err
		}, "the zone east cannot be queried: this control plane has not joined a global one"},
	} {
		if err := test.query(); err == nil || err.Error() != test.want {
			t.Errorf("%s: %v, want %s", name, err, test.want)
		}
	}
}

// The client's part is returned while the server's zone is disconnected.
func TestTheOtherZoneIsDisconnected(t *testing.T) {
	z := newZones(t)
	z.join(t, "east")
	got, err := z.global.Explain(t.Context(), "east", request)
	if err != nil || got.Verdict != envoysim.Unknown ||
		!strings.Contains(got.Reason, "the zone west cannot be queried") {
		t.Errorf("%+v, %v", got, err)
	}
}

// A zone learns the results of its own requests in another zone, and nothing else.
func TestAZoneLearnsNothingElse(t *testing.T) {
	z := newZones(t)
	z.join(t, "west")
	hostile := wire.NewZoneQueriesClient(z.conn("hostile"))
	for _, q := range []*wire.ZoneRequest{
		{Zone: "west",
			Query: &wire.ZoneRequest_Backends_{Backends: &wire.ZoneRequest_Backends{Mesh: "default", Service: "db"}}},
		{Zone: "west",
			Query: &wire.ZoneRequest_Explain_{Explain: &wire.ZoneRequest_Explain{Mesh: "default", Dataplane: "web"}}},
		{Zone: "west",
			Query: &wire.ZoneRequest_Config_{Config: &wire.ZoneRequest_Config{Mesh: "default", Dataplane: "web"}}},
		{Zone: "west", Query: &wire.ZoneRequest_Read_{Read: &wire.ZoneRequest_Read{Path: "/_check", Action: "read"}}},
		{Zone: "west", Query: &wire.ZoneRequest_Diff_{Diff: &wire.ZoneRequest_Diff{Shadow: true, Fields: true}}},
		{Zone: "west"},
	} {
		if a, err := hostile.Forward(t.Context(), q); err == nil || !strings.Contains(err.Error(), "PermissionDenied") {
			t.Errorf("%v is answered %v, %v", q, a, err)
		}
	}
}

// TestARequestThatCannotBeSent: a request with bytes that no message may have fails, and the zone stays connected.
func TestARequestThatCannotBeSent(t *testing.T) {
	z := newZones(t)
	z.join(t, "west")
	_, err := z.global.Read(t.Context(), "west", zonequery.Read{User: "\xff"})
	if resource.CodeOf(err) != resource.Invalid {
		t.Errorf("a request with invalid UTF-8: %v", err)
	}
	_, err = z.global.Explain(t.Context(), "west", envoysim.Request{})
	if resource.CodeOf(err) == resource.Unavailable {
		t.Errorf("the next request: %v", err)
	}
}

// A request to a zone that disconnects fails at once.
func TestAZoneGoes(t *testing.T) {
	z := newZones(t)
	stream, err := wire.NewZoneQueriesClient(z.conn("slow")).Requests(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	responded := make(chan error, 1)
	go func() {
		for {
			_, err := z.global.CrossZone(context.Background(), "slow", envoysim.CrossZoneRequest{})
			if err != nil && strings.Contains(err.Error(), "not connected") {
				continue // not yet
			}
			responded <- err
			return
		}
	}()
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if err := <-responded; err == nil || !strings.Contains(err.Error(), "disconnected during the request") {
		t.Errorf("%v", err)
	}
}
