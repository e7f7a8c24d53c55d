package push

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"weft/internal/proxy"
	"weft/internal/sni"
	"weft/internal/state"
	"weft/internal/xds"
	"weft/kind"
	"weft/resource"
)

// zoneEgress returns a zone egress.
func zoneEgress(name, address string) resource.Any {
	return kind.Dataplanes.Make(mesh, name, kind.Dataplane{Networking: kind.Networking{
		ZoneEgress: &kind.ZoneEgressSection{Address: address, Port: 10002, Name: "ze-port"},
	}})
}

// externalService returns an external service at an address.
func externalService(name, address string) resource.Any {
	return kind.MeshExternalServices.Make(mesh, name, kind.MeshExternalService{
		Match:     kind.ExternalMatch{Port: 443, Protocol: kind.HTTP},
		Endpoints: []kind.ExternalEndpoint{{Address: address, Port: 443}},
	})
}

func everybody() resource.Any {
	return kind.MeshIdentities.Make(mesh, "identity", kind.MeshIdentity{
		Selector: &kind.IdentitySelector{Dataplane: &kind.LabelSelector{}},
		Provider: kind.IdentityProvider{Type: "Bundled"},
	})
}

func TestEgressesOfAMeshShareHowTheyDialTheOutside(t *testing.T) {
	hub, _, _ := newHub(t, never{})
	put(hub, everybody(), zoneEgress("one", "10.0.0.1"), zoneEgress("two", "10.0.0.2"),
		externalService("api", "192.0.2.1"))
	one, two := watched(t, hub, "one"), watched(t, hub, "two")
	if a, b := hub.Proxies.setsOf(hub.Proxies.used[one])[1], hub.Proxies.setsOf(hub.Proxies.used[two])[1]; a != b {
		t.Error("each egress has clusters of its own")
	}
	if got := namesOf(hub, one, xds.Cluster); !slices.Contains(got, "kri_extsvc_default_default__api_443_external") {
		t.Errorf("it has the clusters %v", got)
	}
	own := hub.Proxies.used[one].own
	put(hub, externalService("api", "192.0.2.2"))
	if hub.Proxies.used[one].own != own {
		t.Error("where a service is touches what an egress has for itself, the listener included")
	}
}

// An egress without an identity could not prove who it is, so it has no listener.
func TestAnEgressWithoutAnIdentityHasNoListener(t *testing.T) {
	hub, _, _ := newHub(t, never{})
	put(hub, zoneEgress("one", "10.0.0.1"), externalService("api", "192.0.2.1"))
	key := watched(t, hub, "one")
	if got := append(namesOf(hub, key, xds.Listener), namesOf(hub, key, xds.Cluster)...); len(got) > 0 {
		t.Errorf("it has %v", got)
	}
}

// A Dataplane may be a proxy of an application, an ingress and an egress at once. A policy selects each by the name of
// its section.
func TestPoliciesReachTheSectionsOfOneProxy(t *testing.T) {
	const caller = "spiffe://default.default.mesh.local/workload/web"
	all := kind.Dataplanes.Make(mesh, "all", kind.Dataplane{Networking: kind.Networking{
		Address: "10.0.0.1",
		Inbound: []kind.Inbound{{Port: 8080, Name: "http", Protocol: kind.HTTP}},
		ZoneIngress: &kind.ZoneIngressSection{Address: "10.0.0.1", Port: 10001, AdvertisedAddress: "192.168.1.1",
			AdvertisedPort: 10001, Name: "zi-port"},
		ZoneEgress: &kind.ZoneEgressSection{Address: "10.0.0.1", Port: 10002, Name: "ze-port"},
	}})
	all.Labels = map[string]string{"app": "all"}
	closed := kind.Meshes.Make("", mesh,
		kind.Mesh{Routing: &kind.MeshRouting{DefaultForbidMeshExternalServiceAccess: true}})
	trust := kind.MeshTrusts.Make(mesh, "identity", kind.MeshTrust{
		TrustDomain: "default.default.mesh.local",
		CABundles:   []kind.CABundle{{Type: "Pem", PEM: &kind.PEMBundle{Value: "root"}}},
	})
	name := func(service string) string {
		return sni.V1.Name(sni.Port{Kind: kind.MeshExternalServices.Name, Mesh: mesh, Name: service, Number: 443})
	}
	for _, c := range []struct {
		name   string
		target *kind.TargetRef
		sni    string // of the rule's match, or after "caller " of its entry
		want   string // the extensions that allow the caller
	}{
		{"the mesh", nil, "",
			"http_8080 http_kri_extsvc_default_default__api_443 http_kri_extsvc_default_default__db_443"},
		{"the inbound", &kind.TargetRef{Kind: "Dataplane", SectionName: "http"}, "", "http_8080"},
		{"the inbound by its port", &kind.TargetRef{Kind: "Dataplane", SectionName: "8080"}, "", ""},
		{"the ingress", &kind.TargetRef{Kind: "Dataplane", SectionName: "zi-port"}, "", ""},
		{"the egress", &kind.TargetRef{Kind: "Dataplane", Name: "all", SectionName: "ze-port"}, "",
			"http_kri_extsvc_default_default__api_443 http_kri_extsvc_default_default__db_443"},
		{"one service at the egress", &kind.TargetRef{Kind: "Dataplane", SectionName: "ze-port"}, name("api"),
			"http_kri_extsvc_default_default__api_443"},
		{"one service everywhere", nil, name("db"), "http_kri_extsvc_default_default__db_443"},
		{"one service at the inbound", &kind.TargetRef{Kind: "Dataplane", SectionName: "http"}, name("api"), ""},
		{"callers of one service", nil, "caller " + name("db"), "http_kri_extsvc_default_default__db_443"},
		{"callers of one service at the inbound", &kind.TargetRef{Kind: "Dataplane", SectionName: "http"},
			"caller " + name("api"), ""},
		{"another proxy", &kind.TargetRef{Kind: "Dataplane", Name: "other"}, "", ""},
		{"the egress by the proxy's labels", &kind.TargetRef{Kind: "Dataplane", Labels: map[string]string{"app": "all"},
			SectionName: "ze-port"}, "",
			"http_kri_extsvc_default_default__api_443 http_kri_extsvc_default_default__db_443"},
		{"other labels", &kind.TargetRef{Kind: "Dataplane", Labels: map[string]string{"app": "other"}}, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			hub, _, _ := newHub(t, never{})
			rule :=
				kind.PermissionRule{
					Default: kind.PermissionDefault{
						Allow: []kind.CallerMatch{{SpiffeID: &kind.IDMatch{Type: "Exact", Value: caller}}}}}
			if value, ofCaller := strings.CutPrefix(c.sni, "caller "); ofCaller {
				rule.Default.Allow[0].SNI = &kind.SNIMatch{Type: "Exact", Value: value}
			} else if c.sni != "" {
				rule.Matches = []kind.PermissionMatch{{SNI: &kind.SNIMatch{Type: "Exact", Value: c.sni}}}
			}
			put(hub, closed, everybody(), trust, all, externalService("api", "192.0.2.1"),
				externalService("db", "192.0.2.2"),
				kind.MeshTrafficPermissions.Make(mesh, "p",
					kind.MeshTrafficPermission{TargetRef: c.target, Rules: []kind.PermissionRule{rule}}))
			var letIn []string
			resources, _ := hub.Inspector.Config(watched(t, hub, "all"))
			for _, r := range resources {
				if at, ok := strings.CutPrefix(r.Name, "self_permission_allow_"); ok &&
					bytes.Contains(r.Wire, []byte(caller)) {
					letIn = append(letIn, at)
				}
			}
			if got := fmt.Sprint(strings.Join(letIn, " ")); got != c.want {
				t.Errorf("the caller is let in at %q, want %q", got, c.want)
			}
		})
	}
}

// The configuration that is shown has no private key of the services of the mesh.
func TestAKeyIsSentAndNotShown(t *testing.T) {
	hub, _, _ := newHub(t, never{})
	key := watched(t, hub, "one")
	service := externalService("api", "192.0.2.1").(*resource.Object[kind.MeshExternalService])
	source := &kind.DataSource{Type: "Secret", SecretRef: &kind.SecretRef{Kind: "Secret", Name: "s"}}
	service.Spec.TLS = &kind.ExternalTLS{Enabled: true, Verification: &kind.ExternalVerification{ClientCert: source,
		ClientKey: source}}
	put(hub, everybody(), zoneEgress("one", "10.0.0.1"), service,
		kind.ExternalMaterials.Make(mesh, "api", kind.ExternalMaterial{
			Endpoints: service.Spec.Endpoints, TLS: &kind.ExternalTLS{Enabled: true},
			ClientCert: []byte("the certificate"), ClientKey: []byte("the key"),
		}))
	holds := func(resources []*xds.Resource, text string) bool {
		return slices.ContainsFunc(resources, func(r *xds.Resource) bool {
			return bytes.Contains(r.Wire, []byte(text))
		})
	}
	var sent []*xds.Resource
	for _, f := range hub.Proxies.setsOf(hub.Proxies.used[key]) {
		sent = append(sent, f.Resources()...)
	}
	shown, _ := hub.Inspector.Config(key)
	if !holds(sent, "the key") || !holds(shown, "the certificate") || holds(shown, "the key") {
		t.Errorf("sent with the key: %v, shown with the certificate: %v and with the key: %v", holds(sent, "the key"),
			holds(shown, "the certificate"), holds(shown, "the key"))
	}
}

// An egress whose section is removed loses the keys of external services at once. Cross-zone egress needs no key: the
// listener and its SNI routes stay until every client has acked their removal, and for the drain time.
func TestARemovedEgressSectionForwardsToOtherZonesWhileItDrains(t *testing.T) {
	hub, _, gone := newHub(t, make(onDemand))
	remoteShop := shop(synced(&kind.MeshServices.Info, "web"))
	served := kind.DataplaneListenerStatuses.Make(mesh, "one",
		kind.DataplaneListenerStatus{Egresses: []kind.ServedEgress{{
			ZoneEgressSection: kind.ZoneEgressSection{Address: "10.0.0.1", Port: 10002, Name: "ze-port"}, Serial: "5e",
		}}})
	put(hub, everybody(), zoneEgress("one", "10.0.0.1"), externalService("api", "192.0.2.1"), remoteShop, served)
	one := watched(t, hub, "one")
	if got := namesOf(hub, one, xds.Cluster); len(got) < 2 {
		t.Fatalf("it has the clusters %v", got)
	}
	put(hub, kind.Dataplanes.Make(mesh, "one", kind.Dataplane{Networking: kind.Networking{Address: "10.0.0.1"}}))
	if got := namesOf(hub, one, xds.Listener); !slices.Equal(got, []string{"self_egress_10.0.0.1_10002"}) {
		t.Errorf("while it drains it listens at %v", got)
	}
	if got := namesOf(hub, one, xds.Cluster); !slices.Equal(got, []string{"a1.web.80.default.ms.cross-zone"}) {
		t.Errorf("while it drains it has the clusters %v, want those to other zones alone", got)
	}
	config, _ := hub.Inspector.Config(one)
	for _, r := range config {
		if bytes.Contains(r.Wire, []byte("192.0.2.1")) || bytes.Contains(r.Wire, []byte("extsvc")) {
			t.Errorf("it still has %s of an external service", r.Name)
		}
	}
	hub.callbacks.Waiter.(onDemand) <- struct{}{}
	if got := <-gone; got.proxy != one || !slices.Equal(got.listeners, []string{"10.0.0.1:10002"}) {
		t.Errorf("%+v left the listener status", got)
	}
}

// A removed external service leaves its clients at once. The egresses serve it, with the permissions of now and a key
// that is deleted with it, until its row is removed.
func TestEgressesServeARemovedExternalServiceWhileItDrains(t *testing.T) {
	const chain, cluster = "kri_extsvc_default_default__api_443", "kri_extsvc_default_default__api_443_external"
	hub, _, _ := newHub(t, never{})
	service := externalService("api", "192.0.2.1").(*resource.Object[kind.MeshExternalService])
	source := &kind.DataSource{Type: "Secret", SecretRef: &kind.SecretRef{Kind: "Secret", Name: "s"}}
	service.Spec.TLS = &kind.ExternalTLS{Enabled: true, Verification: &kind.ExternalVerification{CACert: source}}
	service.Labels = map[string]string{"team": "a"}
	material := kind.ExternalMaterials.Make(mesh, "api", kind.ExternalMaterial{
		Endpoints: service.Spec.Endpoints, TLS: &kind.ExternalTLS{Enabled: true}, CACert: []byte("the root"),
	})
	to := kind.DestinationRef{Kind: kind.MeshExternalServices.Name, SectionName: "443",
		Labels: map[string]string{"team": "a"}}
	put(hub, everybody(), zoneEgress("one", "10.0.0.1"), service, material, limitOf("limit", nil, to, 77),
		kind.MeshEgressAddresses.Make(mesh, "default", kind.MeshEgressAddress{Egresses: []kind.ZoneProxyAddress{
			{Name: "one", Address: "10.0.0.1", Port: 10002, Healthy: true}}}))
	egress, client := watched(t, hub, "one"), state.ProxyKey{Mesh: mesh, Name: "client"}
	sent := func(key state.ProxyKey) map[string]*xds.Resource {
		all := map[string]*xds.Resource{}
		for _, set := range hub.Proxies.setsOf(hub.Proxies.used[key]) {
			for _, r := range set.Resources() {
				all[r.Type.String()+" "+r.Name] = r
			}
		}
		return all
	}
	ofService := func(key state.ProxyKey) map[string]string {
		all := map[string]string{}
		for name, r := range sent(key) {
			if bytes.Contains(r.Wire, []byte("extsvc")) {
				all[name] = r.Version
			}
		}
		return all
	}
	served := ofService(egress)
	if !slices.Contains(namesOf(hub, egress, xds.Cluster), cluster) || len(ofService(client)) == 0 {
		t.Fatalf("the egress has %v and the client %v", served, ofService(client))
	}

	limited := func(when string, connections uint32) {
		t.Helper()
		_, c := clusterOf(t, hub, egress, cluster)
		if got := c.GetCircuitBreakers().GetThresholds()[0].GetMaxConnections().GetValue(); got != connections {
			t.Errorf("%s the egress opens %d connections to the service, want %d", when, got, connections)
		}
	}
	limited("before the removal", 77)

	hub.Apply(removal(service.Key(), material.Key()))
	limited("while the service drains", 77)
	if got := ofService(client); len(got) > 0 {
		t.Errorf("the client still has %v", got)
	}
	if got := ofService(egress); !maps.Equal(got, served) {
		t.Errorf("while it drains the egress has %v, want what it had: %v", got, served)
	}

	put(hub, kind.MeshTrafficPermissions.Make(mesh, "p", kind.MeshTrafficPermission{Rules: []kind.PermissionRule{{
		Default: kind.PermissionDefault{Deny: []kind.CallerMatch{{SpiffeID: &kind.IDMatch{Type: "Exact",
			Value: "spiffe://m/denied"}}}}}}}))
	denied := slices.ContainsFunc(slices.Collect(maps.Values(sent(egress))), func(r *xds.Resource) bool {
		return strings.Contains(r.Name, chain) && bytes.Contains(r.Wire, []byte("spiffe://m/denied"))
	})
	if !denied {
		t.Error("a new permission does not apply to the service while it drains")
	}

	put(hub, limitOf("limit", nil, to, 78))
	limited("after an edit", 78)

	row := kind.RetainedExternalServices.Key(mesh, "api-443")
	put(hub, externalService("api", "192.0.2.7"))
	if got := ofService(egress); len(got) == 0 || strings.Contains(fmt.Sprint(got), "cert") {
		t.Errorf("a service that returned is served as %v", got)
	}
	hub.Apply(removal(row))
	if !slices.Contains(namesOf(hub, egress, xds.Cluster), cluster) {
		t.Error("the end of a drain ends a service that returned")
	}
	hub.Apply(removal(service.Key()))
	hub.Apply(removal(row))
	if got := ofService(egress); len(got) > 0 {
		t.Errorf("after the drain the egress has %v", got)
	}
}

// A ZoneEgress has the roots of all meshes in system_trust_bundle, and those of one mesh in the secret that the filter
// chains of that mesh refer to. (Zone Egress Identity.)
func TestAZoneEgressTrustsTheRootsOfAllMeshes(t *testing.T) {
	hub, _, _ := newHub(t, never{})
	put(hub,
		kind.ZoneEgresses.Make("", "ze",
			kind.ZoneEgress{Networking: kind.ZoneEgressNetworking{Address: "10.0.0.9", Port: 10002}}))
	for _, name := range []string{"default", "shop"} {
		identity := everybody().(*resource.Object[kind.MeshIdentity])
		identity.Mesh = name
		put(hub, kind.Meshes.Make("", name, kind.Mesh{}), identity,
			kind.MeshTrusts.Make(name, "identity", kind.MeshTrust{
				TrustDomain: name + ".default.mesh.local",
				CABundles:   []kind.CABundle{{Type: "Pem", PEM: &kind.PEMBundle{Value: "root of " + name}}},
			}))
	}
	key := state.ZoneEgressProxy("ze")
	t.Cleanup(hub.Proxies.Watch(key, func(*proxy.Proxy) {}))
	config, _ := hub.Inspector.Config(key)
	for secret, want := range map[string][]string{
		"system_trust_bundle": {"default", "shop"}, "system_trust_bundle_default": {"default"},
		"system_trust_bundle_shop": {"shop"},
	} {
		i := slices.IndexFunc(config, func(r *xds.Resource) bool { return r.Type == xds.Secret && r.Name == secret })
		if i < 0 {
			t.Errorf("it has no secret %s", secret)
			continue
		}
		var got []string
		for _, name := range []string{"default", "shop"} {
			if bytes.Contains(config[i].Wire, []byte("root of "+name)) {
				got = append(got, name)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s has the roots of %v, want those of %v", secret, got, want)
		}
	}
}
