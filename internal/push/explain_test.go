package push

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weft/internal/envoysim"
	"weft/internal/graph"
	"weft/internal/state"
	"weft/internal/xds"
	"weft/kind"
	"weft/resource"
)

// zone returns a hub with the table of a zone's control plane, including the rows synced from the other zone.
func zone(name string, own ...resource.Any) *Hub {
	hub := NewHub(graph.NewState(name), xds.NewCatalog(), slog.New(slog.DiscardHandler))
	put(hub, append(own,
		kind.MeshIdentities.Make(mesh, "identity", kind.MeshIdentity{
			Selector: &kind.IdentitySelector{Dataplane: &kind.LabelSelector{}},
			SpiffeID: &kind.SpiffeIDTemplate{TrustDomain: "{{ .Mesh }}.{{ .Zone }}.mesh.local",
				Path: "/workload/{{ .Workload }}"},
			Provider: kind.IdentityProvider{Type: "Bundled"},
		}),
		trust("east"), trust("west"),
	)...)
	return hub
}

func trust(zone string) resource.Any {
	o := kind.MeshTrusts.Make(mesh, zone, kind.MeshTrust{
		TrustDomain: mesh + "." + zone + ".mesh.local",
		CABundles:   []kind.CABundle{{Type: "Pem", PEM: &kind.PEMBundle{Value: "ROOT"}}},
	})
	o.Labels = map[string]string{kind.ZoneLabel: zone, kind.OriginLabel: kind.OriginZone}
	return o
}

// shop returns the MeshService web of the zone west, as west and east store it.
func shop(name string) resource.Any {
	o := kind.MeshServices.Make(mesh, name, kind.MeshService{
		State:    "Available",
		Selector: kind.ServiceSelector{DataplaneTags: map[string]string{kind.ServiceTag: "web"}},
		Ports: []kind.ServicePort{{Port: 80, TargetPort: &kind.PortRef{Number: 8080}, AppProtocol: kind.HTTP,
			SNIs: []kind.SNI{{Value: "a1.web.80.default.ms"}}}},
		Identities: []kind.ServiceIdentity{{Type: kind.SpiffeIdentity,
			Value: "spiffe://default.west.mesh.local/workload/web"}},
	})
	o.Labels = map[string]string{kind.DisplayName: "web", kind.ZoneLabel: "west", kind.OriginLabel: kind.OriginZone}
	return o
}

func addressesOfWest(name string) resource.Any {
	o := kind.MeshZoneAddresses.Make(mesh, name, kind.MeshZoneAddress{Ingresses: []kind.ZoneProxyAddress{
		{Name: "ingress", Address: "192.168.1.100", Port: 30001, Healthy: true},
	}})
	o.Labels = map[string]string{kind.DisplayName: "west", kind.ZoneLabel: "west", kind.OriginLabel: kind.OriginZone}
	return o
}

// clientOfWest calls web of the zone west at a port of its own machine.
func clientOfWest() resource.Any {
	return kind.Dataplanes.Make(mesh, "client", kind.Dataplane{Networking: kind.Networking{
		Address: "10.0.0.9",
		Outbound: []kind.Outbound{{Address: "127.0.0.1", Port: 10001, BackendRef: &kind.BackendRef{
			Kind: "MeshService", Labels: map[string]string{kind.DisplayName: "web", kind.ZoneLabel: "west"}, Port: 80,
		}}},
	}})
}

func permission(callers ...string) resource.Any {
	spec := kind.MeshTrafficPermission{Rules: []kind.PermissionRule{{}}}
	for _, caller := range callers {
		spec.Rules[0].Default.Allow = append(spec.Rules[0].Default.Allow,
			kind.CallerMatch{SpiffeID: &kind.IDMatch{Type: "Exact", Value: caller}})
	}
	return kind.MeshTrafficPermissions.Make(mesh, "web", spec)
}

func synced(info *resource.Info, name string) string {
	return kind.SyncedName(info, mesh, name, kind.Owner{Zone: "west"})
}

func newEast() *Hub {
	return zone("east", clientOfWest(), shop(synced(&kind.MeshServices.Info, "web")),
		addressesOfWest(synced(&kind.MeshZoneAddresses.Info, "west")))
}

func newWest(more ...resource.Any) *Hub {
	return zone("west", append(more, shop("web"), addressesOfWest("west"), zoneIngressOf("ingress", "10.0.0.1"),
		server("web", "10.0.0.2", "web", 8080), servingTLS("web", "10.0.0.2", 8080))...)
}

const caller = "spiffe://default.east.mesh.local/workload/client"

// A request is followed from its client's listener to the rule of a server in another zone.
func TestExplainAcrossZones(t *testing.T) {
	const (
		there = "listener self_ingress_10.0.0.1_10001\ndestination a1.web.80.default.ms\n"
		rule  = "MeshTrafficPermission default/web rules[0].default.allow[0]"
		fix   = ": add it under rules[].default.allow of a MeshTrafficPermission that targets the server"
	)
	for name, test := range map[string]struct {
		west *Hub // nil: it cannot be reached
		want string
	}{
		"allowed": {newWest(permission(caller)),
			there + "endpoint 10.0.0.2:8080 default.web: allowed by " + rule + "\nverdict allowed\n"},
		"denied": {newWest(permission("spiffe://default.west.mesh.local/workload/client")),
			there + "endpoint 10.0.0.2:8080 default.web: denied: no rule allows " + caller + fix +
				"\nverdict denied: no rule allows " + caller + fix + "\n"},
		"no endpoint": {zone("west", shop("web"), zoneIngressOf("ingress", "10.0.0.1")),
			"listener self_ingress_10.0.0.1_10001\n" + twice("closed", "verdict unserved:",
				"no ready mTLS endpoint for SNI a1.web.80.default.ms")},
		"the service is deleted": {zone("west", zoneIngressOf("ingress", "10.0.0.1")),
			"listener self_ingress_10.0.0.1_10001\n" + twice("closed", "verdict unserved:",
				"the ingress has no SNI route for a1.web.80.default.ms: no service of its zone has it")},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := newEast().Inspector.
				Explain(toWeb, func(_ string, c envoysim.CrossZoneRequest) (*envoysim.IngressResult,
					error) {
					return test.west.Inspector.CrossZone(c)
				})
			if err != nil {
				t.Fatal(err)
			}
			compareWords(t, `request GET / from default.client to web
dials 127.0.0.1:10001
listener self_outbound_127.0.0.1_10001
route safe
setting MeshTimeout http.requestTimeout 15s, the default
setting MeshRetry numRetries 5, the default
setting MeshRetry retryOn connect-failure,refused-stream,reset,retriable-headers, the default
setting MeshTimeout connectionTimeout 2s, the default
destination kri_msvc_default_west__web_80
mutual TLS yes, client spiffe://default.east.mesh.local/workload/client, `+
				`server spiffe://default.west.mesh.local/workload/web
zone ingress 192.168.1.100:30001 ingress of the zone west
SNI a1.web.80.default.ms
`+test.want, e.Text())
		})
	}
}

// A client whose certificate SPIRE issues has the SPIFFE ID of its MeshIdentity, here and in the other zone.
func TestExplainACallerOfSPIRE(t *testing.T) {
	const caller = "spiffe://default.west.mesh.local/workload/client"
	east := newEast()
	put(east, kind.MeshIdentities.Make(mesh, "by-spire", kind.MeshIdentity{
		Selector: &kind.IdentitySelector{Dataplane: &kind.LabelSelector{}},
		SpiffeID: &kind.SpiffeIDTemplate{TrustDomain: "default.west.mesh.local"},
		Provider: kind.IdentityProvider{Type: kind.Spire},
	}))
	e, err := east.Inspector.
		Explain(toWeb, func(_ string, c envoysim.CrossZoneRequest) (*envoysim.IngressResult, error) {
			return newWest(permission(caller)).Inspector.CrossZone(c)
		})
	if err != nil {
		t.Fatal(err)
	}
	if got := e.SpiffeIDs.List(); e.Verdict != envoysim.Allowed || !slices.Equal(got, []string{caller}) {
		t.Errorf("%q is %s: %s", got, e.Verdict, e.Reason)
	}
}

var toWeb = envoysim.Request{From: state.ProxyKey{Mesh: mesh, Name: "client"}, To: "web"}

// twice writes a reason under two labels.
func twice(label, other, reason string) string {
	return label + " " + reason + "\n" + other + " " + reason + "\n"
}

// The result has everything up to the zone that cannot be reached, and says that it is incomplete.
func TestExplainWhereTheOtherZoneIsUnreachable(t *testing.T) {
	e, err := newEast().Inspector.
		Explain(toWeb, func(string, envoysim.CrossZoneRequest) (*envoysim.IngressResult, error) {
			return nil, errors.New("the zone west is not connected")
		})
	if err != nil || e.Verdict != envoysim.Unknown || e.Reason != "the zone west is not connected" {
		t.Fatalf("%+v, %v, want an unknown verdict with the reason", e, err)
	}
	if got := e.Endpoints[0].Ingress; got.Zone != "west" || got.Name != "ingress" || got.SNI != "a1.web.80.default.ms" {
		t.Errorf("the ingress is %+v", got)
	}
}

// A service of several zones is served by the client's own zone. The other zones are shown as the fallback, and have no
// part in the verdict.
func TestExplainAServiceOfSeveralZones(t *testing.T) {
	compareWords(t, `first kri_mzsvc_default___all_80_local
endpoint 10.1.0.2:8080 default.web: allowed by MeshTrafficPermission default/web rules[0].default.allow[0]
fallback kri_mzsvc_default___all_80_remote
zone ingress 192.168.1.100:30001 ingress of the zone west; the result in that zone is unknown: away
SNI a2.all.80.default.mzms
verdict allowed
`, explainedSeveralZones(t))
}

// A locality awareness decides which zones are shown, and which of them as the fallback.
func TestExplainFollowsTheLocalityAwareness(t *testing.T) {
	const endpoint = "endpoint 10.1.0.2:8080 default.web: allowed by MeshTrafficPermission default/web " +
		"rules[0].default.allow[0]\n"
	const west = "zone ingress 192.168.1.100:30001 ingress of the zone west; the result in that zone is unknown: " +
		"away\nSNI a2.all.80.default.mzms\n"
	const first, fallback = "first kri_mzsvc_default___all_80_local\n", "fallback kri_mzsvc_default___all_80_remote\n"
	to := func(to kind.ToZones) *kind.LocalityAwareness {
		return &kind.LocalityAwareness{CrossZone: &kind.CrossZone{Failover: []kind.Failover{{To: to}}}}
	}
	disabled := true
	for name, c := range map[string]struct {
		awareness *kind.LocalityAwareness
		want      string
	}{
		"None": {to(kind.ToZones{Type: kind.NoZone}), first + endpoint + "verdict allowed\n"},
		"another zone": {to(kind.ToZones{Type: kind.OnlyZones, Zones: []string{"north"}}),
			first + endpoint + "verdict allowed\n"},
		"the other zone": {to(kind.ToZones{Type: kind.OnlyZones, Zones: []string{"west"}}),
			first + endpoint + fallback + west + "verdict allowed\n"},
		"disabled": {&kind.LocalityAwareness{Disabled: &disabled}, first + endpoint + west + fallback + west +
			"verdict partly: away\n"},
	} {
		t.Run(name, func(t *testing.T) {
			compareWords(t, c.want, explainedSeveralZones(t, kind.MeshLoadBalancingStrategies.Make(mesh, "near",
				kind.MeshLoadBalancingStrategy{To: []kind.ToItem[kind.LoadBalancingConf]{{
					TargetRef: kind.DestinationRef{Kind: "Mesh"},
					Default:   kind.LoadBalancingConf{LocalityAwareness: c.awareness}}}})))
		})
	}
}

// explainedSeveralZones explains a request to a service of the zones east and west, from the line of mutual TLS on.
func explainedSeveralZones(t *testing.T, rows ...resource.Any) string {
	t.Helper()
	own := kind.MeshServices.Make(mesh, "web", shop("web").(*resource.Object[kind.MeshService]).Spec)
	own.Labels = map[string]string{kind.DisplayName: "web", kind.ZoneLabel: "east", kind.OriginLabel: kind.OriginZone}
	all := kind.MeshMultiZoneServices.Make(mesh, "all", kind.MeshMultiZoneService{
		Selector: kind.MultiZoneSelector{MeshService: &kind.LabelSelector{
			MatchLabels: map[string]string{kind.DisplayName: "web"},
		}},
		Ports: []kind.ServicePort{{Port: 80, AppProtocol: kind.HTTP,
			SNIs: []kind.SNI{{Value: "a2.all.80.default.mzms"}}}},
	})
	east := newEast()
	put(east, append(rows, own, all, server("web", "10.1.0.2", "web", 8080), servingTLS("web", "10.1.0.2", 8080),
		permission(caller),
		kind.Dataplanes.Make(mesh, "client", kind.Dataplane{Networking: kind.Networking{
			Address: "10.0.0.9",
			Outbound: []kind.Outbound{{Address: "127.0.0.1", Port: 10001,
				BackendRef: &kind.BackendRef{Kind: "MeshMultiZoneService", Name: "all", Port: 80}}},
		}}))...)
	request := toWeb
	request.To = "all"
	e, err := east.Inspector.
		Explain(request, func(string, envoysim.CrossZoneRequest) (*envoysim.IngressResult, error) {
			return nil, errors.New("away")
		})
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(e.Text(), "mutual TLS")
	_, text, _ = strings.Cut(text, "\n")
	return text
}

// compareWords compares texts, except for the widths of their columns.
func compareWords(t *testing.T, want, got string) {
	t.Helper()
	if diff := cmp.Diff(words(want), words(got)); diff != "" {
		t.Errorf("explained otherwise (-want +got):\n%s", diff)
	}
}

func words(text string) []string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return lines
}

// TestExplainAcrossZonesFollowsTheRequest: a request arrives at the server of another zone with the method, the path
// and the headers that the route of the client's proxy leaves, and takes the server's route that they match.
func TestExplainAcrossZonesFollowsTheRequest(t *testing.T) {
	web := server("web", "10.0.0.2", "web", 8080).(*resource.Object[kind.Dataplane])
	web.Spec.Networking.Inbound[0].Protocol = kind.HTTP
	west := zone("west", shop("web"), addressesOfWest("west"), zoneIngressOf("ingress", "10.0.0.1"), web,
		servingTLS("web", "10.0.0.2", 8080), permission(caller),
		policyOf(t, kind.MeshTimeouts, "t", `{rules: [{matches: [{spiffeID: {type: Exact, value: "`+caller+`"}}],
			default: {http: {requestTimeout: 3s}}}]}`),
		policyOf(t, kind.MeshProxyPatches, "p", `{default: {appendModifications: [{virtualHost: {operation: Patch,
			match: {origin: inbound}, jsonPatches: [
			{op: add, path: /routes/0, value: {name: blocked, match: {path: /b, headers: [{name: x-canary,
				stringMatch: {exact: "yes"}}, {name: ":method", stringMatch: {exact: PUT}}]},
				directResponse: {status: 451}}},
			{op: add, path: /routes/1, value: {name: slow, match: {prefix: /, headers: [{name: x-slow,
				stringMatch: {prefix: S, ignoreCase: true}, invertMatch: true}]}, route: {cluster: slow},
				typedPerFilterConfig: {fault: {"@type":
				type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault}}}},
			{op: add, path: /routes/2, value: {name: by-caller, match: {prefix: /caller, headers:
				[{name: x-forwarded-client-cert, stringMatch: {suffix: ";URI=`+caller+`"}}]}, redirect:
				{hostRedirect: other}}}]}}]}}`))
	east := newEast()
	put(east, policyOf(t, kind.MeshHTTPRoutes, "r", `{to: [{targetRef: {kind: MeshService,
		labels: {kuma.io/display-name: web}}, rules: [{matches: [{path: {type: Exact, value: /a}}], default: {filters: [
		{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: X-Canary, value: "yes"}], add: [{name: x-slow,
		value: B}], remove: [x-gone]}},
		{type: URLRewrite, urlRewrite: {path: {type: ReplaceFullPath, replaceFullPath: /b}}}]}}]}]}`))
	explained := func(method, path string, headers map[string]string) string {
		e, err := east.Inspector.Explain(envoysim.Request{From: toWeb.From, To: "web", Method: method, Path: path,
			Headers: headers}, func(_ string, c envoysim.CrossZoneRequest) (*envoysim.IngressResult, error) {
			if _, arrives := c.Headers["x-gone"]; arrives {
				t.Errorf("%s %s arrives with the header that the route removes", method, path)
			}
			return west.Inspector.CrossZone(c)
		})
		if err != nil {
			t.Fatal(err)
		}
		_, there, _ := strings.Cut(strings.Join(strings.Fields(e.Text()), " "), "endpoint ")
		return there
	}
	const at, allowed = "10.0.0.2:8080 default.web: ", "allowed by MeshTrafficPermission default/web " +
		"rules[0].default.allow[0]"
	for request, want := range map[string]string{
		"PUT /b x-canary:yes":        at + "denied: the proxy responds with 451: ",
		"PUT /b x-canary:no":         at + allowed + " received",
		"PUT /b":                     at + allowed + " received",
		"PUT /c x-canary:yes":        at + allowed + " received",
		"GET /b x-canary:yes":        at + allowed + " received",
		"PUT /a":                     at + "denied: the proxy responds with 451: ",
		"PUT /a x-slow:a,x-gone:b":   at + "denied: the proxy responds with 451: ",
		"GET / x-slow:different":     at + allowed + " route slow with fault received",
		"GET / x-slow:sometimes":     at + allowed + " received",
		"GET /caller":                at + "denied: the proxy redirects: 301 to http://other/caller ",
		"GET /caller x-slow:another": at + allowed + " route slow with fault received",
	} {
		fields := append(strings.Fields(request), "")
		headers := map[string]string{}
		for header := range strings.SplitSeq(fields[2], ",") {
			if name, value, ok := strings.Cut(header, ":"); ok {
				headers[name] = value
			}
		}
		if got := explained(fields[0], fields[1], headers); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", request, got, want)
		}
	}
}
