package dpserver_test

import (
	"context"
	"testing"

	"google.golang.org/grpc/codes"

	"weft/internal/admission"
	"weft/internal/pki"
	"weft/internal/wire"
	"weft/kind"
	"weft/resource"
)

// No proxy runs a Dataplane that a user wrote who is no operator, also in place of one that an agent registered, until
// its agent registers it or an operator writes it.
func TestNoProxyRunsTheDataplaneOfAUser(t *testing.T) {
	p := newPlane(t, withIdentity(t)...)
	token := p.tokenWithClaims(claims(func(c *pki.DataplaneClaims) {
		c.Name, c.Workload, c.Tags = "web-1", "web", services("web")
	}))
	asUser := func() {
		t.Helper()
		parsed, err := resource.Parse([]byte(web), kind.ByName)
		if err == nil {
			_, err = p.writer.Put(t.Context(), parsed, admission.Change{Vouches: func(context.Context) error {
				return resource.Errorf(resource.Forbidden, "not an operator")
			}})
		}
		if err != nil {
			t.Fatal(err)
		}
		p.awaitKnown(parsed.Key())
	}
	const reason = "Dataplane default/web-1 was written by a user who is no operator, so no proxy runs it: register it"
	denied := func(when string) {
		t.Helper()
		t.Log(when)
		wantStatus(t, endOf(p.sessionAs(token)), codes.PermissionDenied, reason)
		_, err := p.sign(token, "web-1")
		wantStatus(t, err, codes.PermissionDenied, reason)
		stream, err := p.discover(token, "default.web-1")
		if err == nil {
			_, err = stream.Recv()
		}
		wantStatus(t, err, codes.PermissionDenied, reason)
		if record := p.dataplane("web-1").Vouched; len(record.Token)+len(record.Operator) > 0 {
			t.Errorf("somebody vouches for %+v", record)
		}
	}
	asUser()
	denied("a new one")
	if err := p.registerAs(token, web); err != nil {
		t.Fatal(err)
	}
	session := p.sessionAs(token)
	p.settings(session, func(*wire.Settings) bool { return true })

	if err := p.writer.Delete(t.Context(), kind.Dataplanes.Key("default", "web-1"), admission.Change{}); err != nil {
		t.Fatal(err)
	}
	asUser()
	if err := endOf(session); err == nil {
		t.Error("the session of the agent goes on")
	}
	denied("one in place of what the agent registered")

	if err := p.writer.Delete(t.Context(), kind.Dataplanes.Key("default", "web-1"), admission.Change{}); err != nil {
		t.Fatal(err)
	}
	p.putAsOperator(web)
	p.settings(p.sessionAs(token), func(*wire.Settings) bool { return true })
}
