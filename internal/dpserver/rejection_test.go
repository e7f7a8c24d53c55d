package dpserver_test

import (
	"slices"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"

	"weft/internal/wire"
	"weft/internal/xds"
	"weft/kind"
)

// The agent learns what Envoy rejects of its listener, and the insight names the listener.
func TestTheAgentLearnsOfARejectedListener(t *testing.T) {
	p := newPlane(t)
	p.register()
	session, settings := p.session("run")
	at := kind.HostPort(settings.Listeners[0].Address, settings.Listeners[0].Port)
	stream, err := p.discover(p.dataplaneToken("web-1"), "default.web-1")
	if err != nil {
		t.Fatal(err)
	}
	for rejected := false; !rejected; { // those that are rejected together are sent again one by one
		response, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		request := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: response.TypeUrl, ResponseNonce: response.Nonce}
		if response.TypeUrl == xds.Listener.URL() && len(response.Resources) > 0 {
			request.ErrorDetail = &rpcstatus.Status{Message: "duplicate address"}
			rejected = len(response.Resources) == 1 && response.Resources[0].Name == settings.Listeners[0].Name
		}
		if err := stream.Send(request); err != nil {
			t.Fatal(err)
		}
	}
	p.settings(session, func(s *wire.Settings) bool { return s.Listeners[0].Rejection == "duplicate address" })
	stored(p, kind.DataplaneInsights, func(insight kind.DataplaneInsight) bool {
		return slices.ContainsFunc(insight.NACKs, func(nack kind.NACK) bool { return nack.Listener == at })
	})
}
