package e2e

import (
	"fmt"
	"testing"

	"weft/internal/traffic"
)

// editedPolicies are the kinds whose policies are edited under load, each with its one policy. Edits of the last two
// drain filter chains.
var editedPolicies = []struct {
	name, kind, policy string
	edit               func(w *world, url string)
}{
	{"MeshTimeout", "meshtimeout", "t", (*world).editTimeout},
	{"MeshTimeout-received", "meshtimeout", "t", (*world).editReceivedTimeout},
	{"MeshCircuitBreaker", "meshcircuitbreaker", "b", (*world).editCircuitBreaker},
	{"MeshCircuitBreaker-received", "meshcircuitbreaker", "t", (*world).editReceivedCircuitBreaker},
	{"MeshHealthCheck", "meshhealthcheck", "h", (*world).editHealthCheck},
	{"MeshRetry", "meshretry", "r", (*world).editRetry},
	{"MeshLoadBalancingStrategy", "meshloadbalancingstrategy", "b", (*world).editLoadBalancingStrategy},
	{"MeshRateLimit", "meshratelimit", "t", (*world).editRateLimit},
	{"MeshFaultInjection", "meshfaultinjection", "t", (*world).editFaultInjection},
	{"MeshProxyPatch", "meshproxypatch", "p", (*world).editPatch},
	{"MeshTLS", "meshtls", "t", (*world).editTLS},
	{"MeshProxyPatch-listeners", "meshproxypatch", "p", (*world).editListenerPatch},
}

// TestDrillPoliciesAreEdited: in a service of two instances and its client, a policy of each kind in turn is created,
// edited under load and deleted.
func TestDrillPoliciesAreEdited(t *testing.T) {
	w := newWorld(t)
	w.service(2, 18080, "web-1")
	w.service(4, 18080, "web-2")
	_, url := w.pair()
	for _, of := range editedPolicies {
		t.Run(of.name, func(t *testing.T) {
			defer func(t *testing.T) { w.t = t }(w.t)
			w.t = t
			of.edit(w, url)
			if _, err := w.weft("delete", of.kind, of.policy); err != nil {
				t.Fatal(err)
			}
			w.eventually("requests pass without the policy", func() error {
				return w.respondedBy(url, "web-1", "web-2")
			})
		})
	}
}

// clusterChanges counts the changed clusters of a proxy.
const clusterChanges = `cluster_manager\.cluster_modified`

// listenerChanges counts the changed listeners of a proxy.
const listenerChanges = `listener_manager\.listener_(modified|in_place_updated|removed|added)`

// draining counts the listeners and filter chains of a proxy whose connections will be closed.
const draining = `listener_manager\.total_(filter_chains|listeners)_draining`

// editUnder edits a policy of a proxy ten times under requests. Each edit changes a statistic of the proxy; none fails
// a request or changes a listener.
func (w *world) editUnder(load traffic.Send, proxy, policy, statistic string, edited func(i int) string) {
	before := w.counter(proxy, listenerChanges)
	d := w.drill(policy+" is edited, ten times", load)
	for i := range 10 {
		edits := w.counter(proxy, statistic)
		w.apply(edited(i))
		w.eventually("the edit has arrived", func() error {
			if now := w.counter(proxy, statistic); now <= edits {
				return fmt.Errorf("%s is %d", statistic, now)
			}
			return nil
		})
		d.more(20)
	}
	d.more(50)
	d.end()
	if after := w.counter(proxy, listenerChanges); after != before {
		w.t.Errorf("the edits changed listeners: %d changes before, %d after", before, after)
	}
	if n := w.counter(proxy, draining); n > 0 {
		w.t.Errorf("%d listeners and filter chains drain", n)
	}
}
