package dpserver_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"weft/internal/identity"
	"weft/internal/wire"
	"weft/kind"
)

const zoneIngress = `{type: ZoneIngress, name: old, networking: {address: 10.0.0.1, port: 10001, advertisedAddress: 192.168.1.100, advertisedPort: 30001}}`

// newZonePlane is newPlane with a key for zone tokens.
func newZonePlane(t *testing.T) *plane {
	return newPlane(t, kind.GlobalSecrets.Make("", identity.ZoneRealm.SigningKey("1").Name, kind.Secret{Data: signingKey()}))
}

// ofZone is a context that carries a zone token.
func (p *plane) ofZone(zone string, scope ...string) context.Context {
	p.t.Helper()
	key, err := identity.ParseSigningKey(signingKey())
	if err != nil {
		p.t.Fatal(err)
	}
	token, err := identity.Issue(key, "1", &identity.ZoneClaims{Zone: zone, Scope: scope}, time.Hour, time.Now())
	if err != nil {
		p.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(p.t.Context(), 20*time.Second)
	p.t.Cleanup(cancel)
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
}

func TestAZoneIngressServesByAZoneToken(t *testing.T) {
	p := newZonePlane(t)
	ctx := p.ofZone("east", "ingress")
	answer, err := p.agent.Register(ctx, &wire.RegisterRequest{Dataplane: []byte(zoneIngress)})
	if err != nil || answer.Mesh != "" || answer.Name != "old" {
		t.Fatalf("registered as %v, %v", answer, err)
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
	serving := &wire.Serving{Address: "10.0.0.1", Port: 10001, Generation: settings.Listeners[0].Generation, Healthy: true}
	if err := session.Send(&wire.Report{Name: "old", Run: "a", Serving: []*wire.Serving{serving}}); err != nil {
		t.Fatal(err)
	}
	p.eventually(func() bool {
		row, err := p.rows.Get(t.Context(), kind.ZoneIngressServings.Key("", "old"))
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

func TestWhoMayBeAZoneIngress(t *testing.T) {
	p := newZonePlane(t)
	for name, c := range map[string]struct {
		ctx      context.Context
		document string
		code     codes.Code
		says     string
	}{
		"another zone's":        {p.ofZone("west", "ingress"), zoneIngress, codes.Unauthenticated, `for the zone "west", and this is the zone "east"`},
		"a control plane":       {p.ofZone("east", "cp"), zoneIngress, codes.Unauthenticated, `its scope lacks "ingress"`},
		"a Dataplane":           {p.as(""), zoneIngress, codes.PermissionDenied, "weft generate zone-token"},
		"an ingress, Dataplane": {p.ofZone("east", "ingress"), web, codes.PermissionDenied, "weft generate dataplane-token"},
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
		session, err := p.agent.Session(p.ofZone("east", "ingress"))
		if err == nil {
			p.send(session, &wire.Report{Run: "a"})
			_, err = session.Recv()
		}
		if status.Code(err) != codes.PermissionDenied {
			t.Errorf("got %v, want PermissionDenied", err)
		}
	})
}
