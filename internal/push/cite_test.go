package push

import (
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"weft/internal/envoysim"
	"weft/internal/state"
	"weft/kind"
	"weft/resource"
)

// policyOf is a policy of a kind, whose spec is YAML.
func policyOf[S, C any](t *testing.T, k *kind.PolicyKind[S, C], name, spec string) resource.Any {
	t.Helper()
	var s S
	if err := yaml.UnmarshalStrict([]byte(spec), &s); err != nil {
		t.Fatal(err)
	}
	return k.Make(mesh, name, s)
}

// TestExplainCitesPolicies: an explanation has the field of the policy for each step of the route, and the item for
// each setting and for the times, limits and faults at the server; a redirect is a response of the proxy, and a missing
// backend is 500.
func TestExplainCitesPolicies(t *testing.T) {
	client := kind.Dataplanes.Make(mesh, "client", kind.Dataplane{Networking: kind.Networking{
		Address: "10.0.0.9",
		Outbound: []kind.Outbound{{Address: "127.0.0.1", Port: 10001,
			BackendRef: &kind.BackendRef{Kind: "MeshService", Name: "web", Port: 80}}},
	}})
	own := shop("web").(*resource.Object[kind.MeshService])
	webServer := server("web", "10.0.0.2", "web", 8080).(*resource.Object[kind.Dataplane])
	webServer.Spec.Networking.Inbound[0].Protocol = kind.HTTP
	hub := zone("east", client, kind.MeshServices.Make(mesh, "web", own.Spec), webServer,
		servingTLS("web", "10.0.0.2", 8080), permission(caller),
		policyOf(t, kind.MeshHTTPRoutes, "r", `{to: [{targetRef: {kind: MeshService, name: web}, rules: [
			{matches: [{path: {type: PathPrefix, value: /a}}], default: {filters: [{type: RequestHeaderModifier,
			requestHeaderModifier: {set: [{name: x-a, value: b}]}}], backendRefs: [{kind: MeshService, name: web, port: 80},
			{kind: MeshService, name: gone, port: 80}]}},
			{matches: [{path: {type: PathPrefix, value: /by}, headers: [{name: x-canary, value: "yes"}]}],
			default: {backendRefs: [{kind: MeshService, name: web, port: 80}]}},
			{matches: [{path: {type: PathPrefix, value: /by}, queryParams: [{type: Exact, name: version, value: "2"}]}],
			default: {backendRefs: [{kind: MeshService, name: web, port: 80}]}},
			{matches: [{path: {type: PathPrefix, value: /none}}], default: {backendRefs: [
			{kind: MeshService, name: gone, port: 80}]}},
			{matches: [{path: {type: PathPrefix, value: /old}}], default: {filters: [{type: RequestRedirect,
			requestRedirect: {hostname: new}}]}}]}]}`),
		policyOf(t, kind.MeshTimeouts, "t", `{to: [{targetRef: {kind: MeshHTTPRoute, name: r}, default: {http:
			{requestTimeout: 3s}}}, {targetRef: {kind: Mesh}, default: {connectionTimeout: 7s}}],
			rules: [{default: {idleTimeout: 4s}}]}`),
		policyOf(t, kind.MeshRetries, "n", `{to: [{targetRef: {kind: Mesh}, default: {http: {numRetries: 2}}}]}`),
		policyOf(t, kind.MeshRateLimits, "limit", `{rules: [{default: {local: {http: {requestRate: {num: 5, interval: 10s},
			onRateLimit: {status: 423}}, tcp: {connectionRate: {num: 100, interval: 1s}}}}}]}`),
		policyOf(t, kind.MeshFaultInjections, "fault", `{rules: [
			{matches: [{spiffeID: {type: Exact, value: "`+caller+`"}}], default: {http: [{abort:
			{httpStatus: 503, percentage: 10}}, {delay: {value: 2s, percentage: 20}}]}},
			{matches: [{spiffeID: {type: Exact, value: "spiffe://default.east.mesh.local/workload/other"}}],
			default: {http: [{abort: {httpStatus: 501, percentage: 30}}]}}]}`))
	for target, want := range map[string][]string{
		"/a": {
			"match path prefix /a, by MeshHTTPRoute default/r to[0].rules[0].matches",
			"filters by MeshHTTPRoute default/r to[0].rules[0].default.filters",
			"backends by MeshHTTPRoute default/r to[0].rules[0].default.backendRefs",
			"unresolved there is no MeshService gone, by MeshHTTPRoute default/r to[0].rules[0].default.backendRefs[1]",
			"change the header x-a of the request is set to b",
			"setting MeshTimeout http.requestTimeout 3s, by MeshTimeout default/t to[0]",
			"setting MeshRetry numRetries 2, by MeshRetry default/n to[0]",
			"connectionTimeout 7s to kri_msvc_default_east__web_80, by MeshTimeout default/t to[1]",
			"received MeshTimeout idleTimeout 4s, by MeshTimeout default/t rules[0]",
			"received MeshRateLimit local.http.requestRate.num 5, by MeshRateLimit default/limit rules[0]",
			"received MeshRateLimit local.http.onRateLimit.status 423, by MeshRateLimit default/limit rules[0]",
			"received MeshRateLimit local.tcp.connectionRate.num 100, by MeshRateLimit default/limit rules[0]",
			`received MeshFaultInjection http[0] {"abort":{"httpStatus":503,"percentage":10}}, by MeshFaultInjection ` +
				"default/fault rules[0]",
			`http[1] {"delay":{"value":"2s","percentage":20}}, by MeshFaultInjection default/fault rules[0]`,
		},
		"/by": {"match no rule matches"},
		"/by X-Canary: yes": {"request GET /by from default.client", "header x-canary: yes",
			"match path prefix /by, header x-canary Exact yes, by MeshHTTPRoute default/r to[0].rules[1].matches"},
		"/by X-Canary: no": {"header x-canary: no", "match no rule matches"},
		"/by?version=2": {"request GET /by?version=2 from",
			"by MeshHTTPRoute default/r to[0].rules[2].matches"},
		"/by?version=3": {"match no rule matches"},
		"/none": {"verdict unserved: the proxy responds with 500: no backend of the route exists",
			"unresolved there is no MeshService gone"},
		"/old": {"verdict responded: the proxy redirects: 302 to http://new/old"},
		"/": {"match no rule matches, so the request goes to the service itself, by MeshHTTPRoute default/r to[0]",
			"setting MeshTimeout http.requestTimeout 15s, the default"},
	} {
		path, header, ok := strings.Cut(target, " ")
		request := envoysim.Request{From: state.ProxyKey{Mesh: mesh, Name: "client"}, To: "web", Path: path}
		if name, value, _ := strings.Cut(header, ": "); ok {
			request.Headers = map[string]string{strings.ToLower(name): value}
		}
		e, err := hub.Inspector.Explain(request, nil)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Join(strings.Fields(e.Text()), " ")
		for _, line := range want {
			if !strings.Contains(text, line) {
				t.Errorf("%s: the explanation lacks %q:\n%s", target, line, e.Text())
			}
		}
		if strings.Contains(text, "501") {
			t.Errorf("%s: the explanation has the fault of another caller:\n%s", target, e.Text())
		}
	}
}

// TestExplainCitesSNIs: a connection of TLS takes the rule of its SNI, and one without that of all others. Without such
// a rule it goes to the service itself.
func TestExplainCitesSNIs(t *testing.T) {
	client := kind.Dataplanes.Make(mesh, "client", kind.Dataplane{Networking: kind.Networking{
		Address: "10.0.0.9",
		Outbound: []kind.Outbound{{Address: "127.0.0.1", Port: 10001,
			BackendRef: &kind.BackendRef{Kind: "MeshService", Name: "db", Port: 80}}},
	}})
	db := kind.MeshServices.Make(mesh, "db", shop("db").(*resource.Object[kind.MeshService]).Spec)
	db.Spec.Ports = []kind.ServicePort{{Port: 80, AppProtocol: kind.TLS}}
	const rules = `{matches: [{sni: {type: Exact, value: a.example.com}}], default: {backendRefs: [{kind: MeshService, ` +
		`name: gone, port: 80}]}}, {matches: [{sni: {type: Exact, value: b.example.com}}, {sni: {type: Wildcard, value: ` +
		`"*.example.com"}}], default: {backendRefs: [{kind: MeshService, name: db, port: 80}]}}`
	const others = `, {default: {backendRefs: [{kind: MeshService, name: lost, port: 80}]}}`
	for _, c := range []struct {
		rules, sni string
		want       []string
	}{
		{rules, "a.example.com", []string{"SNI a.example.com", "match SNI a.example.com",
			"match SNI a.example.com, by MeshTCPRoute default/r to[0].rules[0].matches",
			"unresolved there is no MeshService gone", "the proxy closes the connection"}},
		{rules, "b.example.com", []string{"match SNI b.example.com or SNI *.example.com, by MeshTCPRoute default/r " +
			"to[0].rules[1].matches", "backends by MeshTCPRoute default/r to[0].rules[1].default.backendRefs",
			"destination kri_msvc_default_east__db_80"}},
		{rules, "x.y.example.com", []string{"match SNI *.example.com",
			"by MeshTCPRoute default/r to[0].rules[1].matches"}},
		{rules, "example.org", []string{"match no rule matches, so the request goes to the service itself",
			"destination kri_msvc_default_east__db_80"}},
		{rules, "", []string{"match no rule matches, so the request goes to the service itself"}},
		{rules + others, "", []string{"backends by MeshTCPRoute default/r to[0].rules[2].default.backendRefs",
			"there is no MeshService lost"}},
		{rules + others, "example.com", []string{
			"backends by MeshTCPRoute default/r to[0].rules[2].default.backendRefs"}},
		{rules, "same.example.org", []string{"match SNI same.example.org, by MeshTCPRoute default/of-client " +
			"to[0].rules[0].matches overrides MeshTCPRoute default/others to[0].rules[0].matches",
			"overrides MeshTCPRoute default/others to[0].rules[0].default.backendRefs"}},
		{rules, "shared.example.org", []string{"by MeshTCPRoute default/of-client to[0].rules[1].matches overrides " +
			"MeshTCPRoute default/others to[0].rules[1].matches, for SNI shared.example.org"}},
	} {
		const same, shared = `{matches: [{sni: {type: Exact, value: same.example.org}}], `,
			`{matches: [{sni: {type: Exact, value: shared.example.org}}, {sni: {type: Exact, value: %s.example.org}}], `
		const to = `default: {backendRefs: [{kind: MeshService, name: db, port: 80}]}}`
		route := func(target, rules string) string {
			return "{" + target + "to: [{targetRef: {kind: MeshService, name: db}, rules: [" + rules + "]}]}"
		}
		hub := zone("east", client, db, policyOf(t, kind.MeshTCPRoutes, "r", route("", c.rules)),
			policyOf(t, kind.MeshTCPRoutes, "others", route("", same+to+", "+fmt.Sprintf(shared, "one")+to)),
			policyOf(t, kind.MeshTCPRoutes, "of-client", route("targetRef: {kind: Dataplane, name: client}, ",
				same+to+", "+fmt.Sprintf(shared, "other")+to)))
		e, err := hub.Inspector.Explain(envoysim.Request{From: state.ProxyKey{Mesh: mesh, Name: "client"}, To: "db",
			SNI: c.sni}, nil)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Join(strings.Fields(e.Text()), " ")
		for _, line := range c.want {
			if !strings.Contains(text, line) {
				t.Errorf("%q: the explanation lacks %q:\n%s", c.sni, line, e.Text())
			}
		}
	}
}
