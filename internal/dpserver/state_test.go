package dpserver_test

import (
	"fmt"
	"testing"

	"weft/internal/admission"
	"weft/internal/wire"
	"weft/kind"
	"weft/resource"
)

// TestNoReportChangesAState: the owner sets the state of an inbound, and reports of an agent are stored in other rows.
// (Adding inbounds in runtime.)
func TestNoReportChangesAState(t *testing.T) {
	for _, state := range []kind.InboundState{"", kind.Ready, kind.NotReady, kind.Ignored} {
		t.Run("state "+string(state), func(t *testing.T) {
			p := newPlane(t)
			document := fmt.Sprintf(`{type: Dataplane, mesh: default, name: web-1, labels: {kuma.io/workload: web},
				networking: {address: 10.0.0.1, inbound: [{port: 8080, state: %q, tags: {kuma.io/service: web}},
				{port: 8081, tags: {kuma.io/service: web}}]}}`, state)
			if _, err := p.agent.Register(p.web1Token(),
				&wire.RegisterRequest{Dataplane: []byte(document)}); err != nil {
				t.Fatal(err)
			}
			before := p.storedDataplane()
			stream, settings := p.session("run-1")
			report := func(healthy, draining bool) {
				var seen []*wire.ReadyListener
				for _, l := range settings.Listeners {
					seen = append(seen, &wire.ReadyListener{Address: l.Address, Port: l.Port, Generation: l.Generation,
						Healthy: healthy})
				}
				p.send(stream, &wire.Report{Run: "run-1", ReadyListeners: seen, Draining: draining})
				stored(p, kind.DataplaneListenerStatuses, func(s kind.DataplaneListenerStatus) bool {
					unhealthy := len(s.Inbounds) > 0 && s.Inbounds[0].Unhealthy
					return len(s.Inbounds) == len(settings.Listeners) && unhealthy == !healthy && s.Draining == draining
				})
			}
			report(true, false)
			report(false, false)
			report(true, true)
			after := p.storedDataplane()
			if after.Version != before.Version || after.Spec.Networking.Inbound[0].State != state {
				t.Errorf("the Dataplane was written: version %s after %s, state %q", after.Version, before.Version,
					after.Spec.Networking.Inbound[0].State)
			}
		})
	}
}

// storedDataplane returns the stored web-1.
func (p *plane) storedDataplane() *resource.Object[kind.Dataplane] {
	p.t.Helper()
	row, err := p.rows.Get(p.t.Context(), kind.Dataplanes.Key("default", "web-1"))
	if err != nil {
		p.t.Fatal(err)
	}
	o, err := admission.Decode(row)
	if err != nil {
		p.t.Fatal(err)
	}
	return o.(*resource.Object[kind.Dataplane])
}
