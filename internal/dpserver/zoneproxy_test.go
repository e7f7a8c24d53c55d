package dpserver_test

import (
	"context"
	"crypto/x509"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"weft/internal/pki"
	"weft/internal/testwait"
	"weft/internal/wire"
	"weft/kind"
	"weft/resource"
)

const zoneIngress = `{type: ZoneIngress, name: old, networking: {address: 10.0.0.1, port: 10001, advertisedAddress: ` +
	`192.168.1.100, advertisedPort: 30001}}`
const zoneEgress = `{type: ZoneEgress, name: old, networking: {address: 10.0.0.1, port: 10002}}`

// newZonePlane is newPlane with a key for zone tokens.
func newZonePlane(t *testing.T) *plane {
	return newPlane(t, kind.GlobalSecrets.Make("", pki.ZoneRealm.SigningKey("1").Name, kind.Secret{Data: signingKey()}))
}

// zoneToken is a context with a zone token.
func (p *plane) zoneToken(zone string, scope ...string) context.Context {
	p.t.Helper()
	key, err := pki.ParseSigningKey(signingKey())
	if err != nil {
		p.t.Fatal(err)
	}
	token, err := pki.Issue(key, "1", &pki.ZoneClaims{Zone: zone, Scope: scope}, time.Hour, time.Now())
	if err != nil {
		p.t.Fatal(err)
	}
	return metadata.AppendToOutgoingContext(testwait.Context(p.t), "authorization", "Bearer "+token)
}

func TestAZoneIngressServesByAZoneToken(t *testing.T) {
	p := newZonePlane(t)
	ctx := p.zoneToken("east", "ingress")
	response, err := p.agent.Register(ctx, &wire.RegisterRequest{Dataplane: []byte(zoneIngress)})
	if err != nil || response.Mesh != "" || response.Name != "old" {
		t.Fatalf("registered as %v, %v", response, err)
	}
	session, err := p.agent.Session(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := session.Send(&wire.Report{Name: "old", Run: "a"}); err != nil {
		t.Fatal(err)
	}
	settings := p.settings(session, func(*wire.Settings) bool { return true })
	if len(settings.Listeners) != 1 || settings.Listeners[0].Port != 10001 || settings.Listeners[0].Tls {
		t.Fatalf("is to listen at %v", settings.Listeners)
	}
	serving := &wire.ReadyListener{Address: "10.0.0.1", Port: 10001, Generation: settings.Listeners[0].Generation,
		Healthy: true}
	if err := session.Send(&wire.Report{Name: "old", Run: "a",
		ReadyListeners: []*wire.ReadyListener{serving}}); err != nil {
		t.Fatal(err)
	}
	p.eventually(func() bool {
		row, err := p.rows.Get(t.Context(), kind.ZoneIngressListenerStatuses.Key("", "old"))
		return err == nil && strings.Contains(string(row.Body), `"advertisedPort":30001`)
	}, func() any { return "it is not known to serve" })
	stream, err := p.discover(ctx, ".old")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Errorf("it gets no configuration: %v", err)
	}
}

func TestWhoMayBeAZoneProxy(t *testing.T) {
	p := newZonePlane(t)
	for name, c := range map[string]struct {
		ctx      context.Context
		document string
		code     codes.Code
		says     string
	}{
		"another zone's": {p.zoneToken("west", "ingress"), zoneIngress, codes.Unauthenticated,
			`for the zone "west", and this is the zone "east"`},
		"a control plane": {p.zoneToken("east", "cp"), zoneIngress, codes.PermissionDenied,
			`not for its ZoneIngress: its scope lacks "ingress"`},
		"an egress": {p.zoneToken("east", "egress"), zoneIngress, codes.PermissionDenied,
			`not for its ZoneIngress: its scope lacks "ingress"`},
		"an ingress, ZoneEgress": {p.zoneToken("east", "ingress"), zoneEgress, codes.PermissionDenied,
			`not for its ZoneEgress: its scope lacks "egress"`},
		"a Dataplane": {p.dataplaneToken(""), zoneIngress, codes.PermissionDenied,
			"weft generate zone-token --scope ingress"},
		"a Dataplane, egress": {p.dataplaneToken(""), zoneEgress, codes.PermissionDenied,
			"weft generate zone-token --scope egress"},
		"an ingress, Dataplane": {p.zoneToken("east", "ingress"), web, codes.PermissionDenied,
			"weft generate dataplane-token"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := p.agent.Register(c.ctx, &wire.RegisterRequest{Dataplane: []byte(c.document)})
			if status.Code(err) != c.code || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %v that says %q", err, c.code, c.says)
			}
		})
	}
	t.Run("a Dataplane's session", func(t *testing.T) {
		p.register()
		session, err := p.agent.Session(p.zoneToken("east", "ingress"))
		if err == nil {
			p.send(session, &wire.Report{Run: "a"})
			_, err = session.Recv()
		}
		if status.Code(err) != codes.PermissionDenied {
			t.Errorf("got %v, want PermissionDenied", err)
		}
	})
}

// nodeOfType is the node of a proxy that belongs to no mesh.
func nodeOfType(name string, proxyType any) *corev3.Node {
	metadata, err := structpb.NewStruct(map[string]any{"dataplane.proxyType": proxyType})
	if err != nil {
		panic(err)
	}
	return &corev3.Node{Id: "." + name, Metadata: metadata}
}

// TestAZoneEgressBesideAZoneIngressOfItsName: they are two proxies, and neither is mistaken for the other.
func TestAZoneEgressBesideAZoneIngressOfItsName(t *testing.T) {
	p := newZonePlane(t)
	ingress, egress := p.zoneToken("east", "ingress"), p.zoneToken("east", "egress")
	for _, c := range []struct {
		ctx       context.Context
		document  string
		proxyType string
	}{{ingress, zoneIngress, "ingress"}, {egress, zoneEgress, "egress"}} {
		if _, err := p.agent.Register(c.ctx, &wire.RegisterRequest{Dataplane: []byte(c.document)}); err != nil {
			t.Fatal(err)
		}
		session, err := p.agent.Session(c.ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := session.Send(&wire.Report{ProxyType: c.proxyType, Name: "old", Run: c.proxyType}); err != nil {
			t.Fatal(err)
		}
		if settings := p.settings(session, func(*wire.Settings) bool { return true }); settings.Zone != "east" {
			t.Errorf("the settings of the %s are %v", c.proxyType, settings)
		}
		stream, err := p.discoverAs(c.ctx, nodeOfType("old", c.proxyType))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Errorf("the %s gets no configuration: %v", c.proxyType, err)
		}
	}
	for _, row := range []resource.Key{kind.ZoneIngressInsights.Key("", "old"),
		kind.ZoneEgressInsights.Key("", "old")} {
		p.eventually(func() bool {
			_, err := p.rows.Get(t.Context(), row)
			return err == nil
		}, func() any { return row.String() + " is not stored" })
	}
	stream, err := p.discoverAs(egress, nodeOfType("old", "ingress"))
	if err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.PermissionDenied {
		t.Errorf("the egress's token as an ingress gets %v, want PermissionDenied", err)
	}
}

func TestANodeWithAWrongType(t *testing.T) {
	p := newZonePlane(t)
	for name, c := range map[string]struct {
		node *corev3.Node
		says string
	}{
		"no text":        {nodeOfType("old", 1.0), "is no text, want dataplane, ingress or egress"},
		"an unknown one": {nodeOfType("old", "gateway"), `is "gateway", want dataplane, ingress or egress`},
		"an egress of a mesh": {&corev3.Node{Id: "default.old", Metadata: nodeOfType("", "egress").Metadata},
			`belongs to no mesh, and this one names the mesh "default"`},
		"no mesh": {nodeOfType("old", "dataplane"), "belongs to a mesh, and this one names none"},
	} {
		t.Run(name, func(t *testing.T) {
			stream, err := p.discoverAs(p.zoneToken("east", "ingress", "egress"), c.node)
			if err == nil {
				_, err = stream.Recv()
			}
			if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want InvalidArgument that says %q", err, c.says)
			}
		})
	}
}

// TestAZoneEgressGetsACertificateForEachIdentity: its agent requests a certificate of each mesh in which it has an
// identity, and gets no other.
func TestAZoneEgressGetsACertificateForEachIdentity(t *testing.T) {
	rows := []resource.Any{kind.GlobalSecrets.Make("", pki.ZoneRealm.SigningKey("1").Name,
		kind.Secret{Data: signingKey()})}
	mtls := &kind.MeshMTLS{EnabledBackend: "ca-1", Backends: []kind.MTLSBackend{{Name: "ca-1", Type: "builtin"}}}
	for _, mesh := range []string{"apple", "shop"} {
		cert, key, err := pki.NewCA(time.Now(), mesh)
		if err != nil {
			t.Fatal(err)
		}
		ca, err := pki.ParseCA(append(cert, key...))
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, kind.Meshes.Make("", mesh, kind.Mesh{MTLS: mtls}),
			kind.SigningCAs.Make(mesh, kind.MTLSIdentity, kind.SigningCA{
				Authority: append(cert, key...), Fingerprint: ca.Fingerprint(), TrustDomain: mesh,
				Life: kind.Duration(time.Hour), Backend: "ca-1",
			}))
	}
	p := newPlane(t, rows...)
	ctx := p.zoneToken("east", "egress")
	if _, err := p.agent.Register(ctx, &wire.RegisterRequest{Dataplane: []byte(zoneEgress)}); err != nil {
		t.Fatal(err)
	}
	session, err := p.agent.Session(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := session.Send(&wire.Report{ProxyType: "egress", Name: "old", Run: "a"}); err != nil {
		t.Fatal(err)
	}
	settings := p.settings(session, func(s *wire.Settings) bool { return len(s.Further) == 1 })
	if settings.Identity.SpiffeId != "spiffe://apple/zone-egress" || settings.Further[0].Secret != "identity_shop" {
		t.Errorf("it is to present %v", settings)
	}
	for secret, want := range map[string]string{"": "spiffe://apple/zone-egress",
		"identity_shop": "spiffe://shop/zone-egress"} {
		response, err := p.agent.Sign(ctx, &wire.SignRequest{ProxyType: "egress", Name: "old", Secret: secret,
			Request: newRequest(t)})
		if err != nil || response.SpiffeId != want {
			t.Fatalf("the certificate of %q is of %v (%v), want %s", secret, response.GetSpiffeId(), err, want)
		}
		certificate, err := x509.ParseCertificate(response.Chain[0])
		if err != nil || len(certificate.DNSNames) != 1 ||
			certificate.DNSNames[0] != "old.east.zone-egress.mesh.local" {
			t.Errorf("it names the instance %v (%v)", certificate.DNSNames, err)
		}
	}
	if _, err := p.agent.Sign(ctx, &wire.SignRequest{ProxyType: "egress", Name: "old", Secret: "identity_other",
		Request: newRequest(t)}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("a certificate of another mesh is rejected with %v, want FailedPrecondition", err)
	}
}
