package dpserver_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"weft/internal/pki"
	"weft/internal/wire"
	"weft/kind"
)

// sessionAs opens a session of web-1 with a token.
func (p *plane) sessionAs(ctx context.Context) wire.Agent_SessionClient {
	p.t.Helper()
	stream, err := p.agent.Session(ctx)
	if err != nil {
		p.t.Fatal(err)
	}
	p.send(stream, &wire.Report{Run: "r"})
	return stream
}

// endOf returns the error with which a session ends.
func endOf(stream wire.Agent_SessionClient) error {
	for {
		if _, err := stream.Recv(); err != nil {
			return err
		}
	}
}

// TestATokenWithANameTakesTheDataplaneOver: what a token without a name registered does not keep out the agent whose
// token has the name. That agent gets nothing for which the other token vouched, and the other agent is rejected.
func TestATokenWithANameTakesTheDataplaneOver(t *testing.T) {
	early := claims(func(c *pki.DataplaneClaims) {
		c.Workload, c.Tags, c.InboundTags = "early", services("early"), map[string][]string{"team": {"early"}}
	})
	document := strings.NewReplacer("kuma.io/workload: web", "kuma.io/workload: early", "kuma.io/service: web",
		"kuma.io/service: early, team: early").Replace(web)
	for name, taken := range map[string]string{"as it is": document, "as another workload": web} {
		t.Run(name, func(t *testing.T) {
			p := newPlane(t, withIdentity(t)...)
			first := p.tokenWithClaims(early)
			if err := p.registerAs(first, document); err != nil {
				t.Fatal(err)
			}
			session := p.sessionAs(first)
			p.settings(session, func(*wire.Settings) bool { return true })
			if err := p.registerAs(p.dataplaneToken("web-1"), taken); err != nil {
				t.Fatalf("the token with the name: %v", err)
			}
			if got := p.dataplane("web-1").Vouched.Token; !slices.Equal(got, []string{kind.NameFact("web-1")}) {
				t.Errorf("tokens vouch for %q, want the name alone", got)
			}
			const denied = "does not vouch for the name web-1"
			wantStatus(t, endOf(session), codes.PermissionDenied, denied)
			wantStatus(t, endOf(p.sessionAs(first)), codes.PermissionDenied, "")
			wantStatus(t, p.registerAs(first, document), codes.PermissionDenied, "")
			named := p.sessionAs(p.dataplaneToken("web-1"))
			p.settings(named, func(*wire.Settings) bool { return true })
		})
	}
}

// TestANewTokenTakesTheDataplaneOverWithoutARegistration: an agent that only connects takes the Dataplane over too.
func TestANewTokenTakesTheDataplaneOverWithoutARegistration(t *testing.T) {
	p := newPlane(t, withIdentity(t)...)
	first := p.tokenWithClaims(claims(func(c *pki.DataplaneClaims) { c.Workload = "web" }))
	if err := p.registerAs(first, web); err != nil {
		t.Fatal(err)
	}
	session := p.sessionAs(first)
	p.settings(session, func(*wire.Settings) bool { return true })
	p.settings(p.sessionAs(p.dataplaneToken("web-1")), func(*wire.Settings) bool { return true })
	if got := p.dataplane("web-1").Vouched.Token; !slices.Equal(got, []string{kind.NameFact("web-1")}) {
		t.Errorf("tokens vouch for %q, want the name alone", got)
	}
	if err := endOf(session); err == nil {
		t.Error("the first session goes on")
	}
	p.awaitKnown(kind.Dataplanes.Key("default", "web-1"))
	wantStatus(t, endOf(p.sessionAs(first)), codes.PermissionDenied, "does not vouch for the name web-1")
}

// TestASessionOfATokenWithTheNameStays: an agent whose token lacks the name does not end the session of one whose token
// has it, also where an operator wrote the Dataplane.
func TestASessionOfATokenWithTheNameStays(t *testing.T) {
	p := newPlane(t, withIdentity(t)...)
	p.putAsOperator(web)
	unnamed := p.sessionAs(p.dataplaneToken(""))
	p.settings(unnamed, func(*wire.Settings) bool { return true })
	named := p.sessionAs(p.dataplaneToken("web-1"))
	p.settings(named, func(*wire.Settings) bool { return true })
	wantStatus(t, endOf(unnamed), codes.Aborted, "another agent of this Dataplane has connected")
	wantStatus(t, endOf(p.sessionAs(p.dataplaneToken(""))), codes.PermissionDenied,
		"an agent whose token has the name of Dataplane default/web-1 is connected")
	again := p.sessionAs(p.dataplaneToken("web-1"))
	p.settings(again, func(*wire.Settings) bool { return true })
	wantStatus(t, endOf(named), codes.Aborted, "another agent of this Dataplane has connected")
}

// TestAnotherTokenKeepsTheInbounds: a token without the name of a Dataplane brings no address, no port and no
// application into the services for which another token vouches, and takes no member away. It may register the same
// inbounds, and all that its own claims cover.
func TestAnotherTokenKeepsTheInbounds(t *testing.T) {
	const document = "type: Dataplane\nmesh: default\nname: web-1\nnetworking: {address: 10.0.0.1, inbound: " +
		"[{port: 80, protocol: http, tags: {kuma.io/service: web, app: web}}]}\n"
	edited := func(from, to string) string { return strings.Replace(document, from, to, 1) }
	byTags := claims(func(c *pki.DataplaneClaims) {
		c.Tags, c.InboundTags = services("web"), map[string][]string{"app": {"web"}}
	})
	changes := map[string]string{
		"another address":     edited("10.0.0.1", "10.66.0.1"),
		"another port":        edited("port: 80", "port: 81"),
		"another application": edited("port: 80", "port: 80, servicePort: 22"),
		"another machine":     edited("port: 80", "port: 80, serviceAddress: 10.66.0.1"),
		"a further inbound":   edited("[{", "[{port: 81, address: 10.66.0.1, tags: {kuma.io/service: web}}, {"),
		"another tag":         edited("app: web", "app: other"),
		"without the inbound": edited("[{port: 80, protocol: http, tags: {kuma.io/service: web, app: web}}]",
			"[{port: 80, tags: {kuma.io/service: web}}]"),
	}
	for name, changed := range changes {
		t.Run(name, func(t *testing.T) {
			p := newPlane(t)
			if err := p.registerAs(p.tokenWithClaims(byTags), document); err != nil {
				t.Fatal(err)
			}
			before := p.dataplane("web-1")
			other := p.dataplaneToken("")
			wantStatus(t, p.registerAs(other, changed), codes.PermissionDenied, "the token that registered Dataplane "+
				"default/web-1 vouches for the tag kuma.io/service: web and the tag app: web, and this one does not")
			if got := p.dataplane("web-1"); got.Version != before.Version {
				t.Error("the rejected registration changes the Dataplane")
			}
			if err := p.registerAs(other, edited("http", "tcp")); err != nil {
				t.Errorf("the same inbounds: %v", err)
			}
			if got := p.dataplane("web-1").Vouched.Token; !slices.Equal(got, before.Vouched.Token) {
				t.Errorf("then tokens vouch for %q, want %q", got, before.Vouched.Token)
			}
			if err := p.registerAs(p.tokenWithClaims(byTags), changed); err != nil {
				t.Errorf("a token with the claims: %v", err)
			}
		})
	}
}

// TestATokenOfAnotherWorkloadKeepsTheInbounds: claims of its own give a token nothing of another workload's services.
func TestATokenOfAnotherWorkloadKeepsTheInbounds(t *testing.T) {
	p := newPlane(t)
	first := claims(func(c *pki.DataplaneClaims) { c.Workload, c.InboundTags = "web", services("web") })
	if err := p.registerAs(p.tokenWithClaims(first), web); err != nil {
		t.Fatal(err)
	}
	other := claims(func(c *pki.DataplaneClaims) { c.Workload = "db" })
	moved := strings.NewReplacer("10.0.0.1", "10.66.0.1", "kuma.io/workload: web", "kuma.io/workload: db").Replace(web)
	wantStatus(t, p.registerAs(p.tokenWithClaims(other), moved), codes.PermissionDenied,
		"vouches for the tag kuma.io/service: web")
}
