package envoy

import (
	"slices"
	"strings"
	"testing"

	"weft/internal/identity"
	"weft/internal/proxy"
	"weft/internal/service"
	"weft/internal/zoneproxy"
	"weft/kind"
)

// The secrets by which proxies validate their peers have the names of the requirement document, in the secrets and in
// the references. (Zone Egress Identity.)
func TestNamesOfTrustBundles(t *testing.T) {
	trust := &identity.Trust{
		Mesh:    "shop",
		Domains: []identity.TrustDomain{{Name: "shop.example", Roots: []string{"root"}}},
	}
	for name, want := range map[string]string{
		TrustBundle(trust).Name:  "system_trust_bundle",
		MeshBundle(trust).Name:   "system_trust_bundle_shop",
		EgressBundle(trust).Name: "system_trust_bundle_egress",
	} {
		if name != want {
			t.Errorf("the secret is %s, want %s", name, want)
		}
	}
	chain := proxy.EgressChain{
		EgressService: zoneproxy.EgressService{Key: service.DestinationKey{Kind: service.ExternalService, Mesh: "shop",
			Service: "api", Port: 443}, SNIs: []string{"a.mes"}, Protocol: kind.TCP},
		Source: identity.Source{RootsOf: "shop"},
	}
	egress := Egress(&proxy.EgressListener{Address: "10.0.0.1", Port: 10002}, identity.Source{},
		[]proxy.EgressChain{chain})
	inbound := inboundOf(&proxy.InboundListener{Mesh: "shop", Address: "10.0.0.1", Port: 80, Protocol: kind.TCP,
		ServiceAddress: "127.0.0.1", ServicePort: 8080}, true)
	for what, c := range map[string]struct {
		wire string
		want []string
	}{
		"the listener of a ZoneEgress": {string(egress[0].Wire),
			[]string{"system_trust_bundle", "system_trust_bundle_shop"}},
		"the listener of a sidecar": {string(inbound[1].Wire), []string{"system_trust_bundle"}},
	} {
		if got := secretsIn(c.wire); !slices.Equal(got, c.want) {
			t.Errorf("%s refers to %v, want %v", what, got, c.want)
		}
	}
}

// secretsIn returns the trust bundles that an encoded resource refers to, sorted.
func secretsIn(wire string) []string {
	var found []string
	for _, part := range strings.Split(wire, "system_trust_bundle")[1:] {
		end := strings.IndexFunc(part, func(r rune) bool { return r != '_' && (r < 'a' || r > 'z') })
		found = append(found, "system_trust_bundle"+part[:max(end, 0)])
	}
	slices.Sort(found)
	return slices.Compact(found)
}
