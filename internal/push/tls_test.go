package push

import (
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"weft/internal/state"
	"weft/internal/xds"
	"weft/kind"
	"weft/resource"
)

// TestTLSOfReceivedTraffic: a MeshTLS decides whether an inbound accepts plaintext connections too, and the versions of
// the mesh.
func TestTLSOfReceivedTraffic(t *testing.T) {
	for name, test := range map[string]struct {
		policies []resource.Any
		chains   int
		oldest   tlsv3.TlsParameters_TlsProtocol
	}{
		"no policy": {nil, 1, tlsv3.TlsParameters_TLSv1_2},
		"strict": {[]resource.Any{policyOf(t, kind.MeshTLSes, "t", `{rules: [{default: {mode: Strict}}]}`)}, 1,
			tlsv3.TlsParameters_TLSv1_2},
		"permissive": {[]resource.Any{policyOf(t, kind.MeshTLSes, "t",
			`{rules: [{default: {mode: Permissive, tlsVersion: {min: TLS13}}}]}`)}, 2, tlsv3.TlsParameters_TLSv1_3},
	} {
		hub := zone("east", append(test.policies, server("web", "10.0.0.2", "web", 8080),
			servingTLS("web", "10.0.0.2", 8080), permission(caller))...)
		resources, _ := hub.Inspector.Config(state.ProxyKey{Mesh: mesh, Name: "web"})
		for _, r := range resources {
			message, err := r.Message()
			if err != nil {
				t.Fatal(err)
			}
			l, ok := message.(*listenerv3.Listener)
			if !ok || r.Type != xds.Listener || l.Address.GetSocketAddress().GetPortValue() != 8080 {
				continue
			}
			tls := &tlsv3.DownstreamTlsContext{}
			if err := l.FilterChains[0].TransportSocket.GetTypedConfig().UnmarshalTo(tls); err != nil {
				t.Fatal(err)
			}
			oldest := tls.CommonTlsContext.TlsParams.GetTlsMinimumProtocolVersion()
			if len(l.FilterChains) != test.chains || oldest != test.oldest {
				t.Errorf("%s: %d chains from %s, want %d from %s", name, len(l.FilterChains), oldest, test.chains,
					test.oldest)
			}
			test.chains = 0
		}
		if test.chains != 0 {
			t.Errorf("%s: no listener", name)
		}
	}
}
