package proxy_test

import (
	"slices"
	"testing"

	"weft/internal/graph"
	"weft/internal/graph/graphtest"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
)

// A rule matches a caller of a remote zone that changes its SPIFFE ID there. This zone has no Dataplane of the caller.
func TestRulesOfChangingRemoteCallers(t *testing.T) {
	const old, next = "spiffe://default.west.mesh.local/old/client", "spiffe://default.west.mesh.local/new/client"
	s := graph.NewState("east")
	s.Tables.DB.Commit(func(tx *table.Tx) {
		s.Tables.Put(tx, kind.Meshes.Make("", "default", kind.Mesh{}))
		s.Tables.Put(tx,
			kind.Dataplanes.Make("default", "web-1",
				kind.Dataplane{Networking: kind.Networking{Address: "10.0.0.1",
					Inbound: []kind.Inbound{{Port: 80, ServicePort: 8080}}}}))
		s.Tables.Put(tx, kind.MeshIdentities.Make("default", "id", kind.MeshIdentity{
			Selector: &kind.IdentitySelector{Dataplane: &kind.LabelSelector{}},
			Provider: kind.IdentityProvider{Type: "Bundled"},
		}))
		s.Tables.Put(tx, kind.MeshTrafficPermissions.Make("default", "clients",
			kind.MeshTrafficPermission{Rules: []kind.PermissionRule{{
				Default: kind.PermissionDefault{
					Allow: []kind.CallerMatch{{SpiffeID: &kind.IDMatch{Type: "Exact", Value: old}}}},
			}}}))
		s.Tables.Put(tx, kind.ChangingIdentitiesList.Make("default", "west",
			kind.ChangingIdentities{Workloads: [][]string{{next, old}}}))
	})
	proxy := s.Proxies.Proxy.Get(table.Eval(s.Tables.DB.Snapshot()), state.ProxyKey{Mesh: "default", Name: "web-1"})
	if also := proxy.Listeners[0].Permissions.Allow[0].OtherIDs; !slices.Equal(also, []string{next}) {
		t.Errorf("the rule holds for %v too, want %s", also, next)
	}
}

// A zone proxy section without a voucher takes a token that claims the section.
func TestTokenOfAnUnvouchedSection(t *testing.T) {
	dp := kind.Dataplanes.Make("default", "web-1", kind.Dataplane{Networking: kind.Networking{
		ZoneEgress: &kind.ZoneEgressSection{Address: "10.0.0.1", Port: 10002}}})
	s := graph.NewState("east")
	graphtest.Put(s, kind.Meshes.Make("", "default", kind.Mesh{}), dp)
	sections := s.Proxies.Proxy.Get(table.Eval(s.Tables.DB.Snapshot()), state.ProxyKey{Mesh: "default",
		Name: "web-1"}).Required
	if want := kind.SectionFacts(&dp.Spec.Networking); len(sections.Operator) > 0 ||
		!slices.Equal(sections.Token, want) {
		t.Errorf("the sections are %+v, want %q of the token", sections, want)
	}
}
