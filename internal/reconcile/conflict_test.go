package reconcile

import (
	"fmt"
	"testing"
	"time"

	"weft/kind"
)

// waits is a MeshRetry whose item about a target has the intervals of waits; 0 leaves one to other policies.
func waits(of, name string, base, longest time.Duration) kind.MeshRetry {
	b := &kind.BackOff{}
	if base > 0 {
		b.BaseInterval = (*kind.Duration)(&base)
	}
	if longest > 0 {
		b.MaxInterval = (*kind.Duration)(&longest)
	}
	return kind.MeshRetry{To: []kind.ToItem[kind.RetryConf]{{
		TargetRef: kind.DestinationRef{Kind: of, Name: name},
		Default:   kind.RetryConf{HTTP: &kind.HTTPRetries{RequestRetries: kind.RequestRetries{BackOff: b}}},
	}}}
}

// TestAPolicyThatContradictsAnotherIsNotAccepted: the more specific policy has the condition as long as it contradicts
// another one for a Dataplane of the mesh.
func TestAPolicyThatContradictsAnotherIsNotAccepted(t *testing.T) {
	w := newWorld(t, "241.0.0.0/8")
	ports := []kind.ServicePort{{Port: 80, AppProtocol: kind.HTTP}, {Port: 81, AppProtocol: kind.HTTP}}
	w.put(
		kind.MeshServices.Make("default", "web", kind.MeshService{Ports: ports}),
		kind.MeshServices.Make("default", "other", kind.MeshService{Ports: ports}),
		kind.MeshRetries.Make("default", "all", waits("Mesh", "", time.Second, 0)),
		kind.MeshRetries.Make("default", "web", waits("MeshService", "web", 0, time.Millisecond)),
	)
	expect := func(when string, want map[string]string) {
		t.Helper()
		for _, name := range []string{"all", "web"} {
			w.reconcile("MeshRetry", name)
			got := ""
			statuses := w.plan.State.Tables.PolicyRows["MeshRetry"].Statuses
			if status, ok := statuses.Find(w.reader(), "default", name); ok {
				for _, c := range status.Spec.Conditions {
					got += fmt.Sprintf("%s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message)
				}
			}
			if got != want[name] {
				t.Errorf("%s: %s has the condition\n  %s, want\n  %s", when, name, got, want[name])
			}
		}
	}
	const rejected = "Accepted=False InvalidCombination: spec.to[0] has no effect on traffic to MeshService web:80: " +
		"with the policies that it is merged with, http.backOff.maxInterval is 1ms, which is below the baseInterval " +
		"of 1s, and for 1 more"
	expect("without a Dataplane", nil)
	w.put(kind.Dataplanes.Make("default", "client", kind.Dataplane{Networking: kind.Networking{Address: "10.0.0.1"}}))
	expect("with a Dataplane", map[string]string{"web": rejected})
	w.put(kind.MeshRetries.Make("default", "web", waits("MeshService", "web", time.Millisecond, time.Millisecond)))
	expect("after the policy has both", nil)
	w.put(kind.MeshRetries.Make("default", "web", waits("MeshService", "web", 0, time.Minute)))
	expect("after another longest wait", nil)
}
