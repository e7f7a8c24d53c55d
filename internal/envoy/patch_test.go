package envoy

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"sigs.k8s.io/yaml"

	"weft/internal/xds"
	"weft/kind"
)

// patchesOf returns modifications by their written form, which must be valid.
func patchesOf(t *testing.T, text string) *Patches {
	t.Helper()
	p, problems := NewPatches(patchConf(t, text), nil)
	if len(problems) > 0 {
		t.Fatalf("%s: %v", text, problems)
	}
	return p
}

func patchConf(t *testing.T, text string) *kind.ProxyPatchConf {
	t.Helper()
	conf := &kind.ProxyPatchConf{}
	if err := yaml.UnmarshalStrict([]byte("appendModifications: ["+text+"]"), conf); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return conf
}

// patchable is resources of each origin.
func patchable() []*xds.Resource {
	const inbound, web = "self_inbound_10.0.0.1_8080", "kri_msvc_default_east__web_80"
	return []*xds.Resource{
		xds.NewResource(xds.Cluster, web, &clusterv3.Cluster{Name: web,
			ConnectTimeout:  duration(1500 * time.Millisecond),
			CircuitBreakers: noBreakers(), AltStatName: "web"}),
		xds.NewResource(xds.Cluster, inbound, &clusterv3.Cluster{Name: inbound}),
		xds.NewResource(xds.Listener, inbound, &listenerv3.Listener{Name: inbound,
			Address: socketAddress("10.0.0.1", 8080), FilterChains: []*listenerv3.FilterChain{{
				Filters: []*listenerv3.Filter{connectionSlot("8080"), networkFilter(&hcmv3.HttpConnectionManager{
					StatPrefix: "in", RouteSpecifier: routeNamed(inbound), HttpFilters: requestSlots("8080")})},
			}}}),
		xds.NewResource(xds.Listener, web, &listenerv3.Listener{Name: web, Address: socketAddress("241.0.0.1", 80),
			FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{tcpProxySlot(web)}}}}),
		tcpProxy(web, &tcpproxyv3.TcpProxy{StatPrefix: "web",
			ClusterSpecifier: &tcpproxyv3.TcpProxy_Cluster{Cluster: web}}),
		xds.NewResource(xds.Route, inbound, &routev3.RouteConfiguration{Name: inbound,
			VirtualHosts: []*routev3.VirtualHost{{
				Name: inbound, Domains: []string{"*"}}}}),
	}
}

// applied returns the resources after modifications as JSON by type and name, without spaces, and the number of
// changes.
func (p *Patches) applied(t *testing.T, own bool) (map[string]string, Patched) {
	t.Helper()
	patched := p.Apply(Batch{Resources: patchable(), Own: own, Tags: func(listener string) []map[string]string {
		if strings.HasPrefix(listener, "self_inbound") {
			return []map[string]string{{"team": "a"}, {"team": "b"}}
		}
		return []map[string]string{{kind.ServiceTag: "web"}}
	}})
	texts := map[string]string{}
	for _, r := range patched.Resources {
		text, err := protojson.Marshal(message(t, r))
		if err != nil {
			t.Fatal(err)
		}
		texts[r.Type.String()+" "+r.Name] = strings.ReplaceAll(string(text), " ", "")
	}
	return texts, patched
}

// TestPatches: each modification changes what it matches, and nothing else.
func TestPatches(t *testing.T) {
	const inbound, web = "self_inbound_10.0.0.1_8080", "kri_msvc_default_east__web_80"
	before, _ := patchesOf(t, `{cluster: {operation: Remove, match: {name: none}}}`).applied(t, true)
	for _, c := range []struct {
		name, modification string
		matches            int
		resource, want     string // the changed resource, and a part of it; "-": it is removed
	}{
		{"a duration replaces", `{cluster: {operation: Patch, match: {name: ` + web + `}, value: "connectTimeout: 2s"}}`,
			1, "cluster " + web, `"connectTimeout":"2s"`},
		{"thresholds merge by priority", `{cluster: {operation: Patch, match: {origin: outbound}, value: ` +
			`"circuitBreakers: {thresholds: [{maxConnections: 5}]}"}}`, 1, "cluster " + web,
			`"circuitBreakers":{"thresholds":[{"maxConnections":5,"maxPendingRequests":4294967295,` +
				`"maxRequests":4294967295,"maxRetries":4294967295}]}`},
		{"a threshold of another priority is added", `{cluster: {operation: Patch, match: {origin: outbound}, value: ` +
			`"circuitBreakers: {thresholds: [{priority: HIGH, maxConnections: 5}]}"}}`, 1, "cluster " + web,
			`{"priority":"HIGH","maxConnections":5}]`},
		{"every cluster", `{cluster: {operation: Patch, value: "altStatName: a"}}`, 2, "", ""},
		{"a JSON patch", `{cluster: {operation: Patch, match: {name: ` + inbound + `}, jsonPatches: [{op: add, path: ` +
			`/circuitBreakers/thresholds, value: []}, {op: add, path: /circuitBreakers/thresholds/-, value: ` +
			`{maxRetries: 7}}]}}`, 1, "cluster " + inbound, `"circuitBreakers":{"thresholds":[{"maxRetries":7}]}`},
		{"a removed cluster", `{cluster: {operation: Remove, match: {origin: inbound}}}`, 1, "cluster " + inbound, "-"},
		{"an added cluster", `{cluster: {operation: Add, value: "{name: more, type: STATIC}"}}`, 1, "cluster more",
			`"name":"more"`},
		{"an added listener", `{listener: {operation: Add, value: "{name: more, address: {socketAddress: {address: ` +
			`127.0.0.1, portValue: 1}}, filterChains: [{filters: []}]}"}}`, 1, "listener more", `"portValue":1`},
		{"a listener by its tags", `{listener: {operation: Patch, match: {tags: {team: b}}, value: "statPrefix: x"}}`, 1,
			"listener " + inbound, `"statPrefix":"x"`},
		{"a listener by its service", `{listener: {operation: Patch, match: {tags: {kuma.io/service: web}}, value: ` +
			`"statPrefix: x"}}`, 1, "listener " + web, `"statPrefix":"x"`},
		{"a network filter first", `{networkFilter: {operation: AddFirst, match: {listenerName: ` + inbound +
			`}, value: "{name: more, typedConfig: {'@type': type.googleapis.com/envoy.extensions.filters.network.sni_cluster.v3.SniCluster}}"}}`,
			1, "listener " + inbound, `"filters":[{"name":"more"`},
		{"a network filter before the end", `{networkFilter: {operation: AddLast, match: {listenerName: ` + web +
			`}, value: "{name: more, typedConfig: {'@type': type.googleapis.com/envoy.extensions.filters.network.sni_cluster.v3.SniCluster}}"}}`,
			1, "listener " + web, `"filters":[{"name":"more"`},
		{"a network filter after a slot", `{networkFilter: {operation: AddAfter, match: {name: ` +
			`self_connection_limit_8080, listenerTags: {team: a}}, value: "{name: more, typedConfig: {'@type': ` +
			`type.googleapis.com/envoy.extensions.filters.network.sni_cluster.v3.SniCluster}}"}}`, 1, "listener " + inbound,
			`},{"name":"more"`},
		{"a discovered network filter by its type", `{networkFilter: {operation: Patch, match: {name: ` +
			`envoy.filters.network.tcp_proxy, origin: outbound}, value: "{typedConfig: {'@type': ` +
			`type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy, idleTimeout: 9s}}"}}`, 1,
			"extension " + web, `"idleTimeout":"9s"`},
		{"a discovered network filter of a listener", `{networkFilter: {operation: Patch, match: {name: ` + web +
			`, listenerName: ` + web + `}, jsonPatches: [{op: replace, path: /statPrefix, value: other}]}}`, 1,
			"extension " + web, `"statPrefix":"other"`},
		{"a network filter in the chain", `{networkFilter: {operation: Patch, match: {name: ` +
			`envoy.filters.network.http_connection_manager}, value: "{typedConfig: {'@type': type.googleapis.com/` +
			`envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager, statPrefix: z}}"}}`, 1,
			"listener " + inbound, `"statPrefix":"z"`},
		{"a removed network filter", `{networkFilter: {operation: Remove, match: {name: self_connection_limit_8080}}}`, 1,
			"listener " + inbound, `"filters":[{"name":"envoy.filters.network.http_connection_manager"`},
		{"an HTTP filter before the router", `{httpFilter: {operation: AddBefore, match: {name: ` +
			`envoy.filters.http.router, origin: inbound}, value: "{name: lua, typedConfig: {'@type': ` +
			`type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua}}"}}`, 1, "listener " + inbound,
			`"name":"lua"`},
		{"an HTTP filter at the end", `{httpFilter: {operation: AddLast, value: "{name: lua, typedConfig: {'@type': ` +
			`type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua}}"}}`, 1, "listener " + inbound,
			`{"name":"lua","typedConfig":{"@type":"type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua"}},` +
				`{"name":"self_router_8080"`},
		{"an added virtual host", `{virtualHost: {operation: Add, match: {routeConfigurationName: ` + inbound +
			`}, value: "{name: more, domains: [a.b]}"}}`, 1, "route " + inbound, `{"name":"more","domains":["a.b"]}`},
		{"a virtual host", `{virtualHost: {operation: Patch, match: {origin: inbound, name: ` + inbound +
			`}, value: "requestHeadersToRemove: [x]"}}`, 1, "route " + inbound, `"requestHeadersToRemove":["x"]`},
		{"a removed virtual host", `{virtualHost: {operation: Remove, match: {name: ` + inbound + `}}}`, 1,
			"route " + inbound, `{"name":"` + inbound + `"}`},
		{"another origin", `{cluster: {operation: Remove, match: {origin: transparent}}}`, 0, "", ""},
	} {
		after, patched := patchesOf(t, c.modification).applied(t, true)
		if patched.Matches[0] != c.matches || len(patched.Problems) > 0 {
			t.Errorf("%s: %d matches, problems %v; want %d", c.name, patched.Matches[0], patched.Problems, c.matches)
		}
		if c.resource == "" {
			continue
		}
		if text, ok := after[c.resource]; c.want == "-" && ok || c.want != "-" && !strings.Contains(text, c.want) {
			t.Errorf("%s: %s is %s; want %s", c.name, c.resource, text, c.want)
		}
		for name, text := range before {
			if name != c.resource && after[name] != text {
				t.Errorf("%s: %s is %s", c.name, name, after[name])
			}
		}
	}
}

// TestAFailedPatchChangesNothing: a modification that fails, or makes a resource invalid, leaves it as it is. The
// others have their effect.
func TestAFailedPatchChangesNothing(t *testing.T) {
	const web = "kri_msvc_default_east__web_80"
	for _, c := range []struct{ modification, problem string }{
		{`{cluster: {operation: Patch, match: {name: ` + web + `}, jsonPatches: [{op: remove, path: /none/of}]}}`,
			"jsonPatches[0]"},
		{`{cluster: {operation: Patch, match: {name: ` + web + `}, jsonPatches: [{op: add, path: /nope, value: 1}]}}`,
			`unknown field "nope"`},
		{`{cluster: {operation: Patch, match: {name: ` + web + `}, value: "connectTimeout: -1s"}}`, "ConnectTimeout"},
		{`{cluster: {operation: Patch, match: {name: ` + web + `}, jsonPatches: [{op: replace, path: /name, value: x}]}}`,
			"the name of a resource cannot change"},
		{`{networkFilter: {operation: Patch, match: {name: envoy.filters.network.tcp_proxy}, value: "{typedConfig: ` +
			`{'@type': type.googleapis.com/envoy.extensions.filters.network.echo.v3.Echo}}"}}`, "the filter is of the type"},
	} {
		after, patched := patchesOf(t, c.modification+`, {cluster: {operation: Patch, match: {name: `+web+
			`}, value: "altStatName: after"}}`).applied(t, true)
		if len(patched.Problems) != 1 || !strings.Contains(patched.Problems[0].Reason, c.problem) ||
			!slices.Equal(patched.Matches, []int{0, 1}) {
			t.Errorf("%s: matches %d, problems %+v; want %s", c.modification, patched.Matches, patched.Problems,
				c.problem)
		}
		if got := after["cluster "+web]; !strings.Contains(got, `"connectTimeout":"1.500s","circuitBreakers"`) ||
			!strings.Contains(got, `"altStatName":"after"`) {
			t.Errorf("%s: the cluster is %s", c.modification, got)
		}
	}
}

// TestPatchesOfAGroup: resources are added to the proxies' own alone, and what no modification changes is the same
// resource.
func TestPatchesOfAGroup(t *testing.T) {
	p := patchesOf(t, `{cluster: {operation: Add, value: "{name: more, type: STATIC}"}}`)
	resources := patchable()
	patched := p.Apply(Batch{Resources: resources})
	if patched.Matches[0] != 0 || !slices.Equal(patched.Resources, resources) {
		t.Errorf("%d matches, %d resources", patched.Matches[0], len(patched.Resources))
	}
}

// TestPatchesThatCannotBeParsed: a value has to be of its type, with types of extensions that are known.
func TestPatchesThatCannotBeParsed(t *testing.T) {
	for _, c := range []struct{ modification, problem string }{
		{`{cluster: {operation: Patch, value: "nope: 1"}}`, `cluster.value: (line 1:2): unknown field "nope"`},
		{`{cluster: {operation: Patch, value: "{"}}`, "cluster.value: "},
		{`{cluster: {operation: Add, value: "type: STATIC"}}`, "cluster.value: has no name"},
		{`{cluster: {operation: Add, value: "name: self_x"}}`, `cluster.value: has the name "self_x"`},
		{`{cluster: {operation: Add, value: "{name: x, connectTimeout: 0s}"}}`, "cluster.value: invalid Cluster.ConnectTimeout"},
		{`{cluster: {operation: Patch, value: "name: x"}}`, "cluster.value: has a name, which cannot change"},
		{`{httpFilter: {operation: AddFirst, value: "{name: x, typedConfig: {'@type': type.googleapis.com/a.B}}"}}`,
			`unable to resolve "type.googleapis.com/a.B"`},
		{`{virtualHost: {operation: Add, value: "{name: x}"}}`, "virtualHost.value: invalid VirtualHost.Domains"},
	} {
		_, problems := NewPatches(patchConf(t, c.modification), nil)
		if len(problems) != 1 {
			t.Errorf("%s: %v", c.modification, problems)
			continue
		}
		if got := fmt.Sprintf("%s: %s", problems[0].Field, problems[0].Reason); !strings.Contains(got, c.problem) {
			t.Errorf("%s: %s; want %s", c.modification, got, c.problem)
		}
	}
}

// TestPatchOrigins: the origin of each resource follows from its name.
func TestPatchOrigins(t *testing.T) {
	for name, want := range map[string]string{
		"self_inbound_10.0.0.1_8080": "inbound", "self_guarded_8080": "inbound", "self_router_8080": "inbound",
		"self_outbound_127.0.0.1_80": "outbound", "kri_msvc_default_east__web_80": "outbound",
		"vip_241.0.0.1_80": "outbound", "vip_fd00:fd01::1_80": "outbound",
		"self_capture_outbound": "transparent", "self_capture_requests": "transparent",
		"self_ingress_10.0.0.1_10001": "ingress", "self_tcp_proxy_ingress_10.0.0.1_10001": "ingress",
		"self_egress_10.0.0.1_10002": "egress", "system_trust_bundle": "", "a.web.8080.default.ms": "ingress",
		"b.80.mzms": "ingress", "b.80.mzms.cross-zone": "egress", "kri_extsvc_m___api_80_external": "egress",
		"self_router_kri_extsvc_m___api_80": "egress", "collector": "",
	} {
		if got := patchOrigin(name); got != want {
			t.Errorf("%s has the origin %q, want %q", name, got, want)
		}
	}
}

// bootstrapCategories are the categories of extensions that only a bootstrap refers to.
var bootstrapCategories = []string{"envoy.bootstrap", "envoy.stats_sinks", "envoy.resource_monitors",
	"envoy.guarddog_actions", "envoy.config_subscription", "envoy.config_mux", "envoy.regex_engines"}

// TestPatchesHaveTheTypesOfEnvoy: a MeshProxyPatch can have the type of every extension that the pinned Envoy has for
// clusters, listeners and routes.
func TestPatchesHaveTheTypesOfEnvoy(t *testing.T) {
	admin := freePort(t)
	runEnvoy(t, writeBootstrap(t, &bootstrapv3.Bootstrap{
		Admin: &bootstrapv3.Admin{Address: socketAddress("127.0.0.1", admin)}}))
	response, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/server_info", admin))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var info struct {
		Node struct {
			Extensions []struct {
				Category string
				TypeURLs []string `json:"type_urls"`
			}
		}
	}
	if err := json.NewDecoder(response.Body).Decode(&info); err != nil {
		t.Fatal(err)
	}
	types := 0
	for _, extension := range info.Node.Extensions {
		if slices.Contains(bootstrapCategories, extension.Category) {
			continue
		}
		for _, name := range extension.TypeURLs {
			types++
			if _, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(name)); err != nil {
				t.Errorf("%s: %s: %v", extension.Category, name, err)
			}
		}
	}
	if types < 200 {
		t.Errorf("Envoy has %d types", types)
	}
}

// TestAPatchAddsAnAccessLogOfOpenTelemetry: Envoy accepts an access logger of a type that weft itself does not use. Its
// service is a cluster of the same policy.
func TestAPatchAddsAnAccessLogOfOpenTelemetry(t *testing.T) {
	app, _ := listener(t)
	in := inboundTo(t, app, kind.TCP)
	p := patchesOf(t, `{cluster: {operation: Add, value: "{name: collector, type: STATIC, loadAssignment: `+
		`{clusterName: collector}}"}}, {listener: {operation: Patch, match: {origin: inbound}, value: "{accessLog: [{name: otel, `+
		`typedConfig: {'@type': type.googleapis.com/envoy.extensions.access_loggers.open_telemetry.v3.`+
		`OpenTelemetryAccessLogConfig, grpcService: {envoyGrpc: {clusterName: collector}}, logName: connections}}]}"}}`)
	patched := p.Apply(Batch{Resources: inboundOf(in, false), Own: true, Tags: func(string) []map[string]string {
		return nil
	}})
	if !slices.Equal(patched.Matches, []int{1, 1}) || len(patched.Problems) > 0 {
		t.Fatalf("%d matches, problems %v", patched.Matches, patched.Problems)
	}
	e := serveEnvoy(t, patched.Resources...)
	if n := e.stat("listener_manager.lds.update_rejected"); n > 0 {
		t.Errorf("Envoy rejects %d listeners", n)
	}
	dump, err := http.Get(e.admin + "/config_dump")
	if err != nil {
		t.Fatal(err)
	}
	defer dump.Body.Close()
	text, err := io.ReadAll(dump.Body)
	if err != nil || !strings.Contains(string(text), "OpenTelemetryAccessLogConfig") {
		t.Errorf("Envoy does not have the access logger: %v", err)
	}
}
