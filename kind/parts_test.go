package kind_test

import (
	"fmt"
	"reflect"
	"testing"

	"weft/kind"
)

// TestPartsOfAPermission: its rules are parts, with the matches of each, and its confs are those of the resource.
func TestPartsOfAPermission(t *testing.T) {
	sni := &kind.SNIMatch{Type: "Exact", Value: "a.mesh"}
	target := &kind.TargetRef{Kind: "Dataplane", Name: "web-1"}
	o := kind.MeshTrafficPermissions.Make("default", "web", kind.MeshTrafficPermission{
		TargetRef: target,
		Rules:     []kind.PermissionRule{{}, {Matches: []kind.PermissionMatch{{SNI: sni}}}},
	})
	parts := kind.MeshTrafficPermissions.Parts(o)
	if parts.TargetRef != target || len(parts.To) > 0 || parts.Default != nil || len(parts.Rules) != 2 {
		t.Fatalf("the parts are %+v, want the target and two rules", parts)
	}
	for i, rule := range parts.Rules {
		if rule.Conf != any(&o.Spec.Rules[i].Default) {
			t.Errorf("the conf of rule %d is not the one of the resource", i)
		}
	}
	if got := parts.Rules; len(got[0].Matches) > 0 || len(got[1].Matches) != 1 || got[1].Matches[0].SNI != sni {
		t.Errorf("the rules are %+v, want the SNI in the second one", got)
	}
}

// TestPolicies: each kind of policies splits resources of its own kind, and has confs of one type.
func TestPolicies(t *testing.T) {
	policies := kind.Policies()
	if len(policies) == 0 {
		t.Fatal("no kind is a policy")
	}
	for _, p := range policies {
		p.Parts(p.New()) // panics for another kind's
		if p.Conf() == p.Conf() {
			t.Errorf("%s: two empty confs are the same one", p.Describe().Name)
		}
		if got := fmt.Sprintf("%T", kind.ByName(p.Describe().Name)); got != fmt.Sprintf("%T", p) {
			t.Errorf("%s is a %s by its name", p.Describe().Name, got)
		}
	}
}

// TestPartsOfATimeout: its to items are parts, with the confs of the resource.
func TestPartsOfATimeout(t *testing.T) {
	target := &kind.TargetRef{Kind: "Dataplane", Name: "web-1"}
	to := kind.DestinationRef{Kind: "MeshService", Name: "api", SectionName: "http"}
	o := kind.MeshTimeouts.Make("default", "web", kind.MeshTimeout{
		TargetRef: target, To: []kind.ToItem[kind.TimeoutConf]{{TargetRef: to}},
	})
	parts := kind.MeshTimeouts.Parts(o)
	if parts.TargetRef != target || len(parts.Rules) > 0 || parts.Default != nil || len(parts.To) != 1 {
		t.Fatalf("the parts are %+v, want the target and one to item", parts)
	}
	if got := parts.To[0]; got.Conf != any(&o.Spec.To[0].Default) ||
		!reflect.DeepEqual(got.TargetRef, to) {
		t.Errorf("the to item is %+v", got)
	}
}

// TestPartsOfARetry: its to items are parts, with the confs of the resource.
func TestPartsOfARetry(t *testing.T) {
	to := kind.DestinationRef{Kind: "Mesh"}
	o := kind.MeshRetries.Make("default", "web", kind.MeshRetry{To: []kind.ToItem[kind.RetryConf]{{TargetRef: to}}})
	parts := kind.MeshRetries.Parts(o)
	if parts.TargetRef != nil || len(parts.Rules) > 0 || parts.Default != nil || len(parts.To) != 1 ||
		parts.To[0].Conf != any(&o.Spec.To[0].Default) || parts.To[0].TargetRef.Kind != "Mesh" {
		t.Fatalf("the parts are %+v, want one to item", parts)
	}
}
