package admission_test

import (
	"fmt"
	"testing"

	"weft/internal/admission"
	"weft/kind"
	"weft/resource"
)

// The control plane neither sets nor changes a state, whichever client writes it and whatever its health is. (Adding
func TestStateIsStoredAsWritten(t *testing.T) {
	stateOf := func(o resource.Any) kind.InboundState {
		return o.(*resource.Object[kind.Dataplane]).Spec.Networking.Inbound[0].State
	}
	for _, fields := range []struct {
		state  kind.InboundState
		health string
	}{
		{"", ""}, {"", "health: {ready: false}"}, {"", "healthy: {ready: true}"}, {kind.Ready, ""},
		{kind.Ready, "health: {ready: true}"},
		{kind.NotReady, "health: {ready: false}"}, {kind.NotReady, ""}, {kind.Ignored, ""},
		{kind.Ignored, "health: {ready: false}"},
	} {
		t.Run(fmt.Sprintf("%q with %s", fields.state, fields.health), func(t *testing.T) {
			w, rows := newEastWriter(t)
			document := fmt.Sprintf(`{type: Dataplane, mesh: m, name: web, networking: {address: 10.0.0.1, inbound: `+
				`[{port: 80, state: %q, %s}]}}`, fields.state, fields.health)
			agent := admission.Token{
				Claimed: func(*resource.Object[kind.Dataplane]) []string { return nil },
				Allows:  func(_, _ *resource.Object[kind.Dataplane]) error { return nil },
			}
			for by, change := range map[string]admission.Change{"a user": {}, "an agent": {Token: &agent},
				"the control plane": {ControlPlane: true}} {
				if _, err := w.Put(t.Context(), parse(t, document), change); err != nil {
					t.Fatal(err)
				}
				row, err := rows.Get(t.Context(), kind.Dataplanes.Key("m", "web"))
				if err != nil {
					t.Fatal(err)
				}
				o, err := admission.Decode(row)
				if err != nil {
					t.Fatal(err)
				}
				if got := stateOf(o); got != fields.state {
					t.Errorf("%s wrote %q, and %q is stored", by, fields.state, got)
				}
			}
		})
	}
}
