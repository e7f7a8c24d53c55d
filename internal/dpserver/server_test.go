package dpserver_test

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"weft/internal/admission"
	"weft/internal/state"
	"weft/internal/store"
	"weft/internal/testwait"
	"weft/internal/wire"
	"weft/internal/xds"
	"weft/kind"
	"weft/resource"
)

func wantStatus(t *testing.T, err error, code codes.Code, part string) {
	t.Helper()
	if status.Code(err) != code || !strings.Contains(status.Convert(err).Message(), part) {
		t.Errorf("got %v, want %s that says %q", err, code, part)
	}
}

func TestRegisterRejects(t *testing.T) {
	p := newPlane(t)
	swap := func(old, by string) string { return strings.Replace(web, old, by, 1) }
	for _, c := range []struct {
		name, token, document string
		code                  codes.Code
		want                  string
	}{
		{"another's token", "web-2", web, codes.PermissionDenied, `the token is for the Dataplane "web-2"`},
		{"another mesh than the token's", "web-1", swap("mesh: default", "mesh: other"), codes.PermissionDenied,
			`for the mesh "default"`},
		{"a mesh that does not exist", "web-1", swap("mesh: default", "mesh: nowhere"), codes.NotFound,
			`the mesh "nowhere" does not exist; create it`},
		{"a field that is unknown", "web-1", swap("port:", "prt:"), codes.InvalidArgument, "networking.inbound[0].prt"},
		{"a value that is wrong", "web-1", swap("port: 8080", "port: 0"), codes.InvalidArgument,
			"networking.inbound[0].port"},
		{"another kind", "web-1", "{type: Mesh, name: evil}", codes.InvalidArgument,
			"only a Dataplane, a ZoneIngress or a ZoneEgress can"},
		{"what is no YAML", "web-1", "\x00{", codes.InvalidArgument, "not YAML"},
		{"too much", "web-1", strings.Repeat("#", 2<<20), codes.InvalidArgument, "at most 262144"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := p.agent.Register(p.dataplaneToken(c.token), &wire.RegisterRequest{Dataplane: []byte(c.document)})
			wantStatus(t, err, c.code, c.want)
		})
	}
}

func TestEveryCallNeedsAToken(t *testing.T) {
	p := newPlane(t)
	p.register()
	for name, ctx := range map[string]context.Context{
		"none":    t.Context(),
		"garbage": metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer a.b.c"),
		"two":     metadata.AppendToOutgoingContext(p.dataplaneToken("web-1"), "authorization", "Bearer a.b.c"),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := p.agent.Register(ctx, &wire.RegisterRequest{Dataplane: []byte(web)})
			wantStatus(t, err, codes.Unauthenticated, "weft generate dataplane-token")
			_, err = p.agent.Sign(ctx, &wire.SignRequest{Mesh: "default", Name: "web-1", Request: newRequest(t)})
			wantStatus(t, err, codes.Unauthenticated, "")
			session, err := p.agent.Session(ctx)
			if err != nil {
				t.Fatal(err)
			}
			session.Send(&wire.Report{Mesh: "default", Name: "web-1"})
			_, err = session.Recv()
			wantStatus(t, err, codes.Unauthenticated, "")
			stream, err := p.discover(ctx, "default.web-1")
			if err != nil {
				t.Fatal(err)
			}
			_, err = stream.Recv()
			wantStatus(t, err, codes.Unauthenticated, "")
		})
	}
}

func TestAConfigurationStreamIsOfTheNodeThatItsTokenNames(t *testing.T) {
	p := newPlane(t)
	p.register()
	for _, c := range []struct {
		name, token, node string
		code              codes.Code
		want              string
	}{
		{"another node", "web-1", "default.web-2", codes.PermissionDenied, `says it is "web-2"`},
		{"another mesh", "web-1", "other.web-1", codes.PermissionDenied, `of "other"`},
		{"a Dataplane that does not exist", "", "default.web-9", codes.NotFound,
			"Dataplane default/web-9 does not exist; register it"},
		{"no mesh", "web-1", "web-1", codes.InvalidArgument, "want MESH.NAME"},
		{"nothing", "web-1", "", codes.InvalidArgument, "node.id"},
		{"far too much", "web-1", "default." + strings.Repeat("a", 10_000), codes.InvalidArgument, "want MESH.NAME"},
	} {
		t.Run(c.name, func(t *testing.T) {
			stream, err := p.discover(p.dataplaneToken(c.token), c.node)
			if err != nil {
				t.Fatal(err)
			}
			_, err = stream.Recv()
			wantStatus(t, err, c.code, c.want)
		})
	}
}

func TestTheControlPlaneDecidesTheSANsOfACertificate(t *testing.T) {
	p := newPlane(t, withIdentity(t)...)
	p.register()
	_, settings := p.session("run-1")
	response, err := p.agent.Sign(p.web1Token(),
		&wire.SignRequest{Mesh: "default", Name: "web-1", Request: newRequest(t)})
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(response.Chain[0])
	if err != nil {
		t.Fatal(err)
	}
	if len(certificate.URIs) != 1 || certificate.URIs[0].String() != "spiffe://default.east.mesh.local/workload/web" ||
		settings.Identity.SpiffeId != certificate.URIs[0].String() {
		t.Errorf("the certificate has %v, the settings %s; the request had an administrator's SPIFFE ID",
			certificate.URIs, settings.Identity.SpiffeId)
	}
	if len(certificate.DNSNames) != 1 || certificate.DNSNames[0] != "web-1.default.east.dataplane.mesh.local" {
		t.Errorf("the certificate's DNS names are %v, want the instance's", certificate.DNSNames)
	}
	stored(p, kind.DataplaneInsights, func(i kind.DataplaneInsight) bool {
		return i.Certificate != nil && i.Certificate.Serial == response.Serial && i.Certificate.Issuer == "identity"
	})
}

func TestSignRejects(t *testing.T) {
	p := newPlane(t)
	p.register()
	_, settings := p.session("run-1")
	if settings.Identity != nil {
		t.Fatal("a plain mesh has an identity")
	}
	_, err := p.agent.Sign(p.dataplaneToken("web-1"),
		&wire.SignRequest{Mesh: "default", Name: "web-1", Request: newRequest(t)})
	wantStatus(t, err, codes.FailedPrecondition, "no MeshIdentity of the mesh default selects web-1")
	_, err = p.agent.Sign(p.dataplaneToken("web-1"),
		&wire.SignRequest{Mesh: "default", Name: "web-1", Request: []byte("garbage")})
	wantStatus(t, err, codes.InvalidArgument, "not a certificate request")
	_, err = p.agent.Sign(p.dataplaneToken("web-1"),
		&wire.SignRequest{Mesh: "default", Name: "web-2", Request: newRequest(t)})
	wantStatus(t, err, codes.PermissionDenied, "web-2")
}

func serves(want ...string) func(kind.DataplaneListenerStatus) bool {
	return func(s kind.DataplaneListenerStatus) bool {
		var got []string
		for _, in := range s.Inbounds {
			got = append(got, in.Listener())
		}
		return strings.Join(got, " ") == strings.Join(want, " ")
	}
}

func TestReportsAreStoredAndOutliveTheSession(t *testing.T) {
	p := newPlane(t)
	p.register()
	stream, settings := p.session("run-1")
	l := settings.Listeners[0]
	if l.Probe.GetIntervalMs() != 1000 || l.Probe.GetUnhealthyThreshold() != 3 {
		t.Errorf("the default probe is %v, want one a second and three failures", l.Probe)
	}
	seen := &wire.ReadyListener{Address: l.Address, Port: l.Port, Generation: l.Generation, Healthy: true}
	p.send(stream, &wire.Report{Run: "run-1", ReadyListeners: []*wire.ReadyListener{seen}})
	stored(p, kind.DataplaneListenerStatuses, serves("10.0.0.1:8080"))

	// The end of a session changes nothing; a new run begins with no ready listener.
	stream.CloseSend()
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Fatalf("the session ended with %v", err)
	}
	stored(p, kind.DataplaneListenerStatuses, serves("10.0.0.1:8080"))
	p.session("run-2")
	stored(p, kind.DataplaneListenerStatuses, serves())
}

func TestTheFinalReportIsStored(t *testing.T) {
	p := newPlane(t)
	p.register()
	stream, settings := p.session("run-1")
	l := settings.Listeners[0]
	p.send(stream,
		&wire.Report{Run: "run-1",
			ReadyListeners: []*wire.ReadyListener{{Address: l.Address, Port: l.Port, Generation: l.Generation,
				Healthy: true}}})
	stored(p, kind.DataplaneListenerStatuses, serves("10.0.0.1:8080"))
	p.send(stream, &wire.Report{Run: "run-1"}) // its Envoy is dead
	stream.CloseSend()
	stored(p, kind.DataplaneListenerStatuses, serves())
}

// TestAProxyThatFlapsIsReadOnceASecond: above the rate, the newest report waits, and a proxy that leaves does not.
func TestAProxyThatFlapsIsReadOnceASecond(t *testing.T) {
	p := newPlane(t)
	p.register()
	p.server.FreezeBuckets()
	p.server.SpendReports(state.ProxyKey{Type: kind.DataplaneProxy, Mesh: "default", Name: "web-1"}, 1000)
	stream, settings := p.session("run-1")
	l := settings.Listeners[0]
	ready := &wire.ReadyListener{Address: l.Address, Port: l.Port, Generation: l.Generation, Healthy: true}
	p.send(stream, &wire.Report{Run: "run-1", ReadyListeners: []*wire.ReadyListener{ready}})
	testwait.Pass(300*time.Millisecond, "the report that must wait would be read now")
	stored(p, kind.DataplaneListenerStatuses, serves())
	p.send(stream, &wire.Report{Run: "run-1", ReadyListeners: []*wire.ReadyListener{ready}, Draining: true})
	p.settings(stream, func(s *wire.Settings) bool { return s.Drained })
}

func TestADrainingProxyIsDrainedOnceClientsHaveAcked(t *testing.T) {
	p := newPlane(t)
	p.register()
	stream, _ := p.session("run-1")
	p.send(stream, &wire.Report{Run: "run-1", Draining: true})
	p.settings(stream, func(s *wire.Settings) bool { return s.Drained })
	stored(p, kind.DataplaneListenerStatuses, func(s kind.DataplaneListenerStatus) bool { return s.Draining })
}

// TestADrainingProxyIsDrainedAfterTheDrainTime: the proxy is kept for the drain time after the last client has acked,
// since a request may be under way.
func TestADrainingProxyIsDrainedAfterTheDrainTime(t *testing.T) {
	p := newPlane(t)
	p.server.DrainTime = 300 * time.Millisecond
	p.register()
	stream, _ := p.session("run-1")
	began := time.Now()
	p.send(stream, &wire.Report{Run: "run-1", Draining: true})
	p.settings(stream, func(s *wire.Settings) bool { return s.Drained })
	if took := time.Since(began); took < p.server.DrainTime {
		t.Errorf("it was told after %s", took)
	}
}

// TestAServedInboundReturnsToTheListenerStatus: the end of a drain may coincide with a change that adds the inbound
// again. Then the listener status lacks an inbound that is served and wanted, and no listener of the proxy changes.
func TestAServedInboundReturnsToTheListenerStatus(t *testing.T) {
	p := newPlane(t)
	p.register()
	stream, settings := p.session("run-1")
	l := settings.Listeners[0]
	p.send(stream,
		&wire.Report{Run: "run-1",
			ReadyListeners: []*wire.ReadyListener{{Address: l.Address, Port: l.Port, Generation: l.Generation,
				Healthy: true}}})
	stored(p, kind.DataplaneListenerStatuses, serves("10.0.0.1:8080"))
	for range 3 { // the session syncs once more by itself, after its pause between reports
		err := admission.Modify(t.Context(), p.writer, kind.DataplaneListenerStatuses, "default", "web-1",
			func(o *resource.Object[kind.DataplaneListenerStatus]) bool {
				return o.Spec.Remove([]string{"10.0.0.1:8080"})
			})
		if err != nil {
			t.Fatal(err)
		}
		stored(p, kind.DataplaneListenerStatuses, serves("10.0.0.1:8080"))
	}
}

func TestASecondAgentReplacesTheFirst(t *testing.T) {
	p := newPlane(t)
	p.register()
	first, _ := p.session("run-1")
	p.session("run-2")
	for {
		if _, err := first.Recv(); err != nil {
			wantStatus(t, err, codes.Aborted, "another agent of this Dataplane has connected")
			return
		}
	}
}

func TestADeletedDataplaneEndsItsSession(t *testing.T) {
	p := newPlane(t)
	p.register()
	stream, _ := p.session("run-1")
	if err := p.writer.Delete(t.Context(), kind.Dataplanes.Key("default", "web-1"), admission.Change{}); err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := stream.Recv(); err != nil {
			wantStatus(t, err, codes.NotFound, "was deleted")
			return
		}
	}
}

// TestADataplaneThatIsWrittenAgainIsOnline: the stream of its Envoy stays open while it is deleted.
func TestADataplaneThatIsWrittenAgainIsOnline(t *testing.T) {
	p := newPlane(t, webDataplane(t))
	stream, err := p.discover(p.dataplaneToken("web-1"), "default.web-1")
	if err != nil {
		t.Fatal(err)
	}
	acknowledge(t, stream)
	online := func(i kind.DataplaneInsight) bool {
		return len(i.Subscriptions) == 1 && i.Subscriptions[0].DisconnectTime == nil
	}
	stored(p, kind.DataplaneInsights, online)
	for range 3 { // the deletion and the write can be of one batch or of two
		err := p.writer.Delete(t.Context(), kind.Dataplanes.Key("default", "web-1"), admission.Change{})
		if err != nil {
			t.Fatal(err)
		}
		p.put(webDataplane(t))
		stored(p, kind.DataplaneInsights, online)
	}
}

func TestAClientWithoutAgentServesOnceItAckedItsListeners(t *testing.T) {
	p := newPlane(t, webDataplane(t))
	stream, err := p.discover(p.dataplaneToken("web-1"), "default.web-1")
	if err != nil {
		t.Fatal(err)
	}
	acknowledge(t, stream)
	stored(p, kind.DataplaneListenerStatuses, serves("10.0.0.1:8080"))
	stored(p, kind.DataplaneInsights, func(i kind.DataplaneInsight) bool {
		return len(i.Subscriptions) == 1 && i.Subscriptions[0].DisconnectTime == nil &&
			i.Subscriptions[0].ControlPlaneInstanceID == "cp-1"
	})
	stream.CloseSend()
	stored(p, kind.DataplaneInsights, func(i kind.DataplaneInsight) bool {
		return i.Subscriptions[0].DisconnectTime != nil
	})
	// the end of a stream does not change the listener status
	stored(p, kind.DataplaneListenerStatuses, serves("10.0.0.1:8080"))
}

func TestAnACKIsNotEnoughForAnInboundWithACertificate(t *testing.T) {
	p := newPlane(t, append(withIdentity(t), webDataplane(t))...)
	stream, err := p.discover(p.dataplaneToken("web-1"), "default.web-1")
	if err != nil {
		t.Fatal(err)
	}
	acknowledge(t, stream)
	stream.CloseSend()
	// The end of the stream is stored after the effects of its ACKs.
	stored(p, kind.DataplaneInsights, func(i kind.DataplaneInsight) bool {
		return i.Subscriptions[0].DisconnectTime != nil
	})
	if _, err := p.rows.Get(t.Context(), kind.DataplaneListenerStatuses.Key("default", "web-1")); !errors.Is(err,
		store.ErrNotFound) {
		t.Errorf("something is stored as serving after an ACK alone (%v)", err)
	}
}

func webDataplane(t *testing.T) resource.Any {
	t.Helper()
	dataplane, err := resource.Parse([]byte(web), kind.ByName)
	if err != nil {
		t.Fatal(err)
	}
	return dataplane
}

// acknowledge acks responses until the listeners have arrived.
func acknowledge(t *testing.T, stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient) {
	t.Helper()
	for {
		response, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: response.TypeUrl,
			ResponseNonce: response.Nonce}); err != nil {
			t.Fatal(err)
		}
		if response.TypeUrl == xds.Listener.URL() {
			return
		}
	}
}

// TestAnEnvoyThatIsTooOldIsRejected: the error has the reason, and no configuration is sent.
func TestAnEnvoyThatIsTooOldIsRejected(t *testing.T) {
	p := newPlane(t)
	p.register()
	for minor, want := range map[uint32]string{
		39: "the proxy runs Envoy 1.39.3, and 1.40 is the oldest that is supported", 40: "", 41: "",
	} {
		stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(p.conn).DeltaAggregatedResources(
			p.dataplaneToken("web-1"))
		if err != nil {
			t.Fatal(err)
		}
		version := &corev3.BuildVersion{Version: &typev3.SemanticVersion{MajorNumber: 1, MinorNumber: minor, Patch: 3}}
		node := &corev3.Node{Id: "default.web-1",
			UserAgentVersionType: &corev3.Node_UserAgentBuildVersion{UserAgentBuildVersion: version}}
		if err := stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: xds.Cluster.URL()}); err != nil {
			t.Fatal(err)
		}
		switch _, err = stream.Recv(); {
		case want != "":
			wantStatus(t, err, codes.FailedPrecondition, want)
		case err != nil:
			t.Errorf("1.%d: %v", minor, err)
		}
	}
}
