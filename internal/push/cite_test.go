package push

import (
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
