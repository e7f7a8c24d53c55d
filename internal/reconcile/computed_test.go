package reconcile

import (
	"fmt"
	"strings"
	"testing"

	"weft/kind"
	"weft/resource"
)

// stored returns the conditions of a stored status as texts, and the zone egress of an external service.
func (c *cluster) stored(key resource.Key) string {
	var parts []string
	switch o := c.rows[key].(type) {
	case *resource.Object[kind.PolicyStatus]:
		for _, condition := range o.Spec.Conditions {
			parts = append(parts, fmt.Sprintf("%s=%s:%s", condition.Type, condition.Status, condition.Reason))
		}
	case *resource.Object[kind.MeshExternalServiceStatus]:
		for _, condition := range o.Spec.Conditions {
			parts = append(parts, fmt.Sprintf("%s=%s:%s", condition.Type, condition.Status, condition.Reason))
		}
		if egress := o.Spec.ZoneEgress; egress != nil {
			parts = append(parts, fmt.Sprintf("%s:%d", egress.Address, egress.Port))
		}
	}
	return strings.Join(parts, " ")
}

// TestComputedStatuses: what a pass computes of a status is stored on Kubernetes, where it has changed. A leader that
// has not computed it yet removes nothing, and a rejection counts more than what was computed.
func TestComputedStatuses(t *testing.T) {
	c := newCluster(t, kubernetesSettings())
	policy := kind.MeshTimeouts.Make("default", "t.shop", kind.MeshTimeout{})
	external := kind.MeshExternalServices.Make("default", "api.kuma-system", kind.MeshExternalService{
		Match: kind.ExternalMatch{Port: 443, Protocol: kind.TCP}})
	c.user(kind.Meshes.Make("", "default", kind.Mesh{}), policy, external)
	c.synced(true)
	c.drain()
	policyStatus := kind.MeshTimeouts.Statuses.Key("default", policy.Name)
	externalStatus := kind.MeshExternalServiceStatuses.Key("default", external.Name)
	want := func(when, ofPolicy, ofExternal string) {
		t.Helper()
		if got := c.stored(policyStatus); got != ofPolicy {
			t.Errorf("%s: the policy has %q, want %q", when, got, ofPolicy)
		}
		if got := c.stored(externalStatus); got != ofExternal {
			t.Errorf("%s: the external service has %q, want %q", when, got, ofExternal)
		}
	}
	want("before a pass", "", "")
	condition := func(of, status, reason string) kind.Condition {
		return kind.Condition{Type: of, Status: status, Reason: reason}
	}
	pass := func() []*ComputedStatus {
		return []*ComputedStatus{
			{Of: policy.Key(), Conditions: []kind.Condition{condition(kind.AcceptedCondition, "True", "Accepted"),
				condition(kind.AppliedCondition, "False", "NoProxySelected")}},
			{Of: external.Key(), Conditions: []kind.Condition{condition("Reachable", "True", "EgressReady")},
				ZoneEgress: &kind.ServiceEgress{Address: "10.0.0.9", Port: 10002, SNI: "x"}},
		}
	}
	const applied, reached = "Accepted=True:Accepted Applied=False:NoProxySelected",
		"Reachable=True:EgressReady 10.0.0.9:10002"
	c.rc.SetComputed(pass())
	c.drain()
	want("after a pass", applied, reached)
	before, revision := c.rows[policyStatus].Envelope().Version, c.plan.State.Tables.DB.Snapshot().Revision
	c.rc.SetComputed(pass())
	if c.plan.State.Tables.DB.Snapshot().Revision != revision {
		t.Error("an equal pass is committed")
	}
	c.rc.SetComputed(nil) // as at the begin of another leader
	c.drain()
	want("before the pass of the next leader", applied, reached)
	if c.rows[policyStatus].Envelope().Version != before {
		t.Error("the status is written again, although it has not changed")
	}
	cause := kind.Cause{Kind: policy.Key().Kind, Name: policy.Name}
	c.user(c.dataplane("web-1", "10.0.0.1", "web"), c.nackingProxy("web-1", "no", cause))
	c.rc.SetComputed(pass())
	c.drain()
	want("a proxy rejects it", "Accepted=False:RejectedByProxies Applied=False:NoProxySelected", reached)
	unreachable := pass()[:1]
	unreachable = append(unreachable, &ComputedStatus{Of: external.Key(),
		Conditions: []kind.Condition{condition("Reachable", "False", "NoEgressReady")}})
	c.rc.SetComputed(unreachable)
	c.drain()
	want("no egress is ready", "Accepted=False:RejectedByProxies Applied=False:NoProxySelected",
		"Reachable=False:NoEgressReady")
}
