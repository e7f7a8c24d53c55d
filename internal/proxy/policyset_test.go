package proxy_test

import (
	"fmt"
	"strings"
	"testing"

	"weft/internal/graph"
	"weft/internal/graph/graphtest"
	"weft/internal/proxy"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// testPolicy is a policy of a kind that no release has: with a to item or with a rule.
type testPolicy struct {
	TargetRef *kind.TargetRef
	Inbound   bool
	Timeout   testConf
}

type testConf struct{ Seconds *int }

var testPolicies = &kind.PolicyKind[testPolicy, testConf]{
	Kind: resource.Kind[testPolicy]{Info: resource.Info{Name: "MeshTest", Scope: resource.Mesh}},
	Split: func(p *testPolicy) kind.Parts {
		parts := kind.Parts{TargetRef: p.TargetRef}
		if p.Inbound {
			parts.Rules = []kind.RulePart{{Conf: &p.Timeout}}
		} else {
			parts.To = []kind.ToPart{{TargetRef: kind.DestinationRef{Kind: "Mesh"}, Conf: &p.Timeout}}
		}
		return parts
	},
	Statuses: &resource.Kind[kind.PolicyStatus]{Info: resource.Info{Name: "MeshTestStatus", Scope: resource.Mesh}},
}

// TestProxyGroupsByPolicies: proxies with the same outbound policies are one proxy group, and those with other ones
// another. Rules and confs have no effect on the groups.
func TestProxyGroupsByPolicies(t *testing.T) {
	s := graph.NewState("east")
	s.Tables.AddPolicies(testPolicies)
	put := func(rows ...resource.Any) {
		graphtest.Put(s, rows...)
	}
	web := &kind.TargetRef{Kind: "Dataplane", Labels: map[string]string{"app": "web"}}
	named := &kind.TargetRef{Kind: "Dataplane", Name: "web-1"}
	section := &kind.TargetRef{Kind: "Dataplane", SectionName: "8080"}
	policy := func(name string, target *kind.TargetRef, timeout int) resource.Any {
		return testPolicies.Make("m", name, testPolicy{TargetRef: target, Timeout: testConf{&timeout}})
	}
	put(kind.Meshes.Make("", "m", kind.Mesh{}))
	for _, name := range []string{"api-1", "web-1", "web-2"} {
		o := kind.Dataplanes.Make("m", name, kind.Dataplane{Networking: kind.Networking{
			Address: "10.0.0.1", TransparentProxying: &kind.TransparentProxying{},
			Inbound: []kind.Inbound{{Port: 8080}},
		}})
		o.Labels = map[string]string{"app": name[:3]}
		put(o)
		s.Proxies.Proxy.Pin(state.ProxyKey{Mesh: "m", Name: name})
	}
	plain, _ := s.Proxies.Proxy.Value(state.ProxyKey{Mesh: "m", Name: "api-1"})

	for _, c := range []struct {
		name   string
		change []resource.Any
		want   string // the proxies by group, each with its set
		woken  int    // proxies that are computed
	}{
		{"no policy", nil, "api-1 web-1 web-2: {}", 0},
		{"a permission",
			[]resource.Any{kind.MeshTrafficPermissions.Make("m", "p", kind.MeshTrafficPermission{})},
			"api-1 web-1 web-2: {}", 0},
		{"a policy with rules", []resource.Any{testPolicies.Make("m", "rules", testPolicy{TargetRef: web,
			Inbound: true})}, "api-1 web-1 web-2: {}", 3},
		{"a policy of some proxies", []resource.Any{policy("web", web, 1)},
			"api-1: {} / web-1 web-2: {MeshTest m/web}", 3},
		{"another conf", []resource.Any{policy("web", web, 2)}, "api-1: {} / web-1 web-2: {MeshTest m/web}", 0},
		{"a policy of one proxy", []resource.Any{policy("one", named, 1)},
			"api-1: {} / web-1: {MeshTest m/one, MeshTest m/web} / web-2: {MeshTest m/web}", 1},
		{"a policy of all", []resource.Any{policy("one", nil, 1)},
			"api-1: {MeshTest m/one} / web-1 web-2: {MeshTest m/one, MeshTest m/web}", 3},
		{"a policy of a section of all", []resource.Any{policy("one", section, 1)},
			"api-1: {MeshTest m/one} / web-1 web-2: {MeshTest m/one, MeshTest m/web}", 3},
		{"one of them with rules", []resource.Any{testPolicies.Make("m", "web", testPolicy{TargetRef: web,
			Inbound: true})}, "api-1 web-1 web-2: {MeshTest m/one}", 2},
		{"both with rules", []resource.Any{testPolicies.Make("m", "one", testPolicy{Inbound: true})},
			"api-1 web-1 web-2: {}", 3},
	} {
		woken := 0
		s.Tables.DB.Observe(func(stage table.Stage) {
			if stage.Table == s.Proxies.Proxy.String() {
				woken += stage.Recomputed
			}
		})
		put(c.change...)
		var groups []proxy.Group
		members := map[proxy.Group][]string{}
		for _, name := range []string{"api-1", "web-1", "web-2"} {
			p, _ := s.Proxies.Proxy.Value(state.ProxyKey{Mesh: "m", Name: name})
			if members[p.Group] == nil {
				groups = append(groups, p.Group)
			}
			members[p.Group] = append(members[p.Group], name)
		}
		var got []string
		for _, group := range groups {
			got = append(got, fmt.Sprintf("%s: {%s}", strings.Join(members[group], " "), group.Policies))
		}
		if got := strings.Join(got, " / "); got != c.want || woken != c.woken {
			t.Errorf(
				"with %s, the groups are %s and %d proxies are computed; want %s and %d",
				c.name,
				got,
				woken,
				c.want,
				c.woken,
			)
		}
	}
	if p, _ := s.Proxies.Proxy.Value(state.ProxyKey{Mesh: "m", Name: "api-1"}); p.Group != plain.Group {
		t.Errorf("without policies, the group is %+v, and it was %+v", p.Group, plain.Group)
	}
}

// TestPolicySets: the order and repetitions of policies have no effect, and names of groups show the policies.
func TestPolicySets(t *testing.T) {
	a, b := testPolicies.Key("m", "a"), testPolicies.Key("m", "b")
	if proxy.PolicySetOf([]resource.Key{a, b}) != proxy.PolicySetOf([]resource.Key{b, a, b}) {
		t.Error("equal sets differ")
	}
	if proxy.PolicySetOf([]resource.Key{a}) == proxy.PolicySetOf([]resource.Key{b}) ||
		proxy.PolicySetOf(nil) != (proxy.PolicySet{}) {
		t.Error("different sets are equal, or the empty set is not the zero value")
	}
	route, named := kind.MeshTCPRoutes.Key("m", "a"), testPolicies.Key("m", "MeshTCPRoute")
	if !proxy.PolicySetOf([]resource.Key{a, route}).Routes() || proxy.PolicySetOf([]resource.Key{b, named}).Routes() {
		t.Error("a set with a route does not route, or a set without one does")
	}
	of := proxy.Group{Mesh: "m", Policies: proxy.PolicySetOf([]resource.Key{a})}
	if got := fmt.Sprintf("%+v", of); !strings.HasSuffix(got, "Policies:MeshTest m/a}") {
		t.Errorf("a group reads %s, without its policies", got)
	}
	if of.ShortName() == (proxy.Group{Mesh: "m"}).ShortName() {
		t.Error("groups with different policies have the same short name")
	}
	if text, err := of.Policies.MarshalText(); string(text) != "MeshTest m/a" || err != nil {
		t.Errorf("the set is written as %q, %v", text, err)
	}
}

// TestPolicySelectsByNamespace: on Kubernetes a Dataplane is NAME.NAMESPACE, and a policy selects it by its name and
// its namespace.
func TestPolicySelectsByNamespace(t *testing.T) {
	s := graph.NewState("east")
	s.Tables.AddPolicies(testPolicies)
	s.Tables.DB.Commit(func(tx *table.Tx) {
		s.Tables.Put(tx, kind.Meshes.Make("", "m", kind.Mesh{}))
		for _, namespace := range []string{"pay", "shop"} {
			dp := kind.Dataplanes.Make("m", "web-1."+namespace, kind.Dataplane{})
			dp.Labels = map[string]string{kind.DisplayName: "web-1", kind.NamespaceLabel: namespace}
			s.Tables.Put(tx, dp)
			s.Proxies.Proxy.Pin(state.ProxyKey{Mesh: "m", Name: dp.Name})
		}
		target := &kind.TargetRef{Kind: "Dataplane", Name: "web-1", Namespace: "pay"}
		policy := testPolicy{TargetRef: target, Timeout: testConf{new(int)}}
		s.Tables.Put(tx, testPolicies.Make("m", "p.kuma-system", policy))
	})
	for name, selected := range map[string]bool{"web-1.pay": true, "web-1.shop": false} {
		p, _ := s.Proxies.Proxy.Value(state.ProxyKey{Mesh: "m", Name: name})
		if got := p.Group.Policies != (proxy.PolicySet{}); got != selected {
			t.Errorf("the policy selects %s: %t, want %t", name, got, selected)
		}
	}
}
