package rest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"

	"weft/internal/inspect"
	"weft/internal/settings"
	"weft/internal/state"
	"weft/internal/xds"
	"weft/kind"
	"weft/resource"
)

// The responses as strictly as kumactl reads them. An invalid time, an unknown enum value, or a string in place of an
// object fails the whole command.
type (
	kumaVersion struct {
		KumaDP, Envoy, KumaCP *struct{ Version string }
	}
	kumaCounts struct {
		ResponsesSent, ResponsesAcknowledged, ResponsesRejected uint64
	}
	kumaSubscription struct {
		ID             string
		ConnectTime    *time.Time
		DisconnectTime *time.Time
		Version        *kumaVersion
		Config         string
		Status         *struct {
			LastUpdateTime *time.Time
			Total          kumaCounts
			Stat           map[string]kumaCounts
		}
	}
	kumaInsight struct {
		Subscriptions []kumaSubscription
		MTLS          *struct {
			CertificateExpirationTime, LastCertificateRegeneration time.Time
			IssuedBackend                                          string
			SupportedBackends                                      []string
		} `json:"mTLS"`
	}
	kumaMeta struct {
		Type, Mesh, Name               string
		CreationTime, ModificationTime *time.Time
		Labels                         map[string]string
		KRI                            string `json:"kri"`
	}
	kumaItem struct {
		kumaMeta
		Dataplane *struct {
			Networking struct {
				Address string
				Inbound []struct {
					Port  uint32
					Tags  map[string]string
					State string
				}
			}
		}
		DataplaneInsight, ZoneInsight, ZoneIngressInsight, ZoneEgressInsight *kumaInsight
		Zone                                                                 *struct{ Enabled *bool }
	}
	kumaList[T any] struct {
		Total uint32
		Items []T
		Next  *string
	}
)

func (s *socket) read(t *testing.T, path string, into any) {
	t.Helper()
	status, _, response := s.send(t, "GET", path, "", agentOf("2.14.3"))
	if status != http.StatusOK {
		t.Fatalf("GET %s: %d %s", path, status, response)
	}
	if err := json.NewDecoder(bytes.NewReader([]byte(response))).Decode(into); err != nil {
		t.Fatalf("GET %s: %v\n%s", path, err, response)
	}
}

// knowing is an inspector that knows one proxy.
type knowing struct{ stranger }

// tills is an item of a MeshTimeout.
var tills = inspect.AppliedItem{Policy: "MeshTimeout shop/tills", Item: "to[0]"}

func (knowing) AppliedConfs(key state.ProxyKey, _ ...string) *inspect.Applied {
	if key.Name != "cart-1" {
		return nil
	}
	return &inspect.Applied{
		Identity: inspect.AppliedIdentity{Reason: "it is the only one that selects the Dataplane"},
		Inbounds: []inspect.AppliedInbound{{
			Address: "10.0.0.1", Port: 8080, Section: "http", Protocol: kind.HTTP,
			Policies: []string{"MeshTrafficPermission shop/carts"},
			Rules: &inspect.AppliedRules{
				Allow: []inspect.AppliedRule{{SpiffeID: kind.IDMatch{Type: "Exact", Value: "spiffe://a/b"}}}},
		}},
		Outbounds: []inspect.AppliedOutbound{
			{Destination: "kri_msvc_shop_east__till_80", Port: 80, Protocol: kind.TCP, Confs: []inspect.AppliedConf{{
				Kind:    "MeshTimeout",
				Conf:    kind.TimeoutConf{IdleTimeout: new(kind.Duration(time.Minute))},
				Origins: map[string]inspect.AppliedItem{"idleTimeout": tills},
				Items:   []inspect.AppliedItem{tills},
			}}, Route: routedTills()},
		},
		WholeProxy: []inspect.AppliedConf{{
			Kind:    "MeshPassthrough",
			Conf:    kind.PassthroughConf{PassthroughMode: kind.PassthroughNone},
			Origins: map[string]inspect.AppliedItem{"passthroughMode": outside},
			Items:   []inspect.AppliedItem{outside},
			Notes:   []string{"has no effect"},
		}},
	}
}

// outside is the policy about a whole proxy.
var outside = inspect.AppliedItem{Policy: "MeshPassthrough shop/outside", Item: "default"}

// tillRoutes is the path of the route to a destination.
const tillRoutes = "dataplanes/cart-1/_outbounds/kri_msvc_shop_east__till_80/_routes"

// routedTills is a route of one rule, which no stored policy has.
func routedTills() *inspect.AppliedRouting {
	get := []kind.RouteMatch{kind.HTTPMatch{Method: "GET"}}
	return &inspect.AppliedRouting{
		AppliedConf: inspect.AppliedConf{Kind: "MeshHTTPRoute", Conf: kind.HTTPRouteConf{},
			Items: []inspect.AppliedItem{{Policy: "MeshTimeout shop/tills", Item: "to[0]"}}},
		Rules: []inspect.AppliedRouteRule{{Name: "rule_0", Matches: get, Conf: kind.HTTPRouteAction{},
			Origins:  map[string]inspect.AppliedItem{"backendRefs": tills},
			Policies: []resource.Key{kind.MeshTimeouts.Key("shop", "tills")}}},
	}
}

func (knowing) Config(key state.ProxyKey) ([]*xds.Resource, bool) {
	return []*xds.Resource{xds.NewResource(xds.Cluster, "till", &clusterv3.Cluster{Name: "till"})}, key.Name == "cart-1"
}

func (k knowing) ShadowConfig(key state.ProxyKey) ([]*xds.Resource, bool) {
	shadow := &clusterv3.Cluster{Name: "till", AltStatName: "shadow"}
	return []*xds.Resource{xds.NewResource(xds.Cluster, "till", shadow)}, key.Name == "cart-1"
}

// shop returns a mesh with the resources that kumactl inspects.
func shop(t testing.TB) *socket {
	t.Helper()
	w := newWorld(t, newStore(t))
	config := w.config()
	config.Inspector = knowing{}
	config.Settings = []settings.Value{{Path: "store.type", Value: "sqlite"},
		{Path: "apiServer.http.port", Value: "5681"}, {Path: "apiServer.http.enabled", Value: "true"}}
	w.handler = New(config)
	w.put(t, "/meshes/shop", `{"type": "Mesh", "name": "shop"}`)
	w.put(t, "/zones/west", `{"type": "Zone", "name": "west"}`)
	w.put(t, "/zoneingresses/zi", `{"type": "ZoneIngress", "networking": {"address": "10.0.0.1", "port": 1}}`)
	w.put(t, "/zoneegresses/ze", `{"type": "ZoneEgress", "networking": {"address": "10.0.0.1", "port": 1}}`)
	w.put(t, "/meshes/shop/dataplanes/cart-1",
		`{"type": "Dataplane", "labels": {"app": "cart"}, "networking": {"address": "10.0.0.1", "inbound": [{"port": `+
			`8080, "name": "http", "tags": {"kuma.io/service": "cart"}}, {"port": 8081, "state": "Ignored"}]}}`)
	w.put(
		t,
		"/meshes/shop/dataplanes/till-1",
		`{"type": "Dataplane", "networking": {"address": "10.0.0.2", "zoneEgress": {"address": "10.0.0.2", "port": 1}}}`,
	)
	w.put(t, "/meshes/shop/meshservices/cart",
		`{"type": "MeshService", "spec": {"selector": {"dataplaneTags": {"kuma.io/service": "cart"}}, "ports": `+
			`[{"port": 80}]}}`)
	w.put(t, "/meshes/shop/meshservices/till",
		`{"type": "MeshService", "spec": {"selector": {"dataplaneTags": {"kuma.io/service": "till"}}, "ports": `+
			`[{"port": 80}]}}`)
	w.put(t, "/meshes/shop/meshtimeouts/tills", `{"type": "MeshTimeout", "spec": {"to": [{"targetRef": `+
		`{"kind": "MeshService", "name": "till"}, "default": {"idleTimeout": "1m"}}]}}`)
	w.put(t, "/meshes/shop/meshpassthroughs/outside", `{"type": "MeshPassthrough", "spec": {"default": `+
		`{"passthroughMode": "None"}}}`)
	w.put(t, "/meshes/shop/meshtrafficpermissions/carts",
		`{"type": "MeshTrafficPermission", "spec": {"targetRef": {"kind": "Dataplane", "labels": {"app": "cart"}, `+
			`"sectionName": "http"}, "rules": [{"default": {"allow": [{"spiffeID": {"type": "Exact", "value": `+
			`"spiffe://a/b"}}]}}]}}`)
	w.put(t, "/meshes/shop/meshtrafficpermissions/ignored",
		`{"type": "MeshTrafficPermission", "spec": {"targetRef": {"kind": "Dataplane", "sectionName": "8081"}, `+
			`"rules": []}}`)
	now := kind.Time{Time: time.Now()}
	w.storeRow(t, kind.DataplaneInsights.Make("shop", "cart-1", kind.DataplaneInsight{
		Subscriptions: []kind.Subscription{{ID: "1", ControlPlaneInstanceID: "instance-1", ConnectTime: now,
			Version: kind.VersionOfAgent("1.40.0", "1.2.3")}},
		Certificate: &kind.Certificate{Issuer: "id", NotBefore: now, Expiration: kind.Time{Time: now.Add(time.Hour)}},
	}))
	w.storeRow(t, kind.ZoneInsights.Make("", "west", kind.ZoneInsight{Subscriptions: []kind.ZoneSubscription{
		{ID: "1", ControlPlaneInstanceID: "instance-1", ConnectTime: now,
			Version: &kind.ZoneVersion{ControlPlane: kind.ProgramVersion{Version: "1.2"}}},
	}}))
	w.storeRow(t,
		kind.MeshServiceStatuses.Make("shop", "cart",
			kind.MeshServiceStatus{Addresses: []kind.Address{{Hostname: "cart.svc.mesh.local"}}}))
	return listen(t, w)
}

// TestKumactlAccepts: `config control-planes add` accepts only the product that the client was built for.
func TestKumactlAccepts(t *testing.T) {
	s := shop(t)
	for agent, want := range map[string]string{
		"kumactl/2.14.3 (linux; amd64; Kuma/1a2b3c4)":         "Kuma",
		"kumactl/3.0.0-preview.v1 (darwin; arm64; Kuma/abc)":  "Kuma",
		"kumactl/unknown (linux; amd64; Kuma/unknown)":        "Kuma",
		"kumactl/2.13.0 (linux; amd64; Another Mesh/1a2b3c4)": "Another Mesh",
		"kumactl/2.14.3 (linux; amd64; <script>/1a2b3c4)":     "Kuma",
		"kumactl/":       "Kuma",
		"curl/8.0":       "weft",
		"my-kumactl/2.1": "weft",
	} {
		_, _, response := s.send(t, "GET", "/", "", http.Header{"User-Agent": {agent}})
		if !strings.Contains(response, fmt.Sprintf(`"product":%q,"version":"1.2.3"`, want)) {
			t.Errorf("%s is told %s", agent, response)
		}
	}
}

// TestKumactlInspects sends the requests of each `kumactl inspect`.
func TestKumactlInspects(t *testing.T) {
	s := shop(t)
	var dataplanes kumaList[kumaItem]
	s.read(t, "/meshes/shop/dataplanes/_overview?tag=kuma.io%2Fservice%3Acart", &dataplanes)
	if len(dataplanes.Items) != 1 {
		t.Fatalf("inspect dataplanes: %+v", dataplanes)
	}
	item := dataplanes.Items[0]
	subscription := item.DataplaneInsight.Subscriptions[0]
	switch {
	case item.Type != "DataplaneOverview", item.Mesh != "shop", item.KRI != "kri_dp_shop_east__cart-1_",
		item.Labels["kuma.io/mesh"] != "shop", item.CreationTime == nil:
		t.Errorf("its head is %+v", item.kumaMeta)
	case subscription.ConnectTime == nil, subscription.Version.Envoy.Version != "1.40.0",
		subscription.Version.KumaDP.Version != "1.2.3":
		t.Errorf("its subscription is %+v", subscription)
	case item.DataplaneInsight.MTLS.IssuedBackend != "id":
		t.Errorf("its certificate is %+v", item.DataplaneInsight.MTLS)
	}
	var zones, ingresses, egresses kumaList[kumaItem]
	s.read(t, "/zones/_overview", &zones)
	s.read(t, "/zoneingresses/_overview", &ingresses)
	s.read(t, "/zoneegresses/_overview", &egresses)
	if z := zones.Items[0]; z.ZoneInsight.Subscriptions[0].Version.KumaCP.Version != "1.2" ||
		len(ingresses.Items) != 1 || len(egresses.Items) != 1 {
		t.Errorf("inspect zones: %+v", z)
	}
	var insights kumaList[struct {
		kumaMeta
		Subscriptions []kumaSubscription
	}]
	s.read(t, "/meshes/shop/dataplane-insights", &insights)
	s.read(t, "/zone-insights", &insights)
	s.read(t, "/mesh-insights", &kumaList[struct {
		kumaMeta
		Dataplanes struct{ Total, Online uint32 }
		Policies   map[string]struct{ Total uint32 }
	}]{})
	var meshes kumaList[struct {
		DPVersions struct {
			KumaDP, Envoy map[string]struct{ Total uint32 }
		}
	}]
	s.read(t, "/mesh-insights", &meshes)
	if v := meshes.Items[0].DPVersions; v.KumaDP["1.2.3"].Total != 1 || v.Envoy["1.40.0"].Total != 1 {
		t.Errorf("inspect meshes: %+v", v)
	}
	var services kumaList[struct {
		Status     string
		Dataplanes *struct{ Total, Online uint32 }
	}]
	s.read(t, "/meshes/shop/service-insights", &services)
	if known := []string{"online", "offline", "partially_degraded", "not_available"}; !slices.Contains(known,
		services.Items[0].Status) || services.Items[0].Dataplanes == nil {
		t.Errorf("inspect services: %+v", services)
	}
}

// TestInsightsHaveTheFormOfKuma: insights have every field that Kuma's web UI reads, gateways and zone proxies
// included, which are counted as 0 where there are none.
func TestInsightsHaveTheFormOfKuma(t *testing.T) {
	s := shop(t)
	type counts struct{ Total, Online, Offline, PartiallyDegraded *int }
	type total struct{ Total *int }
	var global struct {
		Zones      struct{ ControlPlanes, ZoneIngresses, ZoneEgresses *counts }
		Dataplanes struct{ Standard, GatewayBuiltin, GatewayDelegated *counts }
		Services   struct {
			Internal, GatewayBuiltin, GatewayDelegated *counts
			External                                   *total
		}
		Meshes, Policies *total
		Resources        map[string]struct{ Total int }
	}
	s.read(t, "/global-insight", &global)
	for name, c := range map[string]*counts{"zones": global.Zones.ControlPlanes,
		"ingresses": global.Zones.ZoneIngresses, "egresses": global.Zones.ZoneEgresses,
		"standard": global.Dataplanes.Standard,
		"builtin":  global.Dataplanes.GatewayBuiltin, "delegated": global.Dataplanes.GatewayDelegated,
		"services": global.Services.Internal, "builtin services": global.Services.GatewayBuiltin,
		"delegated services": global.Services.GatewayDelegated} {
		if c == nil || c.Total == nil || c.Online == nil {
			t.Errorf("/global-insight has no %s", name)
		}
	}
	if n := global.Zones.ZoneIngresses.Total; n == nil || *n != 1 || *global.Zones.ZoneEgresses.Total != 1 {
		t.Errorf("the zone proxies are %v", global.Zones)
	}
	resources := global.Resources
	if resources["Dataplane"].Total != 2 || resources["MeshService"].Total == 0 || resources["Secret"].Total > 0 ||
		resources["MeshTimeout"].Total != 1 {
		t.Errorf("the resources are %v", resources)
	}
	var meshes kumaList[struct {
		DataplanesByType struct{ Standard, Gateway, GatewayBuiltin, GatewayDelegated *counts }
		Resources        map[string]struct{ Total int }
	}]
	s.read(t, "/mesh-insights", &meshes)
	if m := meshes.Items[0]; m.Resources["Dataplane"].Total != 2 || m.DataplanesByType.Standard == nil ||
		*m.DataplanesByType.Standard.Total != 2 || m.DataplanesByType.GatewayBuiltin == nil {
		t.Errorf("/mesh-insights: %+v", m)
	}
}

// TestTypesOfServices: the services of a type are listed, and an unknown type is an error.
func TestTypesOfServices(t *testing.T) {
	s := shop(t)
	for query, want := range map[string]int{"": 2, "?type=": 2, "?type=internal": 2, "?type=external": 0,
		"?type=gateway_builtin,gateway_delegated": 0, "?type=external,internal": 2, "?type=internal&name=art": 1} {
		for _, path := range []string{"/service-insights", "/meshes/shop/service-insights"} {
			var services kumaList[struct{ ServiceType string }]
			s.read(t, path+query, &services)
			if len(services.Items) != want {
				t.Errorf("%s%s: %+v, want %d", path, query, services, want)
			}
		}
	}
	status, _, reply := s.send(t, "GET", "/service-insights?type=other", "", nil)
	if status != http.StatusBadRequest || !strings.Contains(reply, "gateway_builtin") {
		t.Errorf("an unknown type: %d %s", status, reply)
	}
}

// TestKumactlInspectsPolicies covers the policies of a proxy, and the proxies of a policy. An ignored inbound has no
// policy.
func TestKumactlInspectsPolicies(t *testing.T) {
	s := shop(t)
	for path, want := range map[string]string{
		"dataplanes/cart-1/policies": `{"kind":"SidecarDataplane","total":1,` +
			`"items":[{"type":"dataplane",` +
			`"matchedPolicies":{"MeshPassthrough":[{"type":"MeshPassthrough","mesh":"shop","name":"outside",`,
		"dataplanes/cart-1/_policies": `{"policies":[{"kind":"MeshTrafficPermission",` +
			`"conf":{},"origins":[{"kri":"kri_mtp_shop_east__carts_"}]},{"kind":"MeshTimeout",` +
			`"conf":{},"origins":[{"kri":"kri_mt_shop_east__tills_"}]},{"kind":"MeshPassthrough",` +
			`"conf":{"passthroughMode":"None"},"origins":[{"kri":"kri_mp_shop_east__outside_"}]}]}`,
		"dataplanes/cart-1/_rules?size=1": `{"type":"MeshPassthrough","proxyRule":{"conf":{"passthroughMode":"None"},` +
			`"origin":[{"type":"MeshPassthrough","mesh":"shop","name":"outside",`,
		"dataplanes/cart-1/_rules?size=2": `"origins":{"passthroughMode":{"policy":"MeshPassthrough shop/outside",` +
			`"item":"default"}}},"inboundRules":[],"fromRules":[],"toRules":[],"toResourceRules":[],` +
			`"warnings":["has no effect"]}`,
		"dataplanes/cart-1/_rules": `"rules":[{"type":"MeshTrafficPermission",` +
			`"inboundRules":[{"inbound":{"name":"http","port":8080,"tags":{"kuma.io/service":"cart","kuma.io/zone":"east"}},` +
			`"rules":[{"conf":[{"deny":null,"allowWithShadowDeny":null,"allow":[{"origin":"",` +
			`"spiffeID":{"type":"Exact","value":"spiffe://a/b"}}]}],` +
			`"origin":[{"resourceMeta":{"type":"MeshTrafficPermission"`,
		"dataplanes/cart-1/_rules?": `{"type":"MeshTimeout","inboundRules":[],"fromRules":[],"toRules":[],` +
			`"toResourceRules":[{"resourceMeta":{"type":"MeshService","mesh":"shop","name":"till",`,
		"dataplanes/cart-1/_rules?format=": `"resourceSectionName":"80","conf":[{"idleTimeout":"1m0s"}],` +
			`"origin":[{"resourceMeta":{"type":"MeshTimeout","mesh":"shop","name":"tills",`,
		"dataplanes/cart-1/_outbounds/kri_msvc_shop_east__till_80/_policies": `{"policies":[{"kind":"MeshTimeout",` +
			`"conf":[{"idleTimeout":"1m0s"}],"origins":[{"kri":"kri_mt_shop_east__tills_"}]}]}`,
		"dataplanes/cart-1/_layout": `"inbounds":[{"kri":"kri_dp_shop_east__cart-1_http",` +
			`"port":8080,"protocol":"http","proxyResourceName":"self_inbound_10.0.0.1_8080"}],` +
			`"outbounds":[{"kri":"kri_msvc_shop_east__till_80","port":80,"protocol":"tcp",` +
			`"proxyResourceName":"kri_msvc_shop_east__till_80"}],"listeners":[]}`,
		tillRoutes: `{"routes":[{"kind":"MeshHTTPRoute",` +
			`"rules":[{"kri":"kri_mt_shop_east__tills_rule_0","matches":[{"method":"GET"}],"conf":{},"origins":{` +
			`"backendRefs":{"policy":"MeshTimeout shop/tills","item":"to[0]"}}}],` +
			`"origins":[{"kri":"kri_mt_shop_east__tills_"}]}]}`,
		tillRoutes + "/kri_mt_shop_east__tills_rule_0/_policies": `` +
			`{"policies":[{"kind":"MeshTimeout","conf":[{"idleTimeout":"1m0s"}],` +
			`"origins":[{"kri":"kri_mt_shop_east__tills_"}]}]}`,
		"dataplanes/cart-1/_rules?match":                      `"httpMatches":[{"hash":`,
		"dataplanes/cart-1/rules":                             `{"total":0,"items":[],"next":null}`,
		"dataplanes/cart-1/_config?shadow=false":              `{"xds":{"type.googleapis.com/envoy.config.cluster.v3.Cluster":{"till":{"name":"till"}}}}`,
		"dataplanes/cart-1/_config?shadow=false&include=diff": `{"till":{"name":"till"}}},"diff":[]}`,
		"dataplanes/cart-1/_config?shadow=true&include=diff": `"altStatName":"shadow"}}},"diff":[{"op":"add",` +
			`"path":"/xds/type.googleapis.com~1envoy.config.cluster.v3.Cluster/till/altStatName","value":"shadow"}]}`,
		"dataplanes/cart-1/_snapshot": `{"xds":[{"type":"cluster","name":"till",`,
		"dataplanes/cart-1/_inspect":  `{"identity":`,
		"meshtrafficpermissions/carts/dataplanes": `{"total":1,"items":[{"kind":"SidecarDataplane",` +
			`"dataplane":{"mesh":"shop","name":"cart-1"},"attachments":[{"type":"dataplane"}]}],"next":null}`,
		"meshtrafficpermissions/carts/_resources/dataplanes": `{"total":1,"items":[{"type":"Dataplane","mesh":"shop",` +
			`"name":"cart-1","labels":{"app":"cart"`,
		"meshtrafficpermissions/carts/-resources/dataplanes?name=cart": `{"total":1,"items":[{"type":"Dataplane",`,
		"meshtrafficpermissions/ignored/dataplanes":                    `{"total":0,"items":[],"next":null}`,
		"meshservices/cart/_hostnames": `{"total":1,"items":[{"hostname":"cart.svc.mesh.local",` +
			`"zones":[{"name":"east"}]}],"next":null}`,
		"meshservices/cart/_dataplanes": `{"total":1,"items":[{"type":"Dataplane","mesh":"shop",` +
			`"name":"cart-1"`,
		"meshservices/cart/_resources/dataplanes": `{"total":1,`,
	} {
		status, _, response := s.send(t, "GET", "/meshes/shop/"+path, "", agentOf("3.0.0"))
		if status != http.StatusOK || !strings.Contains(response, want) {
			t.Errorf("GET %s: %d %s\nwant %s", path, status, response, want)
		}
	}
	for path, want := range map[string]int{
		"dataplanes/cart-1/_config?shadow=maybe": 400, "dataplanes/no/_config": 404, "dataplanes/no/policies": 404,
		"dataplanes/cart-1/_outbounds/kri_msvc_shop_east__no_80/_policies": 404,
		"dataplanes/cart-1/_outbounds/kri_msvc_shop_east__no_80/_routes":   404,
		tillRoutes + "/kri_mt_shop_east__tills_rule_1/_policies":           404,

		"dataplanes/no/_policies": 404, "dataplanes/no/_rules": 404, "dataplanes/no/_layout": 404,
		"meshtrafficpermissions/no/dataplanes": 404, "meshtrafficpermissions/no/-resources/dataplanes": 404,
		"meshservices/no/_hostnames": 404, "meshservices/no/_dataplanes": 404,
	} {
		if status, _, response := s.send(t, "GET", "/meshes/shop/"+path, "", agentOf("3.0.0")); status != want ||
			!strings.Contains(response, `"title":`) {
			t.Errorf("GET %s: %d, want %d with a title: %s", path, status, want, response)
		}
	}
	if _, _, response := s.send(t, "GET", "/config", "",
		nil); strings.TrimSpace(
		response) != `{"apiServer":{"http":{"enabled":true,"port":5681}},"store":{"type":"sqlite"}}` {
		t.Errorf("GET /config: %s", response)
	}
	if _, _, response := s.send(t, "GET", "/_settings", "", nil); !strings.HasPrefix(response,
		`[{"path":"store.type","value":"sqlite"`) {
		t.Errorf("GET /_settings: %s", response)
	}
}

// TestKumactlInspectsZoneProxies covers Envoy's pages of zone proxies of global scope.
func TestKumactlInspectsZoneProxies(t *testing.T) {
	s := shop(t)
	for path, want := range map[string]int{
		"/zoneingresses/zi/xds?include_eds=false": 503, "/zoneingresses/zi/stats": 503,
		"/zone-ingresses/zi/clusters": 503, "/zoneegresses/ze/clusters": 503,
		"/zoneingresses/no/stats": 404, "/zoneegresses/no/stats": 404,
	} {
		if status, _, response := s.send(t, "GET", path, "", agentOf("2.14.3")); status != want ||
			!strings.Contains(response, `"title":`) {
			t.Errorf("GET %s: %d, want %d: %s", path, status, want, response)
		}
	}
}

// TestKumactlExports follows `kumactl export` with every profile, and applies the result to an empty control plane.
func TestKumactlExports(t *testing.T) {
	from := listen(t, newWorld(t, newStore(t)))
	from.seed(t)
	for i := range 150 { // more than a page
		from.put(t, fmt.Sprintf("/meshes/default/secrets/s-%d", i), `{"type": "Secret", "data": "eA=="}`)
	}
	kinds, meshes := from.kinds(t), from.items(t, "/meshes")
	for profile, takes := range map[string]func(ResourceType) bool{
		"federation": func(k ResourceType) bool {
			return k.IncludeInFederation && (k.Policy == nil || !k.Policy.IsTargetRef)
		},
		"federation-with-policies": func(k ResourceType) bool { return k.IncludeInFederation },
		"all":                      func(ResourceType) bool { return true },
		"no-dataplanes": func(k ResourceType) bool {
			return k.Name != "Dataplane" && k.Name != "DataplaneInsight"
		},
	} {
		t.Run(profile, func(t *testing.T) {
			to := listen(t, newWorld(t, newStore(t)))
			counts := map[string]int{}
			for _, k := range kinds {
				if !takes(k) {
					continue
				}
				paths := []string{"/" + k.Path}
				if k.Scope == "Mesh" {
					paths = nil
					for _, mesh := range meshes {
						paths = append(paths, "/meshes/"+mesh["name"].(string)+"/"+k.Path)
					}
				}
				for _, path := range paths {
					for _, item := range from.items(t, path) {
						counts[k.Name]++
						if !k.ReadOnly {
							to.applyExported(t, path+"/"+item["name"].(string), item)
						}
					}
				}
			}
			for name, want := range map[string]int{"Mesh": len(meshes), "Secret": 151, "MeshIdentity": 2,
				"GlobalSecret": 1} {
				if counts[name] != want {
					t.Errorf("%d of %s, want %d", counts[name], name, want)
				}
			}
			if policies := counts["MeshTrafficPermission"]; (policies > 0) != (profile != "federation") {
				t.Errorf("%d permissions", policies)
			}
			if got := counts["Dataplane"]; (got > 0) != (profile == "all") {
				t.Errorf("%d Dataplanes", got)
			}
		})
	}
}

func (s *socket) kinds(t *testing.T) []ResourceType {
	t.Helper()
	var list struct{ Resources []ResourceType }
	s.read(t, "/_resources", &list)
	return list.Resources
}

func (s *socket) items(t *testing.T, path string) []map[string]any {
	t.Helper()
	var list kumaList[map[string]any]
	s.read(t, path, &list)
	if int(list.Total) != len(list.Items) || list.Next != nil {
		t.Fatalf("GET %s: %d of %d", path, len(list.Items), list.Total)
	}
	return list.Items
}

// applyExported writes an item of an export as weft apply does, after it read the resource in the Kubernetes form, as
// --format kubernetes does.
func (s *socket) applyExported(t *testing.T, path string, item map[string]any) {
	t.Helper()
	raw, _ := json.Marshal(item)
	status, result, response := s.apply(t, path, string(raw), nil)
	if status != http.StatusCreated && status != http.StatusOK {
		t.Errorf("PUT %s: %d %s\n%s", path, status, response, raw)
	}
	for _, warning := range result.Warnings {
		if strings.Contains(warning, "ignored") && !strings.HasPrefix(warning, "spec.") {
			t.Errorf("PUT %s: %s", path, warning)
		}
	}
	if status, _, response := s.send(t, "GET", path+"?format=k8s", "", agentOf("2.14.3")); status != http.StatusOK ||
		!strings.Contains(response, `"apiVersion":`) {
		t.Errorf("GET %s?format=k8s: %d %s", path, status, response)
	}
}

// TestClientsOfEachReleaseReadThePolicyKinds: `GET /policies` has the list that clients of Kuma 2 read, whole, and the
// one that clients of Kuma 3 read, which is the part of `_resources` that is policies.
func TestClientsOfEachReleaseReadThePolicyKinds(t *testing.T) {
	type older struct {
		Name, Path, SingularDisplayName, PluralDisplayName                *string
		ReadOnly, IsExperimental, IsTargetRefBased, IsInbound, IsOutbound *bool
	}
	s := listen(t, newWorld(t, newStore(t)))
	for _, release := range append([]string{"2.13.0"}, kumactlReleases...) {
		status, _, response := s.send(t, "GET", "/policies", "", agentOf(release))
		var kinds struct {
			Policies  []older
			Resources []ResourceType
		}
		if err := json.Unmarshal([]byte(response), &kinds); status != http.StatusOK || err != nil {
			t.Fatalf("%s: %d %v %s", release, status, err, response)
		}
		text := func(k older) string {
			if slices.Contains([]*string{k.Name, k.Path, k.SingularDisplayName, k.PluralDisplayName}, nil) ||
				slices.Contains([]*bool{k.ReadOnly, k.IsExperimental, k.IsTargetRefBased, k.IsInbound, k.IsOutbound},
					nil) {
				t.Fatalf("%s: a field is missing: %s", release, response)
			}
			return fmt.Sprintln(*k.Name, *k.Path, *k.SingularDisplayName, *k.PluralDisplayName, *k.ReadOnly,
				*k.IsExperimental, *k.IsTargetRefBased, *k.IsInbound, *k.IsOutbound)
		}
		all := ""
		for _, k := range kinds.Policies {
			all += text(k)
		}
		for _, want := range []string{
			"MeshTimeout meshtimeouts Mesh Timeout Mesh Timeouts false false true true true",
			"MeshRateLimit meshratelimits Mesh Rate Limit Mesh Rate Limits false false true true false",
			"MeshHTTPRoute meshhttproutes Mesh HTTP Route Mesh HTTP Routes false false true false true",
			"MeshPassthrough meshpassthroughs Mesh Passthrough Mesh Passthroughs false false true false false",
		} {
			if !strings.Contains(all, want+"\n") {
				t.Errorf("%s: the list lacks %q:\n%s", release, want, all)
			}
		}
		if !slices.IsSortedFunc(kinds.Policies, func(a, b older) int { return strings.Compare(*a.Name, *b.Name) }) {
			t.Errorf("%s: the policies are not sorted:\n%s", release, all)
		}
		policies := slices.DeleteFunc(s.kinds(t), func(k ResourceType) bool { return k.Policy == nil })
		slices.SortFunc(policies, func(a, b ResourceType) int { return strings.Compare(a.Name, b.Name) })
		if !reflect.DeepEqual(kinds.Resources, policies) || len(policies) != len(kinds.Policies) {
			t.Errorf("%s: %s, want %+v", release, response, policies)
		}
	}
}
