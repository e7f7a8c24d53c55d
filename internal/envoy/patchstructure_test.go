package envoy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"sigs.k8s.io/yaml"

	"weft/internal/envoy/envoytest"
	"weft/internal/xds"
)

// The parts of the listeners of TestStructureIsThatOfEnvoy, in YAML.
const (
	routerFilter = `{name: r, typedConfig: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}`
	bufferFilter = `{name: b, typedConfig: {"@type": type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer, ` +
		`maxRequestBytes: 9}}`
	echoFilter = `{name: e, typedConfig: {"@type": type.googleapis.com/envoy.extensions.filters.network.echo.v3.Echo}}`
	echoText   = `{name: e, typedConfig: {'@type': type.googleapis.com/envoy.extensions.filters.network.echo.v3.Echo}}`
	sniFilter  = `{name: s, typedConfig: {"@type": ` +
		`type.googleapis.com/envoy.extensions.filters.network.sni_cluster.v3.SniCluster}}`
)

func managerWith(fields string) string {
	return `{name: m, typedConfig: {"@type": type.googleapis.com/envoy.extensions.filters.network.` +
		`http_connection_manager.v3.HttpConnectionManager, statPrefix: m, ` + fields + `}}`
}

func listenerWith(filters ...string) string {
	return `{name: l, address: {socketAddress: {address: 127.0.0.1, portValue: 1000}}, filterChains: [{filters: [` +
		strings.Join(filters, ", ") + `]}]}`
}

// TestStructureIsThatOfEnvoy: a real Envoy rejects what a modification may not make, and accepts the rest.
func TestStructureIsThatOfEnvoy(t *testing.T) {
	route := func(hosts string) string { return `routeConfig: {name: r, virtualHosts: [` + hosts + `]}, ` }
	var anyHost = route(`{name: v, domains: ["*"]}`)
	const port = `address: {socketAddress: {address: 127.0.0.1, portValue: 1000}}`
	envoy := envoytest.New(t, nil)
	for _, c := range []struct {
		name, listener, cluster string
		problem                 string // a part of it; empty: Envoy accepts the resource
	}{
		{"a router", listenerWith(managerWith(anyHost + `httpFilters: [` + bufferFilter + `, ` + routerFilter + `]`)), "", ""},
		{"no HTTP filter", listenerWith(managerWith(anyHost)), "", ""},
		{"no router", listenerWith(managerWith(anyHost + `httpFilters: [` + bufferFilter + `]`)), "", `is "b", which ends no`},
		{"a filter after the router", listenerWith(managerWith(anyHost + `httpFilters: [` + routerFilter + `, ` +
			bufferFilter + `]`)), "", `"b" follows it`},
		{"two routers", listenerWith(managerWith(anyHost + `httpFilters: [` + routerFilter + `, ` + routerFilter + `]`)), "",
			`"r" follows it`},
		{"a disabled router", listenerWith(managerWith(anyHost + `httpFilters: [` +
			strings.Replace(routerFilter, "}}", "}, disabled: true}", 1) + `]`)), "", "can't be disabled"},
		{"an upgrade without a router", listenerWith(managerWith(anyHost + `httpFilters: [` + routerFilter +
			`], upgradeConfigs: [{upgradeType: a, filters: [` + bufferFilter + `]}]`)), "", "upgradeConfigs"},
		{"an upgrade twice", listenerWith(managerWith(anyHost + `httpFilters: [` + routerFilter +
			`], upgradeConfigs: [{upgradeType: a}, {upgradeType: A}]`)), "", "twice"},
		{"no route", listenerWith(managerWith(`httpFilters: [` + routerFilter + `]`)), "", "RouteSpecifier"},
		{"a domain twice", listenerWith(managerWith(route(`{name: v, domains: [a.b]}, {name: w, domains: [A.b]}`) +
			`httpFilters: [` + routerFilter + `]`)), "", `"v" and "w" both have the domain`},
		{"virtual hosts with one name", listenerWith(managerWith(route(`{name: v, domains: [a]}, {name: v, domains: [b]}`) +
			`httpFilters: [` + routerFilter + `]`)), "", ""},
		{"HTTP filters with one name", listenerWith(managerWith(anyHost + `httpFilters: [` + bufferFilter + `, ` +
			bufferFilter + `, ` + routerFilter + `]`)), "", ""},
		{"no network filter", listenerWith(), "", ""},
		{"a network filter that ends no chain", listenerWith(sniFilter), "", "which ends no chain"},
		{"a network filter after the end", listenerWith(echoFilter, sniFilter), "", `"s" follows it`},
		{"no address", `{name: l, filterChains: [{filters: [` + echoFilter + `]}]}`, "", "no address"},
		{"no filter chain", `{name: l, ` + port + `}`, "", "no filter chain"},
		{"a default filter chain alone", `{name: l, ` + port + `, defaultFilterChain: {filters: [` + echoFilter + `]}}`, "",
			""},
		{"two chains with one match", `{name: l, ` + port + `, filterChains: [{name: a, filters: [` + echoFilter +
			`]}, {name: b, filterChainMatch: {}, filters: [` + echoFilter + `]}]}`, "", "same filterChainMatch"},
		{"EDS without a source", "", `{name: c, type: EDS}`, "edsConfig"},
		{"no endpoint by DNS", "", `{name: c, type: LOGICAL_DNS}`, "exactly one endpoint"},
		{"no balancer of the original destination", "", `{name: c, type: ORIGINAL_DST}`, "lbPolicy: CLUSTER_PROVIDED"},
		{"a provided balancer", "", `{name: c, type: STATIC, lbPolicy: CLUSTER_PROVIDED}`, "is not for the type STATIC"},
		{"the original destination", "", `{name: c, type: ORIGINAL_DST, lbPolicy: CLUSTER_PROVIDED}`, ""},
	} {
		var m proto.Message = &listenerv3.Listener{}
		of, text := xds.Listener, c.listener
		if c.cluster != "" {
			m, of, text = &clusterv3.Cluster{}, xds.Cluster, c.cluster
		}
		document, err := yaml.YAMLToJSON([]byte(text))
		if err == nil {
			err = protojson.Unmarshal(document, m)
		}
		if err != nil {
			t.Fatalf("%s: %v\n%s", c.name, err, text)
		}
		problem := structureProblem(m)
		if (problem == nil) != (c.problem == "") || problem != nil && !strings.Contains(problem.Error(), c.problem) {
			t.Errorf("%s: the problem is %v; want %q", c.name, problem, c.problem)
		}
		rejections, err := envoy.Rejections([]*xds.Resource{xds.NewResource(of, nameOf(m), m)})
		if c.name == "no address" {
			continue // the resource gets one in the bootstrap of the test
		}
		if err != nil || len(rejections) > 0 != (c.problem != "") {
			t.Errorf("%s: Envoy's rejections are %v (%v)", c.name, rejections, err)
		}
	}
}

// TestFiltersThatEndChains: Envoy and the list agree on the filters that end a chain, as far as Envoy accepts a filter
// without settings.
func TestFiltersThatEndChains(t *testing.T) {
	envoy := envoytest.New(t, nil)
	known := map[terminal]int{}
	for _, name := range slices.Concat(harmlessTypes, terminalTypes) {
		of := terminalityOf("type.googleapis.com/" + name)
		if of == unknownTerminal {
			continue
		}
		message, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(name))
		if err != nil || strings.HasSuffix(name, "HttpConnectionManager") || strings.HasSuffix(name, "PerRoute") {
			continue
		}
		packed := toAny(message.New().Interface())
		filters := []*listenerv3.Filter{{Name: "f", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: packed}}}
		if strings.HasPrefix(name, "envoy.extensions.filters.http.") {
			filters[0] = networkFilter(&hcmv3.HttpConnectionManager{StatPrefix: "m", RouteSpecifier: routeNamed("r"),
				HttpFilters: []*hcmv3.HttpFilter{{Name: "f", ConfigType: &hcmv3.HttpFilter_TypedConfig{
					TypedConfig: packed}}}})
		}
		rejections, err := envoy.Rejections([]*xds.Resource{xds.NewResource(xds.Listener, "l", &listenerv3.Listener{
			Name: "l", Address: socketAddress("127.0.0.1", 1000),
			FilterChains: []*listenerv3.FilterChain{{Filters: filters}}})})
		switch {
		case err != nil:
			t.Fatal(err)
		case len(rejections) == 0 && of != endsChain:
			t.Errorf("%s ends a chain", name)
		case len(rejections) > 0 && strings.Contains(rejections[0].Reason, "non-terminal filter"):
			if of != continuesChain {
				t.Errorf("%s ends no chain", name)
			}
		case len(rejections) > 0:
			continue // it needs settings
		}
		known[of]++
	}
	if known[continuesChain] < 10 || known[endsChain] < 2 {
		t.Errorf("Envoy decides on %v filters", known)
	}
}

// TestNoModificationIsSentThatEnvoyRejects: where Envoy would reject a result because of its structure, the batch is
// without the policy, which says so. A later modification may complete an earlier one.
func TestNoModificationIsSentThatEnvoyRejects(t *testing.T) {
	const inbound, web = "self_inbound_10.0.0.1_8080", "kri_msvc_default_east__web_80"
	const buffer = `value: "{name: b, typedConfig: {'@type': type.googleapis.com/envoy.extensions.filters.http.buffer.v3.` +
		`Buffer, maxRequestBytes: 9}}"`
	const router = `value: "{name: mine, typedConfig: {'@type': type.googleapis.com/envoy.extensions.filters.http.router.` +
		`v3.Router}}"`
	const echo = `value: "` + echoText + `"`
	const removeAll = `{httpFilter: {operation: Remove}}`
	before, _ := patchesOf(t, `{cluster: {operation: Remove, match: {name: none}}}`).applied(t, true)
	for _, c := range []struct {
		name, modifications string
		matches             []int
		rejected            []int // the modifications
		alone               bool  // the write of the policy shows it
	}{
		{"another filter alone", removeAll + `, {httpFilter: {operation: AddFirst, ` + buffer + `}}`, []int{0, 0}, []int{1},
			true},
		{"without the router", `{httpFilter: {operation: Remove, match: {name: envoy.filters.http.router}}}`, []int{0},
			[]int{0}, true},
		{"another router", removeAll + `, {httpFilter: {operation: AddFirst, ` + router + `}}`, []int{6, 1}, nil, false},
		{"another router and a filter", removeAll + `, {httpFilter: {operation: AddFirst, ` + buffer + `}}, ` +
			`{httpFilter: {operation: AddAfter, match: {name: b}, ` + router + `}}`, []int{6, 1, 1}, nil, false},
		{"a second router", `{httpFilter: {operation: AddFirst, ` + router + `}}`, []int{0}, []int{0}, true},
		{"a second router at the end", `{httpFilter: {operation: AddLast, ` + router + `}}`, []int{0}, []int{0}, true},
		{"an end before the end", `{networkFilter: {operation: AddFirst, match: {origin: inbound}, ` + echo + `}}`, []int{0},
			[]int{0}, true},
		{"of one listener", `{networkFilter: {operation: AddFirst, match: {listenerName: ` + inbound + `}, ` + echo + `}}`,
			[]int{0}, []int{0}, true},
		{"by its tags", `{networkFilter: {operation: AddFirst, match: {listenerTags: {team: a}}, ` + echo + `}}`, []int{0},
			[]int{0}, true},
		{"without a TCP proxy", `{networkFilter: {operation: Remove, match: {name: ` + web + `}}}`, []int{1}, nil, false},
		{"a modification after it", `{httpFilter: {operation: AddFirst, ` + router + `}}, {listener: {operation: Patch, ` +
			`match: {name: ` + inbound + `}, value: "statPrefix: x"}}`, []int{0, 0}, []int{1}, false},
		{"a domain twice", `{virtualHost: {operation: Add, match: {routeConfigurationName: ` + inbound +
			`}, value: "{name: more, domains: ['*']}"}}`, []int{0}, []int{0}, true},
		{"the route of a listener", `{listener: {operation: Patch, match: {name: ` + inbound + `}, jsonPatches: ` +
			`[{op: remove, path: /filterChains/0/filters/1/typedConfig/rds}]}}`, []int{0}, []int{0}, false},
		{"a listener without a chain", `{listener: {operation: Add, value: "{name: more, address: {socketAddress: ` +
			`{address: 127.0.0.1, portValue: 1}}}"}}`, []int{0}, []int{0}, true},
		{"an address twice", addedListener("one", "9999") + `, ` + addedListener("two", "9999"), []int{0, 0}, []int{1}, true},
		{"two addresses", addedListener("one", "9999") + `, ` + addedListener("two", "9998"), []int{1, 1}, nil, false},
		{"a cluster without its source", `{cluster: {operation: Add, value: "{name: more, type: EDS}"}}`, []int{0}, []int{0},
			true},
		{"a cluster that loses its source", `{cluster: {operation: Patch, match: {name: ` + web + `}, value: "type: EDS"}}`,
			[]int{0}, []int{0}, false},
	} {
		p := patchesOf(t, c.modifications)
		after, patched := p.applied(t, true)
		var rejected []int
		for _, problem := range patched.Problems {
			if problem.Rejected {
				rejected = append(rejected, problem.Modification)
			}
		}
		slices.Sort(rejected)
		if rejected = slices.Compact(rejected); !slices.Equal(rejected, c.rejected) ||
			!slices.Equal(patched.Matches, c.matches) {
			t.Errorf("%s: matches %d, rejected %d (%v); want %d, %d", c.name, patched.Matches, rejected,
				patched.Problems, c.matches, c.rejected)
		}
		if alone := p.Invalid(); len(alone) > 0 != c.alone {
			t.Errorf("%s: the policy alone shows %v", c.name, alone)
		}
		unchanged := true
		for name, text := range after {
			unchanged = unchanged && before[name] == text
		}
		if sum(c.matches) == 0 && (!unchanged || len(after) != len(before)) {
			t.Errorf("%s: the resources change", c.name)
		}
	}
}

// TestAnotherPolicyStays: the policy whose modifications Envoy would reject is left out as a whole, and no other one.
func TestAnotherPolicyStays(t *testing.T) {
	const inbound, web = "self_inbound_10.0.0.1_8080", "kri_msvc_default_east__web_80"
	const statistics = `{cluster: {operation: Patch, match: {origin: %s}, value: "altStatName: %s"}}`
	broken := `{networkFilter: {operation: AddFirst, match: {listenerName: ` + inbound + `}, value: "` + echoText + `"}}`
	listener := func(prefix string) string {
		return `{listener: {operation: Patch, match: {name: ` + inbound + `}, value: "statPrefix: ` + prefix + `"}}`
	}
	conf := patchConf(t, strings.Join([]string{fmt.Sprintf(statistics, "outbound", "first"), listener("first"),
		fmt.Sprintf(statistics, "inbound", "broken"), broken, listener("last")}, ", "))
	p, problems := NewPatches(conf, nil, 2, 4)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	after, patched := p.applied(t, true)
	if want := []int{1, 1, 0, 0, 1}; !slices.Equal(patched.Matches, want) || len(patched.Problems) != 1 ||
		patched.Problems[0].Modification != 3 {
		t.Errorf("matches %d, problems %+v; want %d", patched.Matches, patched.Problems, want)
	}
	if !strings.Contains(after["cluster "+web], `"first"`) || strings.Contains(after["cluster "+inbound], "broken") ||
		!strings.Contains(after["listener "+inbound], `"statPrefix":"last"`) {
		t.Errorf("the resources are %v", after)
	}
}

func addedListener(name, port string) string {
	return `{listener: {operation: Add, value: '{name: ` + name + `, address: {socketAddress: {address: 127.0.0.1, ` +
		`portValue: ` + port + `}}, filterChains: [{filters: [` + echoFilter + `]}]}'}}`
}

func sum(numbers []int) (n int) {
	for _, i := range numbers {
		n += i
	}
	return n
}

// TestRoutesWithinListenersNeedNoCluster: Envoy accepts a listener of a modification whose routes lead to a cluster
// that it does not have, as it does for routes that it discovers.
func TestRoutesWithinListenersNeedNoCluster(t *testing.T) {
	p := patchesOf(t, `{listener: {operation: Add, value: '`+listenerWith(managerWith(`routeConfig: {virtualHosts: `+
		`[{name: v, domains: ["*"], routes: [{match: {prefix: /}, route: {cluster: none}}]}]}, httpFilters: [`+
		routerFilter+`]`))+`'}}`)
	patched := p.Apply(Batch{Own: true})
	if len(patched.Resources) != 1 || len(patched.Problems) > 0 {
		t.Fatalf("%+v", patched)
	}
	rejections, err := envoytest.New(t, nil).Rejections(patched.Resources)
	if err != nil || len(rejections) > 0 {
		t.Errorf("Envoy's rejections are %v (%v)", rejections, err)
	}
}
