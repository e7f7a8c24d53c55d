package push

import (
	"strings"
	"testing"

	"weft/internal/envoysim"
	"weft/internal/state"
	"weft/kind"
	"weft/resource"
)

// An explanation names the listener that has the address of one that the proxy does not get: at the client by address
// and by service, and at a zone ingress of every mesh.
func TestExplainAnExcludedListener(t *testing.T) {
	web := withSNI("a1.web.8080.default.ms").(*resource.Object[kind.MeshService])
	web.Spec.Ports[0].AppProtocol = kind.HTTP
	other := kind.MeshServices.Make(mesh, "other", web.Spec)
	client := kind.Dataplanes.Make(mesh, "client", kind.Dataplane{Networking: kind.Networking{
		Address: "10.0.0.9", Admin: &kind.Admin{Port: 10001},
		TransparentProxying: &kind.TransparentProxying{RedirectPortInbound: 15006, RedirectPortOutbound: 15001},
		Outbound: []kind.Outbound{
			{Port: 10001, BackendRef: &kind.BackendRef{Kind: "MeshService", Name: "other", Port: 8080}},
			{Address: "241.0.0.1", Port: 8080, BackendRef: &kind.BackendRef{Kind: "MeshService", Name: "other",
				Port: 8080}},
		},
	}})
	ingress := kind.ZoneIngresses.Make("", "old", kind.ZoneIngress{Networking: kind.ZoneIngressNetworking{
		Address: "127.0.0.1", Port: 9901, AdvertisedAddress: "192.168.1.100", AdvertisedPort: 30001,
		Admin: &kind.Admin{Port: 9901}}})
	hub := zone("east", web, other, client, ingress, kind.MeshServiceStatuses.Make(mesh, "web",
		kind.MeshServiceStatus{VIPs: []kind.VIP{{IP: "241.0.0.1"}}}))
	explained := func(to string) string {
		e, err := hub.Inspector.Explain(envoysim.Request{From: toWeb.From, To: to}, nil)
		if err != nil {
			return err.Error()
		}
		return e.Reason
	}
	const (
		outbound = "an outbound gets no listener at 127.0.0.1:10001, which is the address of networking.admin at " +
			"127.0.0.1:10001"
		virtual = "MeshService web gets no listener at 241.0.0.1:8080, which is the address of an outbound at " +
			"241.0.0.1:8080"
	)
	for to, want := range map[string]string{"127.0.0.1:10001": outbound, "web": virtual, "web:8080": virtual} {
		if got := explained(to); !strings.HasSuffix(got, ": "+want) {
			t.Errorf("a request to %s: %s; want %s", to, got, want)
		}
	}
	result, err := hub.Inspector.CrossZone(envoysim.CrossZoneRequest{Ingress: state.ZoneIngressProxy("old"), Mesh: mesh,
		SNI: "a1.web.8080.default.ms"})
	if err != nil {
		t.Fatal(err)
	}
	if want := "the zone ingress gets no listener at 127.0.0.1:9901, which is the address of networking.admin at " +
		"127.0.0.1:9901"; !strings.HasSuffix(result.Reason, ": "+want) {
		t.Errorf("a request of another zone: %s; want %s", result.Reason, want)
	}
}
