package search

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"weft/internal/access"
	"weft/internal/graph"
	"weft/internal/inspect"
	"weft/internal/sni"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// world returns the resources of a zone, to a reader of all meshes.
func world(zone string, objects ...resource.Any) *inspect.World {
	state := graph.NewState(zone)
	state.Tables.DB.Commit(func(tx *table.Tx) {
		for _, o := range objects {
			state.Tables.Put(tx, o)
		}
	})
	return &inspect.World{State: state, Snapshot: state.Tables.DB.Snapshot(), Meshes: access.AllMeshes(),
		Expired: func(string) (time.Time, bool) { return time.Time{}, false }}
}

// labeled returns a resource with labels, "KEY=VALUE" each.
func labeled(o resource.Any, labels ...string) resource.Any {
	o.Envelope().Labels = map[string]string{}
	for _, label := range labels {
		key, value, _ := strings.Cut(label, "=")
		o.Envelope().Labels[key] = value
	}
	return o
}

func shop(name, address string) *resource.Object[kind.Dataplane] {
	return kind.Dataplanes.Make("shop", name, kind.Dataplane{Networking: kind.Networking{Address: address,
		Inbound: []kind.Inbound{{Port: 80, Tags: map[string]string{kind.ServiceTag: "web"}}}}})
}

// everything is a resource for each field of a search.
func everything() []resource.Any {
	certificate := &kind.Certificate{SpiffeID: "spiffe://shop.east/Web", Further: []string{"spiffe://other/one"}}
	service := kind.MeshServices.Make("shop", "web", kind.MeshService{
		Ports:      []kind.ServicePort{{Port: 80, SNIs: []kind.SNI{{Value: "sni.first"}, {Value: "sni.second"}}}},
		Identities: []kind.ServiceIdentity{{Type: kind.SpiffeIdentity, Value: "spiffe://shop.east/web"}}})
	return []resource.Any{
		kind.Meshes.Make("", "shop", kind.Mesh{}), kind.Meshes.Make("", "shop-2", kind.Mesh{}),
		labeled(shop("web-1", "10.0.0.1"), "kuma.io/zone=east", "team=Blue", "app.team=blue-2"),
		kind.DataplaneInsights.Make("shop", "web-1", kind.DataplaneInsight{Certificate: certificate}),
		shop("web-10", "fd00::1"),
		labeled(shop("api-dbba5f7edc15bcb7", "10.0.0.11"), "kuma.io/display-name=api"),
		service,
		kind.MeshServiceStatuses.Make("shop", "web", kind.MeshServiceStatus{VIPs: []kind.VIP{{IP: "240.0.0.1"}},
			Addresses: []kind.Address{{Hostname: "web.svc.mesh.local"}}}),
		kind.MeshMultiZoneServices.Make("shop", "all", kind.MeshMultiZoneService{
			Ports: []kind.ServicePort{{Port: 80, SNIs: []kind.SNI{{Value: "sni.multi"}}}}}),
		kind.MeshMultiZoneServiceStatuses.Make("shop", "all", kind.MeshMultiZoneServiceStatus{
			VIPs: []kind.VIP{{IP: "241.0.0.1"}}, Addresses: []kind.Address{{Hostname: "all.mzsvc"}}}),
		kind.MeshExternalServices.Make("shop", "pay", kind.MeshExternalService{Match: kind.ExternalMatch{Port: 443},
			Endpoints: []kind.ExternalEndpoint{{Address: "pay.example.com", Port: 443}}}),
		kind.MeshExternalServiceStatuses.Make("shop", "pay", kind.MeshExternalServiceStatus{
			VIPs: []kind.VIP{{IP: "242.0.0.1"}}, Addresses: []kind.Address{{Hostname: "pay.extsvc"}}}),
		kind.ZoneIngresses.Make("", "in", kind.ZoneIngress{Networking: kind.ZoneIngressNetworking{Address: "10.9.0.1",
			AdvertisedAddress: "in.example.com"}}),
		kind.ZoneEgresses.Make("", "out", kind.ZoneEgress{Networking: kind.ZoneEgressNetworking{Address: "10.9.0.2"}}),
		kind.ZoneEgressInsights.Make("", "out", kind.DataplaneInsight{
			Certificate: &kind.Certificate{SpiffeID: "spiffe://shop.east/out"}}),
		kind.Zones.Make("", "east", kind.Zone{}), kind.MeshTimeouts.Make("shop", "web", kind.MeshTimeout{}),
		kind.Secrets.Make("shop", "web-secret", kind.Secret{Data: []byte("web-content")}),
		kind.GlobalSecrets.Make("", "web-key", kind.Secret{}),
	}
}

// lines returns the results, each with the reason why it is found.
func lines(t *testing.T, w *inspect.World, q Query) string {
	t.Helper()
	if q.Size == 0 {
		q.Size = 20
	}
	found, err := Run(t.Context(), w, q)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, item := range found.Items {
		match := item.Match
		all = append(all, fmt.Sprintf("%s: %s %s %s", item.Key(), match.Quality, match.Field, match.Value))
	}
	if found.More > 0 {
		all = append(all, fmt.Sprint("more: ", found.More))
	}
	return strings.Join(all, "\n")
}

// Each text of a resource finds it, with the text as the reason, and the best match is first.
func TestFields(t *testing.T) {
	w := world("east", everything()...)
	for text, want := range map[string]string{
		"web-1": "Dataplane shop/web-1: exact name web-1\nDataplane shop/web-10: prefix name web-10",
		"WEB": "MeshService shop/web: exact name web\nMeshTimeout shop/web: exact name web\n" +
			"Dataplane shop/web-1: prefix name web-1\nDataplane shop/web-10: prefix name web-10",
		"api": "Dataplane shop/api-dbba5f7edc15bcb7: exact displayName api",
		"shop": "Mesh shop: exact name shop\nMesh shop-2: prefix name shop-2\n" +
			"MeshExternalService shop/pay: infix sni ae9f8819f6dacbd2e.pay.443.shop.mes\n" +
			"MeshService shop/web: infix spiffeID spiffe://shop.east/web\n" +
			"Dataplane shop/web-1: infix spiffeID spiffe://shop.east/Web\n" +
			"ZoneEgress out: infix spiffeID spiffe://shop.east/out",
		"10.0.0.1": "Dataplane shop/web-1: exact address 10.0.0.1\n" +
			"Dataplane shop/api-dbba5f7edc15bcb7: prefix address 10.0.0.11",
		"FD00:0::01":         "Dataplane shop/web-10: exact address fd00::1",
		"10.9":               "ZoneIngress in: prefix address 10.9.0.1\nZoneEgress out: prefix address 10.9.0.2",
		"in.example.com":     "ZoneIngress in: exact address in.example.com",
		"pay.example":        "MeshExternalService shop/pay: prefix address pay.example.com",
		"240.0.0.1":          "MeshService shop/web: exact virtualIP 240.0.0.1",
		"241.0.0.1":          "MeshMultiZoneService shop/all: exact virtualIP 241.0.0.1",
		"242.0.0.1":          "MeshExternalService shop/pay: exact virtualIP 242.0.0.1",
		"web.svc.mesh.local": "MeshService shop/web: exact hostName web.svc.mesh.local",
		"pay.extsvc":         "MeshExternalService shop/pay: exact hostName pay.extsvc",
		"sni.second":         "MeshService shop/web: exact sni sni.second",
		"sni.multi":          "MeshMultiZoneService shop/all: exact sni sni.multi",
		"spiffe://shop.east/web": "MeshService shop/web: exact spiffeID spiffe://shop.east/web\n" +
			"Dataplane shop/web-1: exact spiffeID spiffe://shop.east/Web",
		"spiffe://other/one":     "Dataplane shop/web-1: exact spiffeID spiffe://other/one",
		"spiffe://shop.east/out": "ZoneEgress out: exact spiffeID spiffe://shop.east/out",
		"team=blue":              "Dataplane shop/web-1: exact label team=Blue",
		"team=bl":                "Dataplane shop/web-1: prefix label team=Blue",
		"app.team=b":             "Dataplane shop/web-1: prefix label app.team=blue-2",
		"ice=web": "Dataplane shop/api-dbba5f7edc15bcb7: infix tag kuma.io/service=web\n" +
			"Dataplane shop/web-1: infix tag kuma.io/service=web\nDataplane shop/web-10: infix tag kuma.io/service=web",
		"team=lue":                   "",
		"kri_dp_shop_east__web-1_":   "Dataplane shop/web-1: exact kri kri_dp_shop_east__web-1_",
		"kri_dp_shop_east__web-1_80": "Dataplane shop/web-1: exact kri kri_dp_shop_east__web-1_",
		"kri_dp_shop_east":           "Dataplane shop/web-1: prefix kri kri_dp_shop_east__web-1_",
		"east": "Zone east: exact name east\nMeshService shop/web: infix spiffeID spiffe://shop.east/web\n" +
			"Dataplane shop/web-1: infix spiffeID spiffe://shop.east/Web\n" +
			"ZoneEgress out: infix spiffeID spiffe://shop.east/out",
		"nothing": "", "web-content": "",
	} {
		if got := lines(t, w, Query{Text: text}); got != want {
			t.Errorf("%q finds\n%s\nwant\n%s", text, got, want)
		}
	}
}

// An external service is found by its SNI of each format.
func TestExternalSNIs(t *testing.T) {
	w := world("east", everything()...)
	for _, o := range everything() {
		service, ok := o.(*resource.Object[kind.MeshExternalService])
		if !ok {
			continue
		}
		for _, name := range sni.InAllFormats(sni.PortOf(service, service.Spec.Match.Port)) {
			if got := lines(t, w, Query{Text: name}); got != "MeshExternalService shop/pay: exact sni "+name {
				t.Errorf("%s finds %s", name, got)
			}
		}
	}
}

// A search has the first results of its order, and counts the others.
func TestResultsAreBounded(t *testing.T) {
	var objects []resource.Any
	for i := range 50 {
		objects = append(objects, shop(fmt.Sprintf("web-%02d", 49-i), "10.0.0.1"))
	}
	got := lines(t, world("east", objects...), Query{Text: "web", Size: 2})
	want := "Dataplane shop/web-00: prefix name web-00\nDataplane shop/web-01: prefix name web-01\nmore: 48"
	if got != want {
		t.Errorf("found\n%s\nwant\n%s", got, want)
	}
}

// A search in a mesh finds the mesh and its resources.
func TestSearchInAMesh(t *testing.T) {
	w := world("east", append(everything(), kind.MeshTimeouts.Make("shop-2", "web", kind.MeshTimeout{}))...)
	for text, want := range map[string]string{
		"web": "MeshTimeout shop-2/web: exact name web", "shop": "Mesh shop-2: prefix name shop-2", "east": "",
	} {
		if got := lines(t, w, Query{Text: text, Mesh: "shop-2"}); got != want {
			t.Errorf("%q finds\n%s\nwant\n%s", text, got, want)
		}
	}
}

// A reader finds what is of his meshes, and a Secret only in a mesh whose Secrets he may read.
func TestReadersOfSomeMeshes(t *testing.T) {
	rules := access.Rules{access.Read: {Limited: []access.MeshRule{{Meshes: []string{"shop"}, Users: []string{"ann"}}}}}
	w := world("east", append(everything(), kind.MeshTimeouts.Make("shop-2", "web", kind.MeshTimeout{}))...)
	all := lines(t, w, Query{Text: "web-", Secrets: access.AllMeshes()})
	if !strings.Contains(all, "Secret shop/web-secret") || !strings.Contains(all, "GlobalSecret web-key") ||
		strings.Contains(all, "web-content") {
		t.Errorf("a reader of Secrets finds\n%s", all)
	}
	w.Meshes = rules.Meshes(access.NewUser("ann", nil, access.ByUserToken), access.Read)
	for text, want := range map[string]string{
		"web-s": "", "web-k": "", "out": "", "shop-2": "",
		"all": "MeshMultiZoneService shop/all: exact name all",
	} {
		if got := lines(t, w, Query{Text: text}); got != want {
			t.Errorf("%q finds\n%s\nwant\n%s", text, got, want)
		}
	}
	const secret = "Secret shop/web-secret: prefix name web-secret"
	if got := lines(t, w, Query{Text: "web-s", Secrets: w.Meshes}); got != secret {
		t.Errorf("a reader of the Secrets of a mesh finds\n%s", got)
	}
}

// A search ends with its context.
func TestSearchesEnd(t *testing.T) {
	var objects []resource.Any
	for i := range pause {
		objects = append(objects, shop(fmt.Sprint("web-", i), "10.0.0.1"))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, world("east", objects...), Query{Text: "web", Size: 1}); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
}
