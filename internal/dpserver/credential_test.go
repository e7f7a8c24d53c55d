package dpserver_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"weft/internal/pki"
	"weft/internal/testwait"
	"weft/internal/wire"
)

// oldToken is a context with a token of web-1 that was issued a time ago, for an hour.
func (p *plane) oldToken(ago time.Duration) context.Context {
	p.t.Helper()
	key, err := pki.ParseSigningKey(signingKey())
	if err != nil {
		p.t.Fatal(err)
	}
	token, err := pki.Issue(key, "1", &pki.DataplaneClaims{Mesh: "default", Name: "web-1", Workload: "web"}, time.Hour,
		time.Now().Add(-ago))
	if err != nil {
		p.t.Fatal(err)
	}
	return metadata.AppendToOutgoingContext(testwait.Context(p.t), "authorization", "Bearer "+token)
}

// expectAccess fails unless one proxy cannot connect, or soon will not, for a reason.
func (p *plane) expectAccess(when string, connected bool, reason string) {
	p.t.Helper()
	all := p.server.ProxyAccess()
	if len(all) != 1 || all[0].Key != web1 || all[0].Connected != connected ||
		!strings.Contains(all[0].Rejected.Reason, reason) || all[0].TokenExpires.IsZero() != (reason != "") {
		p.t.Errorf("%s: %+v, want %q", when, all, reason)
	}
}

func (p *plane) expectNoAccess(when string) {
	p.t.Helper()
	if all := p.server.ProxyAccess(); len(all) > 0 {
		p.t.Errorf("%s: %+v", when, all)
	}
}

// TestAccessOfProxies: a rejection is known until a token is accepted, and the expiry of an accepted token while the
// proxy is connected.
func TestAccessOfProxies(t *testing.T) {
	p := newPlane(t, withIdentity(t)...)
	p.register()
	sign := func(ctx context.Context) error {
		_, err := p.agent.Sign(ctx, &wire.SignRequest{Mesh: "default", Name: "web-1", Request: newRequest(t)})
		return err
	}
	p.expectNoAccess("before it is rejected")
	wantStatus(t, sign(p.oldToken(2*time.Hour)), codes.Unauthenticated, "has expired")
	p.expectAccess("after an expired token", false, "has expired")
	wantStatus(t, sign(p.dataplaneToken("web-2")), codes.PermissionDenied, "web-2")
	p.expectAccess("after the token of another Dataplane", false, "web-2")
	if err := sign(p.web1Token()); err != nil {
		t.Fatal(err)
	}
	p.expectNoAccess("after a valid token")
	if err := sign(p.oldToken(58 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	p.expectNoAccess("after a token that soon expires, of a proxy that is not connected")

	stream, err := p.discover(p.oldToken(58*time.Minute), "default.web-1")
	if err != nil {
		t.Fatal(err)
	}
	p.eventually(func() bool { return len(p.server.ProxyAccess()) == 1 }, func() any {
		return "the proxy is connected with a token that soon expires"
	})
	p.expectAccess("while it is connected", true, "")
	wantStatus(t, sign(p.dataplaneToken("web-2")), codes.PermissionDenied, "web-2")
	p.expectAccess("another agent has tried its name", true, "")
	wantStatus(t, sign(p.oldToken(2*time.Hour)), codes.Unauthenticated, "has expired")
	p.expectAccess("its token has expired", true, "has expired")
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
}
