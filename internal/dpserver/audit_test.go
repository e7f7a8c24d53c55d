package dpserver_test

import (
	"encoding/json"
	"strings"
	"testing"

	"weft/internal/access"
	"weft/internal/audit"
	"weft/internal/wire"
)

// TestRegistrationsAreRecorded: a registration that changes its Dataplane is recorded with the agent's token, one that
// changes nothing is not.
func TestRegistrationsAreRecorded(t *testing.T) {
	p := newPlane(t)
	for _, address := range []string{"10.0.0.1", "10.0.0.1", "10.0.0.2"} {
		document := strings.ReplaceAll(web, "10.0.0.1", address)
		if _, err := p.agent.Register(p.dataplaneToken("web-1"),
			&wire.RegisterRequest{Dataplane: []byte(document)}); err != nil {
			t.Fatal(err)
		}
	}
	lines := strings.Split(strings.TrimSpace(p.audit.String()), "\n")
	if len(lines) != 2 {
		t.Fatalf("%d entries, want 2:\n%s", len(lines), &p.audit)
	}
	var e audit.Entry
	if err := json.Unmarshal([]byte(lines[1]), &e); err != nil {
		t.Fatal(err)
	}
	if e.User.Name != "Dataplane default/web-1" || e.User.Proof != access.ByDataplaneToken || e.User.TokenID == "" ||
		!strings.HasPrefix(e.From, "127.0.0.1:") || e.Request != "Register" {
		t.Errorf("who: %+v from %s, %s", e.User, e.From, e.Request)
	}
	if !strings.Contains(string(e.Before), "10.0.0.1") || !strings.Contains(string(e.After), "10.0.0.2") ||
		e.VersionBefore == e.VersionAfter {
		t.Errorf("what: %s", lines[1])
	}
}
