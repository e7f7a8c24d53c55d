package dpserver_test

import (
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"weft/internal/dpserver"
	"weft/internal/pki"
	"weft/internal/wire"
	"weft/internal/xds"
	"weft/kind"
)

// TestTokenWithoutANameKeepsOtherDataplanes: a token for a workload is valid for Dataplanes of that workload, and can't
// change another Dataplane into one.
func TestTokenWithoutANameKeepsOtherDataplanes(t *testing.T) {
	p := newPlane(t)
	p.register()
	p.session("run-1") // the memory has the Dataplane now
	mine := p.tokenWithClaims(pki.DataplaneClaims{Mesh: "default", Workload: "evil"})
	as := func(name string) *wire.RegisterRequest {
		document := strings.NewReplacer("web-1", name, "workload: web", "workload: evil", "10.0.0.1",
			"10.6.6.6").Replace(web)
		return &wire.RegisterRequest{Dataplane: []byte(document)}
	}
	_, err := p.agent.Register(mine, as("web-1"))
	wantStatus(t, err, codes.PermissionDenied,
		"Dataplane default/web-1 exists, and the token that registered it vouches for its name")
	stored(p, kind.Dataplanes, func(d kind.Dataplane) bool { return d.Networking.Address == "10.0.0.1" })
	if _, err := p.agent.Register(mine, as("evil-1")); err != nil {
		t.Errorf("a new Dataplane of the token's workload is rejected: %v", err)
	}
	theirs := p.tokenWithClaims(pki.DataplaneClaims{Mesh: "default", Workload: "other"})
	_, err = p.agent.Register(theirs,
		&wire.RegisterRequest{Dataplane: []byte(strings.NewReplacer("web-1", "evil-1", "workload: web",
			"workload: other").Replace(web))})
	wantStatus(t, err, codes.PermissionDenied,
		`Dataplane default/evil-1 exists and is not this token's: the token is for the workload "other"`)
	_, err = p.agent.Register(p.dataplaneToken("web-1"), as("web-1"))
	wantStatus(t, err, codes.PermissionDenied, "vouches for the label kuma.io/workload: web of Dataplane default/web-1")
	moved := p.tokenWithClaims(pki.DataplaneClaims{Mesh: "default", Name: "web-1", Workload: "evil"})
	if _, err := p.agent.Register(moved, as("web-1")); err != nil {
		t.Errorf("a token that names the Dataplane and another workload may not move it there: %v", err)
	}
}

// TestATokenWithoutANameGetsNoCertificateOfAnother: a token without a name runs a Dataplane that another such token
// registered, at its address alone, and gets no certificate for what the other token vouches for.
func TestATokenWithoutANameGetsNoCertificateOfAnother(t *testing.T) {
	p := newPlane(t, withIdentity(t)...)
	theirs := p.tokenWithClaims(claims(func(c *pki.DataplaneClaims) { c.Workload, c.Tags = "web", services("web") }))
	if err := p.registerAs(theirs, web); err != nil {
		t.Fatal(err)
	}
	mine := p.dataplaneToken("")
	wantStatus(t, p.registerAs(mine, strings.Replace(web, "10.0.0.1", "10.6.6.6", 1)), codes.PermissionDenied,
		"it may register the Dataplane with the same inbounds only")
	if err := p.registerAs(mine, web); err != nil {
		t.Fatal(err)
	}
	p.settings(p.sessionAs(mine), func(*wire.Settings) bool { return true })
	ids, err := p.sign(mine, "web-1")
	wantStatus(t, err, codes.PermissionDenied, "the token does not vouch for the label kuma.io/workload: web")
	if len(ids) > 0 {
		t.Errorf("the certificate has %q", ids)
	}
	wantStatus(t, p.registerAs(mine, strings.Replace(web, "workload: web", "workload: other", 1)),
		codes.PermissionDenied, "vouches for the label kuma.io/workload: web")
}

func TestACallerWithoutATokenHoldsNoStream(t *testing.T) {
	p := newPlane(t)
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(p.conn).DeltaAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = stream.Recv() // though nothing was sent
	wantStatus(t, err, codes.Unauthenticated, "weft generate dataplane-token")
}

func TestProxyReportsAreBounded(t *testing.T) {
	p := newPlane(t)
	p.register()
	long := strings.Repeat("x", 1<<20)
	for _, c := range []struct {
		name   string
		report *wire.Report
		want   string
	}{
		{"its run", &wire.Report{Run: long}, "run has 1048576 bytes"},
		{"a serial", &wire.Report{Run: "run-1", ReadyListeners: []*wire.ReadyListener{{}, {Serial: long}}},
			"ready_listeners[1].serial has 1048576 bytes"},
		{"its listeners", &wire.Report{Run: "run-1", ReadyListeners: make([]*wire.ReadyListener, 513)},
			"ready_listeners has 513 items, at most 512"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.report.Mesh, c.report.Name = "default", "web-1"
			first, err := p.agent.Session(p.dataplaneToken("web-1"))
			if err != nil {
				t.Fatal(err)
			}
			p.send(first, c.report)
			_, err = first.Recv()
			wantStatus(t, err, codes.InvalidArgument, c.want)

			later, _ := p.session("run-1")
			p.send(later, c.report)
			_, err = later.Recv()
			wantStatus(t, err, codes.InvalidArgument, c.want)
		})
	}

	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(p.conn).DeltaAggregatedResources(
		p.dataplaneToken("web-1"))
	if err != nil {
		t.Fatal(err)
	}
	node := &corev3.Node{Id: "default.web-1",
		UserAgentVersionType: &corev3.Node_UserAgentVersion{UserAgentVersion: long}}
	if err := stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: xds.Cluster.URL()}); err != nil {
		t.Fatal(err)
	}
	stored(p, kind.DataplaneInsights, func(i kind.DataplaneInsight) bool {
		return len(i.Subscriptions) == 1 && i.Subscriptions[0].Version.Envoy.Version == long[:64]
	})
}

// TestMessagesThatAreGarbageEndTheirOwnCallAlone: an unreadable message ends its call, and no other call of the
// connection.
func TestMessagesThatAreGarbageEndTheirOwnCallAlone(t *testing.T) {
	p := newPlane(t)
	p.register()
	session, _ := p.session("run-1")
	for _, method := range []string{
		"/weft.agent.v1.Agent/Register", "/weft.agent.v1.Agent/Sign", "/weft.agent.v1.Agent/Session",
		"/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources",
	} {
		t.Run(method, func(t *testing.T) {
			both := &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
			stream, err := p.conn.NewStream(p.dataplaneToken("web-1"), both, method, grpc.ForceCodec(rawCodec{}))
			if err != nil {
				t.Fatal(err)
			}
			if err := stream.SendMsg([]byte{0xff, 0xff, 0xff, 0x01}); err != nil {
				t.Fatal(err)
			}
			wantStatus(t, stream.RecvMsg(nil), codes.Internal, "unmarshal")
		})
	}
	p.send(session, &wire.Report{Run: "run-1", Draining: true})
	p.settings(session, func(s *wire.Settings) bool { return s.Drained })
}

// rawCodec sends bytes unchanged.
type rawCodec struct{ encoding.Codec }

func (rawCodec) Marshal(message any) ([]byte, error) { return message.([]byte), nil }
func (rawCodec) Name() string                        { return "proto" }

// TestEveryFieldOfAnAgentHasABound checks the messages that agents send, and their nested messages.
func TestEveryFieldOfAnAgentHasABound(t *testing.T) {
	seen := map[protoreflect.FullName]bool{}
	var want func(d protoreflect.MessageDescriptor)
	want = func(d protoreflect.MessageDescriptor) {
		for i := range d.Fields().Len() {
			f := d.Fields().Get(i)
			bound, ok := dpserver.WireBounds[f.FullName()]
			seen[f.FullName()] = true
			text := f.Kind() == protoreflect.StringKind || f.Kind() == protoreflect.BytesKind
			if text && bound.Bytes == 0 || f.IsList() && bound.Items == 0 || f.IsMap() {
				t.Errorf("%s has no bound (%v)", f.FullName(), ok)
			}
			if f.Kind() == protoreflect.MessageKind {
				want(f.Message())
			}
		}
	}
	for _, m := range []proto.Message{&wire.RegisterRequest{}, &wire.SignRequest{}, &wire.Report{},
		&wire.InspectionSection{}, &wire.HostNamesRequest{}} {
		want(m.ProtoReflect().Descriptor())
	}
	for name := range dpserver.WireBounds {
		if !seen[name] {
			t.Errorf("%s is no field that an agent sends", name)
		}
	}
}
