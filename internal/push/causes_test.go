package push

import (
	"slices"
	"testing"
	"time"

	"weft/internal/state"
	"weft/internal/xds"
	"weft/kind"
	"weft/resource"
)

// timeoutOf is a MeshTimeout for connection attempts to a service.
func timeoutOf(name, service string, d time.Duration) resource.Any {
	timeout := kind.Duration(d)
	return kind.MeshTimeouts.Make(mesh, name, kind.MeshTimeout{To: []kind.ToItem[kind.TimeoutConf]{{
		TargetRef: kind.DestinationRef{Kind: "MeshService", Name: service},
		Default:   kind.TimeoutConf{ConnectionTimeout: &timeout},
	}}})
}

func TestEveryResourceLeadsBackToWhatItWasMadeOf(t *testing.T) {
	hub, _, _ := newHub(t, never{})
	identity := kind.MeshIdentities.Make(mesh, "all", kind.MeshIdentity{
		Selector: &kind.IdentitySelector{Dataplane: &kind.LabelSelector{MatchLabels: map[string]string{}}},
		Provider: kind.IdentityProvider{Type: "Bundled"},
	})
	trust := func(name, domain string) *kind.MeshTrust {
		return &kind.MeshTrust{TrustDomain: domain,
			CABundles: []kind.CABundle{{Type: "Pem", PEM: &kind.PEMBundle{Value: name}}}}
	}
	put(hub, identity, withSNI("a.web.8080.default.ms"), zoneIngressOf("ingress", "10.0.0.7"),
		server("web-1", "10.0.0.1", "web", 8080), serving("web-1", "10.0.0.1", 8080),
		kind.MeshTrusts.Make(mesh, "one", *trust("one", "one.local")),
		kind.MeshTrusts.Make(mesh, "two", *trust("two", "two.local")),
		kind.MeshTrafficPermissions.Make(mesh, "all", kind.MeshTrafficPermission{}),
		kind.MeshTrafficPermissions.Make(mesh, "web-1s",
			kind.MeshTrafficPermission{TargetRef: &kind.TargetRef{Kind: "Dataplane", Name: "web-1"}}),
		kind.MeshTrafficPermissions.Make(mesh, "others",
			kind.MeshTrafficPermission{TargetRef: &kind.TargetRef{Kind: "Dataplane", Name: "other"}}),
		kind.MeshServiceStatuses.Make(mesh, "web",
			kind.MeshServiceStatus{VIPs: []kind.VIP{{IP: "241.0.0.1"}, {IP: "241.0.0.2"}}}),
		timeoutOf("slow", "web", time.Minute), timeoutOf("other", "other", time.Minute),
	)
	service := []kind.Cause{{Kind: "MeshService", Name: "web"}}
	bounded := append(slices.Clone(service), kind.Cause{Kind: "MeshTimeout", Name: "slow"})
	one, two := kind.Cause{Kind: "MeshTrust", Name: "one"}, kind.Cause{Kind: "MeshTrust", Name: "two"}
	permissions := []kind.Cause{{Kind: "MeshTrafficPermission", Name: "all"},
		{Kind: "MeshTrafficPermission", Name: "web-1s"}}
	want := map[xds.Key][]kind.Cause{
		{Type: xds.Cluster, Name: "kri_msvc_default_default__web_8080"}:   bounded,
		{Type: xds.Endpoint, Name: "kri_msvc_default_default__web_8080"}:  service,
		{Type: xds.Listener, Name: "vip_241.0.0.1_8080"}:                  bounded,
		{Type: xds.Extension, Name: "kri_msvc_default_default__web_8080"}: bounded,
		{Type: xds.Listener, Name: "vip_241.0.0.2_8080"}:                  bounded,
		{Type: xds.Cluster, Name: "a.web.8080.default.ms"}:                service,
		{Type: xds.Endpoint, Name: "a.web.8080.default.ms"}:               service,
		{Type: xds.Extension, Name: "self_permission_tcp_8080"}:           permissions,
		{Type: xds.Secret, Name: "system_trust_bundle"}:                   {one, two},
		{Type: xds.Secret, Name: "system_trust_bundle_of_one.local"}:      {one},
		{Type: xds.Secret, Name: "system_trust_bundle_of_two.local"}:      {two},
	}
	seen := map[xds.Key]bool{}
	for _, proxy := range []string{"web-1", "client", "ingress"} {
		key := state.ProxyKey{Mesh: mesh, Name: proxy}
		resources, _ := hub.Inspector.Config(key)
		for _, r := range resources {
			id := xds.Key{Type: r.Type, Name: r.Name}
			if got := hub.Rows.Causes(key, r.Type, r.Name); !slices.Equal(got, want[id]) {
				t.Errorf("the %s %s of %s comes of %v, want %v", r.Type, r.Name, proxy, got, want[id])
			}
			seen[id] = true
		}
	}
	for id := range want {
		if !seen[id] {
			t.Errorf("no proxy has the %s %s", id.Type, id.Name)
		}
	}
}
