package envoysim_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"pgregory.net/rapid"

	"weft/internal/envoy"
	"weft/internal/envoysim"
	"weft/internal/identity"
	"weft/internal/match"
	"weft/internal/proxy"
	"weft/internal/xds"
	"weft/kind"
)

const (
	east = "spiffe://default.east.mesh.local/workload/"
	west = "spiffe://default.west.mesh.local/workload/"
)

// server returns the configuration of a proxy with one inbound at 10.0.0.1:80.
func server(secured bool, protocol kind.Protocol, permissions match.Permissions) []*xds.Resource {
	return serverWith(secured, protocol, permissions, proxy.Confs{})
}

func serverWith(secured bool, protocol kind.Protocol, permissions match.Permissions,
	confs proxy.Confs) []*xds.Resource {
	domains := []string{"default.east.mesh.local", "default.west.mesh.local"}
	trust := &identity.Trust{Mesh: "default"}
	for _, domain := range domains {
		trust.Domains = append(trust.Domains, identity.TrustDomain{Name: domain})
	}
	inbound := &proxy.InboundListener{
		Mesh:    "default",
		Address: "10.0.0.1", Port: 80, Name: "main", Protocol: protocol, Bind: true,
		ServiceAddress: "127.0.0.1", ServicePort: 80, Permissions: &permissions, TrustDomains: domains,
		Confs: confs,
	}
	resources := append(envoy.NewInboundParts(inbound.Settings(secured)).Inbound(inbound), envoy.TrustBundle(trust))
	if secured {
		resources = append(resources, envoy.EvictionFilters("default",
			[]string{"former.default.west.dataplane.mesh.local"})...)
	}
	return resources
}

func load(t *testing.T, resources []*xds.Resource) *envoysim.Config {
	t.Helper()
	config, err := envoysim.Load(resources)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func TestInbound(t *testing.T) {
	permissions := match.Permissions{
		Deny:       []match.Rule{{Origin: "deny", IDPattern: kind.IDPattern{Exact: east + "bad"}}},
		ShadowDeny: []match.Rule{{Origin: "shadow", IDPattern: kind.IDPattern{Exact: east + "old"}}},
		Allow: []match.Rule{{Origin: "allow east", IDPattern: kind.IDPattern{Prefix: east}},
			{Origin: "allow another", IDPattern: kind.IDPattern{Exact: "spiffe://untrusted/x"}}},
	}
	tests := []struct {
		name      string
		call      envoysim.Call
		want      envoysim.InboundResult
		reasonHas string
	}{
		{"a rule allows", peer(east + "web"), envoysim.InboundResult{Allowed: true, Rule: "allow east"}, ""},
		{"deny wins over allow", peer(east + "bad"), envoysim.InboundResult{Rule: "deny"}, "denies"},
		{"a shadow denial lets in", peer(east + "old"), envoysim.InboundResult{Allowed: true, Rule: "allow east",
			ShadowRule: "shadow"}, ""},
		{"no rule matches", peer(west + "web"), envoysim.InboundResult{}, "no rule allows " + west + "web"},
		{"an untrusted trust domain", peer("spiffe://untrusted/x"), envoysim.InboundResult{},
			"default.east.mesh.local, default.west.mesh.local"},
		{"evicted by the mesh", envoysim.Call{TLS: true, PeerURIs: []string{east + "web"},
			PeerDNS: "former.default.west.dataplane.mesh.local"},
			envoysim.InboundResult{Rule: "weft: mesh default does not admit the caller"}, "denies"},
		{"an instance like any", envoysim.Call{TLS: true, PeerURIs: []string{east + "web"},
			PeerDNS: "web-1.default.east.dataplane.mesh.local"},
			envoysim.InboundResult{Allowed: true, Rule: "allow east"}, ""},
		{"two domains", peer(west+"web", east+"web"),
			envoysim.InboundResult{Rule: "weft: the caller has names in several trust domains"}, "several"},
		{"a second SPIFFE ID of an untrusted trust domain", peer(west+"web", "spiffe://untrusted/x"),
			envoysim.InboundResult{}, "no rule allows"},
		{"no certificate", envoysim.Call{}, envoysim.InboundResult{}, "MeshIdentity"},
		{"a certificate without name", envoysim.Call{TLS: true}, envoysim.InboundResult{}, "no SPIFFE ID"},
	}
	for _, protocol := range []kind.Protocol{kind.HTTP, kind.TCP} {
		config := load(t, server(true, protocol, permissions))
		for _, test := range tests {
			t.Run(string(protocol)+"/"+test.name, func(t *testing.T) {
				test.call.Address, test.call.Port = "10.0.0.1", 80
				got := config.Inbound(test.call)
				if got.Allowed != test.want.Allowed || got.Rule != test.want.Rule ||
					got.ShadowRule != test.want.ShadowRule {
					t.Errorf("got %+v, want %+v", got, test.want)
				}
				if !strings.Contains(got.Reason, test.reasonHas) || got.Allowed != (got.Reason == "") {
					t.Errorf("reason %q, want one with %q", got.Reason, test.reasonHas)
				}
			})
		}
	}
}

// Envoy separates SANs by commas, so a SAN that contains a comma would look like two.
func TestASANWithACommaIsDenied(t *testing.T) {
	config := load(t,
		server(true, kind.TCP, match.Permissions{Allow: []match.Rule{{Origin: "allow",
			IDPattern: kind.IDPattern{Exact: east + "web"}}}}))
	call := peer(east + "other," + east + "web")
	call.Address, call.Port = "10.0.0.1", 80
	if got := config.Inbound(call); got.Allowed || got.Rule != "weft: a SAN of the caller contains a comma" {
		t.Errorf("got %+v", got)
	}
}

// TestNoTextEscapesItsRule: with any text in rules, a rule matches only its SPIFFE IDs.
func TestNoTextEscapesItsRule(t *testing.T) {
	hostile := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{
		`') ? 'allow:x' : 'allow:y')%`, `' || true || '`, `\`, `\'`, `%CEL('allow:')%`, `)%:5%`, "\x00", "\n", `%%`,
		`",`, `é`, "\U0001f600",
	}))
	rapid.Check(t, func(t *rapid.T) {
		text := hostile.Draw(t, "text")
		if !utf8.ValidString(text) {
			return // no such text passes admission
		}
		rule := match.Rule{Origin: hostile.Draw(t, "origin"), IDPattern: kind.IDPattern{Prefix: east + text}}
		permissions := match.Permissions{Allow: []match.Rule{rule}}
		if rapid.Bool().Draw(t, "deny") {
			permissions = match.Permissions{
				Allow: []match.Rule{{Origin: "all", IDPattern: kind.IDPattern{Prefix: east}}},
				Deny:  []match.Rule{rule}}
		}
		if !utf8.ValidString(rule.Origin) {
			return
		}
		resources := server(true, kind.TCP, permissions)
		config, err := envoysim.Load(resources)
		if err != nil {
			t.Fatal(err)
		}
		for _, caller := range []string{east + text + "x", east + "web"} {
			matches := strings.HasPrefix(caller, rule.Prefix) && !strings.Contains(text, ",")
			call := peer(caller)
			call.Address, call.Port = "10.0.0.1", 80
			got := config.Inbound(call)
			allowed := matches == (len(permissions.Deny) == 0) && !strings.Contains(caller, ",")
			if got.Allowed != allowed || matches && got.Rule != rule.Origin {
				t.Fatalf("%q: %+v, want allowed %v", caller, got, allowed)
			}
		}
	})
}

func peer(names ...string) envoysim.Call { return envoysim.Call{TLS: true, PeerURIs: names} }

func TestInboundThatIsPlain(t *testing.T) {
	config := load(t, server(false, kind.HTTP, match.Permissions{}))
	if got := config.Inbound(envoysim.Call{Address: "10.0.0.1", Port: 80}); !got.Allowed || got.Rule != "" {
		t.Errorf("a plain call: %+v, want it allowed without a rule", got)
	}
	call := peer(east + "web")
	call.Address, call.Port = "10.0.0.1", 80
	if got := config.Inbound(call); got.Allowed || !strings.Contains(got.Reason, "plain") {
		t.Errorf("TLS to a plain server: %+v, want it denied", got)
	}
	if got := config.Inbound(envoysim.Call{Address: "10.0.0.1", Port: 81}); got.Allowed ||
		!strings.Contains(got.Reason, "10.0.0.1:81") {
		t.Errorf("another port: %+v, want a reason that names it", got)
	}
}

// A filter that the route enables counts, with its content or its default. A fault, which fails some requests of any
// caller, denies none.
func TestASlotCountsWhereTheRouteEnablesIt(t *testing.T) {
	const slot = "self_fault_1_main"
	content := func(filter proto.Message) *xds.Resource {
		return xds.NewResource(xds.Extension, slot,
			&corev3.TypedExtensionConfig{Name: slot, TypedConfig: packed(t, filter)})
	}
	allowsNone := content(&httprbacv3.RBAC{Rules: &rbacv3.RBAC{Action: rbacv3.RBAC_ALLOW}})
	all := server(false, kind.HTTP, match.Permissions{})
	enabled := slices.Clone(all)
	for i, r := range all {
		if r.Type == xds.Route {
			m, err := r.Message()
			if err != nil {
				t.Fatal(err)
			}
			m.(*routev3.RouteConfiguration).TypedPerFilterConfig = map[string]*anypb.Any{
				slot: packed(t, &routev3.FilterConfig{Config: &anypb.Any{}})}
			enabled[i] = xds.NewResource(xds.Route, r.Name, m)
		}
	}
	for _, c := range []struct {
		name      string
		resources []*xds.Resource
		allowed   bool
	}{
		{"content that no route enables", append(slices.Clone(all), allowsNone), true},
		{"the default", enabled, true},
		{"content", append(slices.Clone(enabled), allowsNone), false},
		{"a fault", append(slices.Clone(enabled), content(&faultv3.HTTPFault{})), true},
	} {
		got := load(t, c.resources).Inbound(envoysim.Call{Address: "10.0.0.1", Port: 80})
		if got.Allowed != c.allowed || !c.allowed && !strings.Contains(got.Reason, "no rule allows") {
			t.Errorf("%s: %+v, want allowed %v", c.name, got, c.allowed)
		}
	}
}

// A limit of connections or requests, also one by caller, denies no caller.
func TestLimitsDenyNoCaller(t *testing.T) {
	var confs proxy.Confs
	if err := confs.UnmarshalJSON([]byte(`{"MeshRateLimit": [
		{"match": {"spiffeID": "spiffe://default.east.mesh.local/workload/web"},
			"conf": {"local": {"http": {"requestRate": {"num": 1, "interval": "1h"}}}}},
		{"match": {}, "conf": {"local": {"http": {"requestRate": {"num": 1, "interval": "1h"}},
			"tcp": {"connectionRate": {"num": 1, "interval": "1h"}}}}}]}`)); err != nil {
		t.Fatal(err)
	}
	call := peer(east + "web")
	call.Address, call.Port = "10.0.0.1", 80
	for _, protocol := range []kind.Protocol{kind.HTTP, kind.TCP} {
		allow := match.Permissions{Allow: []match.Rule{{Origin: "a", IDPattern: kind.IDPattern{Prefix: east}}}}
		resources := serverWith(true, protocol, allow, confs)
		if got := load(t, resources).Inbound(call); !got.Allowed {
			t.Errorf("%s: %+v, want the caller allowed", protocol, got)
		}
	}
}

func packed(t *testing.T, m proto.Message) *anypb.Any {
	t.Helper()
	a, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// A proxy without part of its configuration accepts no caller, as Envoy does.
func TestInboundFailsClosed(t *testing.T) {
	call := peer(east + "web")
	call.Address, call.Port = "10.0.0.1", 80
	for protocol, other := range map[kind.Protocol]string{kind.HTTP: "_tcp_", kind.TCP: "_http_"} {
		all := server(true, protocol, match.Permissions{Allow: []match.Rule{{Origin: "allow",
			IDPattern: kind.IDPattern{Prefix: east}}}})
		for i, missing := range all {
			if strings.HasPrefix(missing.Name, "self_inbound_") && missing.Type == xds.Cluster ||
				strings.Contains(missing.Name, other) {
				continue // the dialing of the application, or the filter of the other protocols
			}
			t.Run(fmt.Sprintf("%s/%s %s", protocol, missing.Type, missing.Name), func(t *testing.T) {
				rest := append(append([]*xds.Resource{}, all[:i]...), all[i+1:]...)
				if got := load(t, rest).Inbound(call); got.Allowed || got.Reason == "" {
					t.Errorf("without %s %s: %+v, want it denied with a reason", missing.Type, missing.Name, got)
				}
			})
		}
	}
}
