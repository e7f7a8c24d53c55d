package envoy

import (
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/proto"

	"weft/internal/match"
	"weft/internal/proxy"
	"weft/internal/xds"
	"weft/kind"
)

// Envoy keeps the connections of an unchanged filter chain as long as nothing outside the chains changes. A change of
// the mode of a mesh's mtls therefore closes no TLS connection.
func TestAModeChangesNothingOfConnectionsWithTLS(t *testing.T) {
	for _, protocol := range []kind.Protocol{kind.HTTP, kind.TCP} {
		strict, permissive := inboundIn(t, protocol, false), inboundIn(t, protocol, true)
		if len(strict.FilterChains) != 1 || len(permissive.FilterChains) != 2 {
			t.Fatalf("%s: %d chains, and %d with plain connections; want 1 and 2", protocol, len(strict.FilterChains),
				len(permissive.FilterChains))
		}
		if !proto.Equal(strict.FilterChains[0], permissive.FilterChains[0]) {
			t.Errorf("%s: the chain of connections with TLS changes with the mode", protocol)
		}
		strict.FilterChains, permissive.FilterChains = nil, nil
		if !proto.Equal(strict, permissive) {
			t.Errorf("%s: more than the chains changes with the mode, so that Envoy replaces the listener:\n%v\n%v",
				protocol, strict, permissive)
		}
	}
}

// inboundIn returns a listener of a mesh with mtls.
func inboundIn(t *testing.T, protocol kind.Protocol, permissive bool) *listenerv3.Listener {
	t.Helper()
	resources := inboundOf(&proxy.InboundListener{
		Address: "10.0.0.1", Port: 80, Name: "80", Protocol: protocol, ServiceAddress: "127.0.0.1", ServicePort: 80,
		Bind:          true,
		AlsoPlaintext: permissive, Permissions: &match.Permissions{},
	}, true)
	for _, r := range resources {
		if r.Type == xds.Listener {
			message, err := r.Message()
			if err != nil {
				t.Fatal(err)
			}
			return message.(*listenerv3.Listener)
		}
	}
	t.Fatal("no listener")
	return nil
}
