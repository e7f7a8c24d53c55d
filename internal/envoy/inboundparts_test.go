package envoy

import (
	"bytes"
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/proto"

	"weft/internal/match"
	"weft/internal/proxy"
	"weft/internal/xds"
	"weft/kind"
)

// TestSharedPartsAreThoseOfAWholeMessage: the connection manager of an inbound, whose parts are encoded one by one, has
// the bytes of the whole message, so it has the version that it had when it was encoded as a whole.
func TestSharedPartsAreThoseOfAWholeMessage(t *testing.T) {
	for _, secured := range []bool{false, true} {
		managers := 0
		in := &proxy.InboundListener{Mesh: "shop", Address: "10.0.0.1", Port: 80, Name: "80", Protocol: kind.HTTP,
			ServiceAddress: "127.0.0.1", ServicePort: 80, AlsoPlaintext: true, Permissions: &match.Permissions{}}
		for _, r := range inboundOf(in, secured) {
			if r.Type != xds.Listener {
				continue
			}
			message, err := r.Message()
			if err != nil {
				t.Fatal(err)
			}
			for _, chain := range message.(*listenerv3.Listener).FilterChains {
				for _, filter := range chain.Filters {
					config := filter.GetTypedConfig()
					if config == nil {
						continue
					}
					manager, err := config.UnmarshalNew()
					if err != nil {
						t.Fatal(err)
					}
					whole, err := proto.MarshalOptions{Deterministic: true}.Marshal(manager)
					if err != nil {
						t.Fatal(err)
					}
					if managers++; !bytes.Equal(whole, config.Value) {
						t.Errorf("secured: %t: the parts of the manager are not those of %v", secured, manager)
					}
				}
			}
		}
		if want := map[bool]int{false: 1, true: 2}[secured]; managers != want {
			t.Errorf("secured: %t: got %d connection managers, want %d", secured, managers, want)
		}
	}
}
