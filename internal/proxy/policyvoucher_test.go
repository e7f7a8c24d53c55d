package proxy_test

import (
	"slices"
	"testing"
	"time"

	"weft/internal/graph"
	"weft/internal/graph/graphtest"
	"weft/internal/proxy"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// permissionsOf returns the permissions that apply to the inbound http of the Dataplane web-1, and those that only deny
// with a minus.
func permissionsOf(s *graph.State) []string {
	var names []string
	for _, o := range s.Proxies.PermissionsOf(table.Eval(s.Tables.DB.Snapshot()), "m", dataplaneKey("web-1"), "http") {
		name := o.Name
		if len(o.Spec.Rules[0].Default.Allow) == 0 {
			name = "-" + name
		}
		names = append(names, name)
	}
	return names
}

// denying is a MeshTrafficPermission that denies one caller and allows another.
func denying(name string, target *kind.TargetRef) resource.Any {
	o := permission(name, "friend", target).(*resource.Object[kind.MeshTrafficPermission])
	o.Spec.Rules[0].Default.Deny = []kind.CallerMatch{{SpiffeID: &kind.IDMatch{Type: "Exact", Value: "spiffe://m/x"}}}
	return o
}

// A policy applies to a proxy by what somebody vouches for, so that no proxy reads the policy of another workload. A
// permission that selects it by what it states only denies.
func TestPoliciesNeedVouchers(t *testing.T) {
	web := map[string]string{"app": "web"}
	targets := map[string]*kind.TargetRef{
		"label": dataplanes(web, ""), "name": {Kind: "Dataplane", Name: "web-1"}, "mesh": {Kind: "Mesh"},
		"display": dataplanes(map[string]string{kind.DisplayName: "web-1"}, ""),
		"service": {Kind: "MeshService", Name: "web"},
		"tags":    {Kind: "MeshSubset", Tags: map[string]string{"version": "v1"}},
		"zone":    dataplanes(map[string]string{kind.ZoneLabel: "east"}, ""),
		"section": dataplanes(web, "http"),
	}
	byName, byLabel := []string{"display", "name"}, []string{"label", "section"}
	for _, c := range []struct {
		what    string
		claims  []string
		missing []string // the policies that do not apply
		facts   []string
	}{
		{"nothing", nil, []string{"display", "label", "name", "section", "service", "tags"},
			[]string{"label app=web", "name web-1", "service web", "tag version=v1"}},
		{"another label", []string{kind.LabelFact("app", "api")},
			[]string{"display", "label", "name", "section", "service", "tags"},
			[]string{"label app=web", "name web-1", "service web", "tag version=v1"}},
		{"the label", []string{kind.LabelFact("app", "web")}, append([]string{"service", "tags"}, byName...),
			[]string{"name web-1", "service web", "tag version=v1"}},
		{"the name", []string{kind.NameFact("web-1")}, append([]string{"service", "tags"}, byLabel...),
			[]string{"label app=web", "service web", "tag version=v1"}},
		{"the tags", []string{kind.ServiceFact("web"), kind.TagFact("version", "v1")}, slices.Concat(byName, byLabel),
			[]string{"label app=web", "name web-1"}},
	} {
		t.Run(c.what, func(t *testing.T) {
			labels := map[string]string{kind.DisplayName: "web-1", kind.ZoneLabel: "east"}
			dp := ofApp("web", labels).(*resource.Object[kind.Dataplane])
			slices.Sort(c.claims)
			kind.VouchToken(nil, dp, c.claims)
			s := policyWorld()
			graphtest.Put(s, graphtest.CompleteMesh(nil), dp)
			var want []string
			for name, target := range targets {
				graphtest.Put(s, denying(name, target))
				if slices.Contains(c.missing, name) {
					name = "-" + name
				}
				want = append(want, name)
			}
			got := permissionsOf(s)
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("the permissions are %q, want %q", got, want)
			}
			var missing, facts []string
			for _, of := range s.Proxies.UnvouchedPolicies(table.Eval(s.Tables.DB.Snapshot()), dp) {
				missing = append(missing, of.Key.Name)
				facts = append(facts, of.Missing...)
			}
			slices.Sort(missing)
			slices.Sort(c.missing)
			slices.Sort(facts)
			if facts = slices.Compact(facts); !slices.Equal(missing, c.missing) || !slices.Equal(facts, c.facts) {
				t.Errorf("the policies without a voucher are %q, for %q; want %q, for %q", missing, facts, c.missing,
					c.facts)
			}

			graphtest.Put(s, graphtest.CompleteMesh(&kind.UnvouchedMembers{Tags: true,
				Until: kind.Time{Time: time.Now().AddDate(1, 0, 0)}}))
			if got := permissionsOf(s); len(got) != len(targets) || slices.ContainsFunc(got, func(name string) bool {
				return name[0] == '-'
			}) {
				t.Errorf("in a mesh that exempts tags the permissions are %q", got)
			}
		})
	}
}

// Other policies do not apply at all, and an inbound that drains keeps those that it had by a voucher.
func TestVouchersOfDrainingInbounds(t *testing.T) {
	former := map[string]string{"version": "v0"}
	target := &kind.TargetRef{Kind: "MeshSubset", Tags: former}
	for _, claims := range [][]string{{kind.TagFact("version", "v0")}, nil} {
		dp := ofApp("web", nil).(*resource.Object[kind.Dataplane])
		dp.Spec.Networking.Inbound[1].Tags = former
		kind.VouchToken(nil, dp, claims)
		without := resource.Clone(dp).(*resource.Object[kind.Dataplane])
		without.Spec.Networking.Inbound = without.Spec.Networking.Inbound[:1]
		kind.VouchToken(dp, without, nil)
		status := kind.DataplaneListenerStatuses.Make("m", "web-1", kind.DataplaneListenerStatus{Run: "1",
			Inbounds: []kind.ServedInbound{{Inbound: kind.Inbound{Address: "10.0.0.1", Port: 9090, Name: "old",
				Tags: former}}}})
		timeout := kind.MeshTimeouts.Make("m", "former", kind.MeshTimeout{TargetRef: target})
		s := policyWorld()
		graphtest.Put(s, graphtest.CompleteMesh(nil), without, status, timeout)
		key := proxy.SelectionKey{PoliciesKey: proxy.PoliciesKey{Kind: "MeshTimeout", Mesh: "m"},
			Proxy: dataplaneKey("web-1")}
		selections := s.Proxies.Selections.Get(table.Eval(s.Tables.DB.Snapshot()), key)
		if applies := len(selections) > 0; applies != (len(claims) > 0) {
			t.Errorf("with vouchers for %q, the policy applies to the draining inbound: %t", claims, applies)
		}
	}
}
