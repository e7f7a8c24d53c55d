package proxy_test

import (
	"cmp"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	"sigs.k8s.io/yaml"

	"weft/internal/graph/graphtest"
	"weft/internal/proxy"
	"weft/internal/service"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// httpRoute is a MeshHTTPRoute of the mesh m, whose spec is YAML.
func httpRoute(name, spec string) resource.Any {
	var route kind.MeshHTTPRoute
	if err := yaml.UnmarshalStrict([]byte(spec), &route); err != nil {
		panic(err)
	}
	return kind.MeshHTTPRoutes.Make("m", name, route)
}

// ofGatewayAPI is a MeshHTTPRoute with rules for api that was made from routes of the Gateway API.
func ofGatewayAPI(role, name, rules string) resource.Any {
	return madeFromRoutes(role, httpRoute(name, toAPI(rules)))
}

// connectionsOf is a MeshTCPRoute for port 90 of api, and for its HTTP port 80, that was made from TCPRoutes. Each
// backend is "NAME WEIGHT", on the port.
func connectionsOf(role, name string, backends ...string) resource.Any {
	to := func(section, port string) string {
		var refs []string
		for _, backend := range backends {
			name, weight, _ := strings.Cut(backend, " ")
			refs = append(refs, fmt.Sprintf("{kind: MeshService, name: %s, port: %s, weight: %s}", name, port, weight))
		}
		return fmt.Sprintf(`{targetRef: {kind: MeshService, name: api, sectionName: "%s"}, rules: [{default: `+
			`{backendRefs: [%s]}}]}`, section, strings.Join(refs, ", "))
	}
	return madeFromRoutes(role, tcpRoute(name, "{to: ["+to("90", "90")+", "+to("http", "80")+"]}"))
}

func madeFromRoutes(role string, o resource.Any) resource.Any {
	o.Envelope().Labels = map[string]string{kind.ManagedBy: kind.GeneratedBy, "kuma.io/policy-role": role}
	return o
}

// bySNI is a MeshTCPRoute to the services with a rule for each text "SNI,SNI: NAME PORT"; without an SNI for all
// connections.
func bySNI(name, target string, rules ...string) resource.Any {
	var all []string
	for _, rule := range rules {
		snis, to, _ := strings.Cut(rule, ": ")
		backend, port, _ := strings.Cut(to, " ")
		var matches []string
		for sni := range strings.SplitSeq(snis, ",") {
			if m := kind.MatchOfSNI(sni); sni != "" {
				matches = append(matches, fmt.Sprintf("{sni: {type: %s, value: '%s'}}", m.SNI.Type, m.SNI.Value))
			}
		}
		all = append(all, fmt.Sprintf("{matches: [%s], default: {backendRefs: [{kind: MeshService, name: %s, port: "+
			"%s}]}}", strings.Join(matches, ", "), backend, port))
	}
	return tcpRoute(name, `{`+target+`to: [{targetRef: {kind: MeshService, name: api}, rules: [`+strings.Join(all, ", ")+
		`]}]}`)
}

func tcpRoute(name, spec string) resource.Any {
	var route kind.MeshTCPRoute
	if err := yaml.UnmarshalStrict([]byte(spec), &route); err != nil {
		panic(err)
	}
	return kind.MeshTCPRoutes.Make("m", name, route)
}

func retry(name, spec string) resource.Any {
	var policy kind.MeshRetry
	if err := yaml.UnmarshalStrict([]byte(spec), &policy); err != nil {
		panic(err)
	}
	return kind.MeshRetries.Make("m", name, policy)
}

func balancing(name, spec string) resource.Any {
	var policy kind.MeshLoadBalancingStrategy
	if err := yaml.UnmarshalStrict([]byte(spec), &policy); err != nil {
		panic(err)
	}
	return kind.MeshLoadBalancingStrategies.Make("m", name, policy)
}

// toAPI is the spec of a MeshHTTPRoute to port 80 of api with the rules.
func toAPI(rules string) string {
	return `{to: [{targetRef: {kind: MeshService, name: api, sectionName: http}, rules: [` + rules + `]}]}`
}

// rule is a rule with a prefix and backends, each "NAME" or "NAME WEIGHT" on port 80.
func rule(prefix string, backends ...string) string {
	var refs []string
	for _, backend := range backends {
		name, weight, _ := strings.Cut(backend, " ")
		if weight == "" {
			weight = "1"
		}
		refs = append(refs, fmt.Sprintf("{kind: MeshService, name: %s, port: 80, weight: %s}", name, weight))
	}
	return fmt.Sprintf("{matches: [{path: {type: PathPrefix, value: %s}}], default: {backendRefs: [%s]}}", prefix,
		strings.Join(refs, ", "))
}

func TestRouting(t *testing.T) {
	web := "targetRef: {kind: Dataplane, labels: {app: web}}, "
	api := destination(service.MeshService, "api", 80)
	for _, c := range []struct {
		name string
		rows []resource.Any
		to   service.DestinationKey
		want string
	}{
		{"no policy", nil, api, ""},
		{"another destination", []resource.Any{httpRoute("r", toAPI(rule("/a", "db")))},
			destination(service.MeshService, "db", 80), ""},
		{"a split, and the destination itself for the rest",
			[]resource.Any{httpRoute("r", toAPI(rule("/a", "db 90", "api 10")))}, api,
			"rule_0 /a: db_80 90, api_80 10 | : api_80 1"},
		{"rules in the order of their matches", []resource.Any{httpRoute("r", toAPI(rule("/a", "db")+", "+
			rule("/abc", "db")+`, {matches: [{method: GET}, {path: {type: RegularExpression, value: /x.*}}, {path: `+
			`{type: Exact, value: /a}}, {path: {type: PathPrefix, value: /a}, method: GET}], default: {backendRefs: `+
			`[{kind: MeshExternalService, name: api}]}}`))}, api,
			"rule_2 =/a: api_80 1 | rule_1 /abc: db_80 1 | rule_2 /a GET: api_80 1 | rule_0 /a: db_80 1 | " +
				"rule_2 ~/x.*: api_80 1 | rule_2  GET: api_80 1 | : api_80 1"},
		{"no rule for the rest where one matches everything", []resource.Any{httpRoute("r", toAPI(rule("/", "db")))},
			api,
			"rule_0 /: db_80 1"},
		{"rules of two policies", []resource.Any{httpRoute("a", "{"+web+toAPI(rule("/a", "db"))[1:]),
			httpRoute("b", toAPI(rule("/a", "api")+", "+rule("/b", "db")))}, api,
			"rule_0 /a: db_80 1 | rule_1 /b: db_80 1 | : api_80 1"},
		{"a service that is not there", []resource.Any{httpRoute("r", toAPI(rule("/a", "gone", "db 3")))}, api,
			"rule_0 /a: ? 1, db_80 3 | : api_80 1"},
		{"no backend that is there", []resource.Any{httpRoute("r", toAPI(rule("/a", "gone", "lost")))}, api,
			"rule_0 /a: 500 | : api_80 1"},
		{"a route of the Gateway API, and 404 for the rest", []resource.Any{ofGatewayAPI("producer", "r",
			rule("/a", "db"))}, api, "rule_0 /a: db_80 1 | unmatched : 404"},
		{"a route of the Gateway API that matches everything", []resource.Any{ofGatewayAPI("producer", "r",
			rule("/", "db"))}, api, "rule_0 /: db_80 1"},
		{"a consumer's route of the Gateway API in place of the producer's", []resource.Any{
			ofGatewayAPI("producer", "r", rule("/a", "db")), ofGatewayAPI("consumer", "s", rule("/b", "db")),
			httpRoute("t", toAPI(rule("/c", "api")))}, api,
			"rule_0 /b: db_80 1 | rule_1 /c: api_80 1 | unmatched : 404"},
		{"connections by the Gateway API, and the share of a backend that is not there", []resource.Any{
			connectionsOf("producer", "r", "db 2", "gone 3", "api 0")}, destination(service.MeshService, "api", 90),
			"rule_0 : db_90 2, ? 3"},
		{"requests by a TCPRoute", []resource.Any{connectionsOf("producer", "r", "db 2", "gone 3")}, api,
			"rule_0 : db_80 2, ? 3"},
		{"no connection by the Gateway API", []resource.Any{connectionsOf("producer", "r", "db 0", "gone 3")},
			destination(service.MeshService, "api", 90), "rule_0 : 503"},
		{"an HTTPRoute over a TCPRoute", []resource.Any{connectionsOf("producer", "r", "db 2"),
			ofGatewayAPI("producer", "s", rule("/a", "db"))}, api, "rule_0 /a: db_80 1 | unmatched : 404"},
		{"a consumer's TCPRoute in place of the producer's HTTPRoute", []resource.Any{
			connectionsOf("consumer", "r", "db 2"), ofGatewayAPI("producer", "s", rule("/a", "db"))}, api,
			"rule_0 : db_80 2"},
		{"a consumer's TCPRoute in place of the producer's", []resource.Any{connectionsOf("producer", "a", "api 1"),
			connectionsOf("consumer", "r", "db 2")}, destination(service.MeshService, "api", 90), "rule_0 : db_90 2"},
		{"a consumer's HTTPRoute in place of the producer's TCPRoute", []resource.Any{
			connectionsOf("producer", "r", "db 2"), ofGatewayAPI("consumer", "s", rule("/a", "db"))}, api,
			"rule_0 /a: db_80 1 | unmatched : 404"},
		{"no weight", []resource.Any{httpRoute("r", toAPI(rule("/a", "db 0", "api 0")))}, api,
			"rule_0 /a: 503 | : api_80 1"},
		{"a port that is not HTTP, and one that is not there", []resource.Any{httpRoute("r", toAPI(
			`{matches: [{method: GET}], default: {backendRefs: [{kind: MeshService, name: db, port: 90}, {kind: `+
				`MeshService, name: db, sectionName: grpc}]}}`))}, api, "rule_0  GET: 500 | : api_80 1"},
		{"a port by its name, a service by labels", []resource.Any{httpRoute("r", toAPI(
			`{matches: [{method: GET}], default: {backendRefs: [{kind: MeshService, labels: {team: a}, sectionName: `+
				`http}, {kind: MeshMultiZoneService, name: api, port: 80, weight: 2}]}}`))}, api,
			"rule_0  GET: api_80 1, api_80 2 | : api_80 1"},
		{"filters alone", []resource.Any{httpRoute("r", toAPI(`{matches: [{method: GET}], default: {filters: [{type: `+
			`RequestMirror, requestMirror: {backendRef: {kind: MeshService, name: db, port: 80}}}, {type: `+
			`RequestMirror, requestMirror: {backendRef: {kind: MeshService, name: gone, port: 80}}}, {type: URLRewrite, `+
			`urlRewrite: {hostname: a}}]}}`))}, api, "rule_0  GET: api_80 1, filters 1, mirror db_80 100 | : api_80 1"},
		{"a redirect beside backends of another policy", []resource.Any{httpRoute("a", "{"+web+toAPI(
			`{matches: [{path: {type: PathPrefix, value: /a}}], default: {filters: [{type: RequestRedirect, ` +
				`requestRedirect: {hostname: b}}]}}`)[1:]), httpRoute("b", toAPI(rule("/a", "db")))}, api,
			"rule_0 /a: filters 1 | : api_80 1"},
		{"a TCP port", []resource.Any{httpRoute("r", `{to: [{targetRef: {kind: MeshService, name: api, sectionName: `+
			`"90"}, rules: [`+rule("/", "db")+`]}]}`)}, destination(service.MeshService, "api", 90), ""},
		{"connections", []resource.Any{tcpRoute("r", `{to: [{targetRef: {kind: MeshService, name: api}, rules: [`+
			`{default: {backendRefs: [{kind: MeshService, name: api, port: 90, weight: 2}, {kind: MeshService, name: `+
			`db, port: 90}, {kind: MeshService, name: gone, port: 90}, {kind: MeshService, name: db, port: 80}, `+
			`{kind: MeshService, name: db, port: 90, weight: 0}]}}]}]}`)}, destination(service.MeshService, "api", 90),
			"rule_0 : api_90 2, db_90 1"},
		{"no connection", []resource.Any{tcpRoute("r", `{to: [{targetRef: {kind: MeshService, name: api}, rules: [`+
			`{default: {backendRefs: [{kind: MeshService, name: gone, port: 90}]}}]}]}`)},
			destination(service.MeshService, "api", 90), "rule_0 : 500"},
		{"connections by SNI, and the service itself for the others", []resource.Any{bySNI("r", "",
			"*.example.com,*.a.example.com: db 90", "b.example.com,a.example.com: gone 90")},
			destination(service.MeshService, "api", 90), "rule_1 a.example.com : 500 | rule_1 b.example.com : 500 | " +
				"rule_0 *.a.example.com : db_90 1 | rule_0 *.example.com : db_90 1 | : api_90 1"},
		{"connections by SNI, and a rule for the others", []resource.Any{bySNI("r", "", ": db 90", "a.b: api 90")},
			destination(service.MeshService, "api", 90), "rule_1 a.b : api_90 1 | rule_0 : db_90 1"},
		{"SNIs of two policies", []resource.Any{bySNI("a", web, "a.b,c.d: db 90"), bySNI("b", "", "c.d,e.f: api 90",
			": db 90")}, destination(service.MeshService, "api", 90),
			"rule_0 a.b : db_90 1 | rule_0 c.d : db_90 1 | rule_1 e.f : api_90 1 | rule_2 : db_90 1"},
		{"the same SNIs of two policies", []resource.Any{bySNI("a", web, "a.b,c.d: db 90"), bySNI("b", "",
			"c.d,a.b: gone 90")}, destination(service.MeshService, "api", 90),
			"rule_0 a.b : db_90 1 | rule_0 c.d : db_90 1 | : api_90 1"},
		{"SNIs by the Gateway API, and no connection with another one", []resource.Any{madeFromRoutes("producer",
			bySNI("r", "", "a.b: db 90"))}, destination(service.MeshService, "api", 90),
			"rule_0 a.b : db_90 1 | unmatched : 404"},
		{"a consumer's TLSRoute in place of the producer's", []resource.Any{madeFromRoutes("producer", bySNI("r", "",
			"a.b: db 90")), madeFromRoutes("consumer", bySNI("s", "", "c.d: db 90"))},
			destination(service.MeshService, "api", 90), "rule_0 c.d : db_90 1 | unmatched : 404"},
		{"requests, which have no SNI", []resource.Any{madeFromRoutes("producer", bySNI("r", "", "a.b: db 80"))}, api,
			": api_80 1"},
		{"requests split beside SNIs", []resource.Any{bySNI("r", "", "a.b: api 80", ": db 80")}, api,
			"rule_1 : db_80 1"},
		{"requests split by a MeshTCPRoute", []resource.Any{tcpRoute("r", `{to: [{targetRef: {kind: MeshService, name: `+
			`api}, rules: [{default: {backendRefs: [{kind: MeshService, name: api, port: 80, weight: 3}, {kind: `+
			`MeshService, name: db, port: 80}]}}]}]}`)}, api, "rule_0 : api_80 3, db_80 1"},
		{"a MeshHTTPRoute over a MeshTCPRoute", []resource.Any{httpRoute("r", toAPI(rule("/a", "db"))), tcpRoute("r",
			`{to: [{targetRef: {kind: MeshService, name: api}, rules: [{default: {backendRefs: [{kind: MeshService, `+
				`name: db, port: 80}]}}]}]}`)}, api, "rule_0 /a: db_80 1 | : api_80 1"},
		{"timeouts of a route", []resource.Any{httpRoute("r", toAPI(rule("/a", "db")+", "+rule("/b", "db"))),
			httpRoute("s", toAPI(rule("/c", "db"))),
			timeouts("t", nil, about("MeshHTTPRoute r", request(3)), about("Mesh", idle(4)))}, api,
			`rule_0 /a: db_80 1, 3s and idle 4s | rule_1 /b: db_80 1, 3s and idle 4s | rule_2 /c: db_80 1 | : api_80 1`},
		{"retries of a route", []resource.Any{httpRoute("r", toAPI(rule("/a", "db"))),
			httpRoute("s", toAPI(rule("/c", "db"))), retry("t", `{to: [{targetRef: {kind: MeshHTTPRoute, name: r}, `+
				`default: {http: {numRetries: 7}}}]}`)}, api,
			`rule_0 /a: db_80 1, 7 retries | rule_1 /c: db_80 1 | : api_80 1`},
		{"hash policies of a route, whose backend hashes", []resource.Any{httpRoute("r", toAPI(rule("/a", "db"))),
			httpRoute("s", toAPI(rule("/c", "db"))), balancing("t", `{to: [{targetRef: {kind: MeshService, name: db}, `+
				`default: {loadBalancer: {type: RingHash}}}, {targetRef: {kind: MeshHTTPRoute, name: r}, `+
				`default: {hashPolicies: [{type: Header, header: {name: a}}]}}]}`)}, api,
			`rule_0 /a: db_80 1, hashes by RingHash | rule_1 /c: db_80 1 | : api_80 1`},
		{"hash policies of a service, by a route whose backend does not hash", []resource.Any{httpRoute("r",
			toAPI(rule("/a", "db"))), balancing("t", `{to: [{targetRef: {kind: MeshService, name: api}, `+
			`default: {loadBalancer: {type: RingHash}, hashPolicies: [{type: Header, header: {name: a}}]}}]}`)}, api,
			`rule_0 /a: db_80 1, hashes by none | : api_80 1`},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := timeoutWorld(c.rows...)
			r := table.Eval(s.Tables.DB.Snapshot())
			set := s.Proxies.Proxy.Get(r, dataplaneKey("web-1")).Group.Policies
			if got := shownRoute(s.Proxies.RouteOf(r, set, c.to).Get()); got != c.want {
				t.Errorf("the route is\n%s, want\n%s", got, c.want)
			}
		})
	}
}

// shownRoute lists the rules of a route; "" for none.
func shownRoute(route *service.Route) string {
	if route == nil {
		return ""
	}
	var rules []string
	for i := range route.Rules {
		rules = append(rules, shownRule(&route.Rules[i]))
	}
	return strings.Join(rules, " | ")
}

func shownRule(rule *service.RouteRule) string {
	text := rule.Name
	if path := rule.Match.Path; path != nil {
		text += " " + map[string]string{kind.PathExact: "=", kind.PathRegex: "~"}[path.Type] + path.Value
	} else if rule.Name != "" {
		text += " "
	}
	if rule.SNI != "" {
		text = rule.Name + " " + rule.SNI + " "
	}
	if rule.Match.Method != "" {
		text += " " + rule.Match.Method
	}
	var parts []string
	for _, b := range rule.Backends {
		name := "?"
		if b.Exists() {
			name = fmt.Sprintf("%s_%d", b.Destination.Service, b.Destination.Port)
		}
		parts = append(parts, fmt.Sprintf("%s %d", name, b.Weight))
	}
	if rule.Status != 0 {
		parts = append(parts, fmt.Sprint(rule.Status))
	}
	if len(rule.Filters) > 0 {
		parts = append(parts, fmt.Sprintf("filters %d", len(rule.Filters)))
	}
	for _, m := range rule.Mirrors {
		parts = append(parts, fmt.Sprintf("mirror %s_%d %s", m.Destination.Service, m.Destination.Port, m.Percentage))
	}
	switch e := rule.Effective; {
	case e == nil:
	case e.Retry.HTTP != nil:
		parts = append(parts, fmt.Sprintf("%d retries", *e.Retry.HTTP.NumRetries))
	case e.LoadBalancing.HashPolicies != nil:
		parts = append(parts, "hashes by "+cmp.Or(e.LoadBalancing.Balancer().Type, "none"))
	default:
		parts = append(parts, fmt.Sprintf("%ds and idle %ds", *e.Timeout.Requests().RequestTimeout/1e9,
			*e.Timeout.IdleTimeout/1e9))
	}
	return text + ": " + strings.Join(parts, ", ")
}

// TestRoutingStatesItsSources: each field of a merged rule is from a field of a policy, and so is each reference
// without a destination.
func TestRoutingStatesItsSources(t *testing.T) {
	s := timeoutWorld(httpRoute("base", toAPI(rule("/x", "db")+", "+rule("/a", "gone"))), httpRoute("app",
		`{targetRef: {kind: Dataplane}, to: [{targetRef: {kind: MeshService, name: db}, rules: [`+rule("/", "db")+
			`]}, {targetRef: {kind: MeshService, name: api}, rules: [{matches: [{path: {type: PathPrefix, value: /a}}], `+
			`default: {filters: []}}]}]}`))
	r := table.Eval(s.Tables.DB.Snapshot())
	set := s.Proxies.Proxy.Get(r, dataplaneKey("web-1")).Group.Policies
	routing := s.Proxies.RoutingOf(r, proxy.EffectiveKey{Policies: set,
		Destination: destination(service.MeshService, "api", 80)})
	got := fmt.Sprint(routing.Rules[0].Fields["matches"], "; ", routing.Rules[0].Fields["filters"], "; ",
		routing.Rules[0].Fields["backendRefs"], "; ", routing.Rules[0].Unresolved)
	want := "MeshHTTPRoute m/app to[1].rules[0].matches; MeshHTTPRoute m/app to[1].rules[0].default.filters; " +
		"MeshHTTPRoute m/base to[0].rules[1].default.backendRefs; [{MeshHTTPRoute m/base " +
		"to[0].rules[1].default.backendRefs[0] there is no MeshService gone}]"
	if got != want {
		t.Errorf("the first rule is from\n%s, want\n%s", got, want)
	}
	problems := s.Proxies.RouteProblems(r, kind.MeshHTTPRoutes.Key("m", "base"))
	if want := "[to[0].rules[1].default.backendRefs[0]: there is no MeshService gone]"; fmt.Sprint(problems) != want {
		t.Errorf("the problems of base are %v, want %s", problems, want)
	}
	problems = s.Proxies.RouteProblems(r, kind.MeshHTTPRoutes.Key("m", "app"))
	if want := "[to[0].targetRef: port 90 of MeshService db is tcp, on which the route has no effect " +
		"to[1].targetRef: port 90 of MeshService api is tcp, on which the route has no effect " +
		"to[1].targetRef: port 443 of MeshService api is tcp, on which the route has no effect]"; fmt.Sprint(
		problems) != want {
		t.Errorf("the problems of app are %v, want %s", problems, want)
	}
}

// TestChangesOfRoutes says for each change how many values of the stages it computes and changes: the list of the mesh,
// the selections of two proxies, and the routes of api by both sets.
func TestChangesOfRoutes(t *testing.T) {
	ofWeb := func(rules string) resource.Any {
		return httpRoute("web", "{targetRef: {kind: Dataplane, labels: {app: web}}, "+toAPI(rules)[1:])
	}
	for _, c := range []struct {
		name   string
		change resource.Any
		want   string
	}{
		{"weights", ofWeb(rule("/a", "db 2", "api 1")), "1/0 0/0 1/1"},
		{"the same rules", ofWeb(rule("/a", "db 1", "api 1")), "1/0 0/0 1/0"},
		{"a rule that another policy overrides", httpRoute("all", toAPI(rule("/a", "api"))), "1/0 0/0 2/1"},
		{"the status of an endpoint", serves("web-1", true), "0/0 0/0 0/0"},
		{"the status of a service", kind.MeshServiceStatuses.Make("m", "db", kind.MeshServiceStatus{}), "0/0 0/0 0/0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := timeoutWorld(httpRoute("all", toAPI(rule("/a", "db"))), ofWeb(rule("/a", "db 1", "api 1")))
			for _, key := range []state.ProxyKey{dataplaneKey("web-1"), dataplaneKey("api-1")} {
				s.Proxies.Proxy.Pin(key)
				p, _ := s.Proxies.Proxy.Value(key)
				s.Proxies.Routed.Pin(proxy.EffectiveKey{Policies: p.Group.Policies,
					Destination: destination(service.MeshService, "api", 80)})
			}
			stages := map[string]table.Stage{}
			s.Tables.DB.Observe(func(stage table.Stage) { stages[stage.Table] = stage })
			graphtest.Put(s, c.change)
			var got []string
			for _, name := range []string{s.Proxies.Policies.String(), s.Proxies.Selections.String(),
				s.Proxies.Routed.String()} {
				got = append(got, fmt.Sprintf("%d/%d", stages[name].Recomputed, stages[name].Changed))
			}
			if got := strings.Join(got, " "); got != c.want {
				t.Errorf("the stages computed and changed %s, want %s", got, c.want)
			}
		})
	}
}

// TestChangesOfSNIs says for each change of a route whether the listeners that lead to it change: they read its SNIs
// and no backend.
func TestChangesOfSNIs(t *testing.T) {
	to := destination(service.MeshService, "api", 90)
	for _, c := range []struct {
		name   string
		change resource.Any
		want   string
	}{
		{"another backend", bySNI("r", "", "a.b: api 90"), "1/0"},
		{"a rule for all others", bySNI("r", "", "a.b: db 90", ": db 90"), "1/0"},
		{"another SNI", bySNI("r", "", "a.b: db 90", "c.d: db 90"), "1/1"},
		{"no SNI", bySNI("r", "", ": db 90"), "1/1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := timeoutWorld(bySNI("r", "", "a.b: db 90"))
			s.Proxies.Proxy.Pin(dataplaneKey("web-1"))
			p, _ := s.Proxies.Proxy.Value(dataplaneKey("web-1"))
			s.Proxies.SNIs.Pin(proxy.EffectiveKey{Policies: p.Group.Policies, Destination: to})
			stages := map[string]table.Stage{}
			s.Tables.DB.Observe(func(stage table.Stage) { stages[stage.Table] = stage })
			graphtest.Put(s, c.change)
			stage := stages[s.Proxies.SNIs.String()]
			if got := fmt.Sprintf("%d/%d", stage.Recomputed, stage.Changed); got != c.want {
				t.Errorf("the SNIs are computed and changed %s times, want %s", got, c.want)
			}
		})
	}
	s := timeoutWorld(httpRoute("r", toAPI(rule("/a", "db"))))
	r := table.Eval(s.Tables.DB.Snapshot())
	set := s.Proxies.Proxy.Get(r, dataplaneKey("web-1")).Group.Policies
	if snis := s.Proxies.SNIsOf(r, set, to); snis != nil {
		t.Errorf("without a MeshTCPRoute, connections are routed by the SNIs %v", snis)
	}
}

// TestPrioritiesWithoutServers: after the own zone, a priority whose zones have no Available service is empty while any
// other zone has one, and has its ingresses where none has.
func TestPrioritiesWithoutServers(t *testing.T) {
	archive, err := txtar.ParseFile("../service/testdata/multizone-without-servers.txtar")
	if err != nil {
		t.Fatal(err)
	}
	s := graphtest.Load(t, archive)
	r := table.Eval(s.Tables.DB.Snapshot())
	to := func(zone string) kind.Failover {
		return kind.Failover{To: kind.ToZones{Type: kind.OnlyZones, Zones: []string{zone}}}
	}
	for name, want := range map[string]string{
		"web": "[10.0.0.6] [] []",
		"api": "[] [] [192.168.0.2]",
		"db":  "[] [192.168.0.3] [192.168.0.2]",
	} {
		d := *s.Services.DestinationOf(r, service.MultiZoneKey("default", name).WithPort(80))
		d.Effective.LoadBalancing.LocalityAwareness = &kind.LocalityAwareness{
			CrossZone: &kind.CrossZone{Failover: []kind.Failover{to("north"), to("west")}}}
		var priorities []string
		for _, list := range d.Lists(true) {
			var addresses []string
			for _, e := range s.Services.EndpointsOfList(r, list).Endpoints {
				addresses = append(addresses, e.Address)
			}
			priorities = append(priorities, fmt.Sprint(addresses))
		}
		if got := strings.Join(priorities, " "); got != want {
			t.Errorf("the priorities of %s have %s, want %s", name, got, want)
		}
	}
}
