package push

import (
	"strings"
	"testing"

	"weft/internal/envoysim"
	"weft/internal/service"
	"weft/internal/state"
	"weft/kind"
	"weft/resource"
)

// withEgress returns the zone east with a client of the external service api and of web in the zone west, and an
// egress.
func withEgress(more ...resource.Any) *Hub {
	api := kind.MeshExternalServices.Make(mesh, "api", kind.MeshExternalService{
		Match:     kind.ExternalMatch{Port: 443, Protocol: kind.HTTP},
		Endpoints: []kind.ExternalEndpoint{{Address: "api.example.com", Port: 8443}},
		TLS:       &kind.ExternalTLS{Enabled: true},
	})
	api.Labels = map[string]string{kind.OriginLabel: kind.OriginZone, kind.ZoneLabel: "east"}
	hub := newEast()
	put(hub, append([]resource.Any{
		kind.Meshes.Make("", mesh,
			kind.Mesh{Routing: &kind.MeshRouting{ZoneEgress: true, DefaultForbidMeshExternalServiceAccess: true}}),
		api,
		kind.Dataplanes.Make(mesh, "client", kind.Dataplane{Networking: kind.Networking{
			Address: "10.0.0.9",
			Outbound: []kind.Outbound{
				{Port: 10001,
					BackendRef: &kind.BackendRef{Kind: "MeshService",
						Labels: map[string]string{kind.DisplayName: "web"}, Port: 80}},
				{Port: 10002, BackendRef: &kind.BackendRef{Kind: "MeshExternalService", Name: "api", Port: 443}},
			},
		}}),
		kind.Dataplanes.Make(mesh, "egress", kind.Dataplane{Networking: kind.Networking{
			ZoneEgress: &kind.ZoneEgressSection{Address: "10.0.0.7", Port: 10002},
		}}),
		egressOf("east", true),
	}, more...)...)
	return hub
}

func egressOf(zone string, healthy bool) resource.Any {
	return kind.MeshEgressAddresses.Make(mesh, zone, kind.MeshEgressAddress{Egresses: []kind.ZoneProxyAddress{
		{Name: "egress", Address: "10.0.0.7", Port: 10002, Healthy: healthy},
	}})
}

// A request to an external service is followed through the egress, which decides whether the caller is allowed.
func TestExplainARequestToAnExternalService(t *testing.T) {
	const to = "zone egress 10.0.0.7:10002 default.egress: "
	sni := withEgress().state.Services.External.Get(withEgress().reader(),
		service.DestinationKey{Kind: service.ExternalService, Mesh: mesh, Zone: "east", Service: "api", Port: 443}).SNI
	for name, test := range map[string]struct {
		hub  *Hub
		want string
	}{
		"allowed": {withEgress(permission(caller)),
			to + "allowed by MeshTrafficPermission default/web rules[0].default.allow[0]\nSNI " + sni +
				"\nleaves the mesh to api.example.com:8443 with TLS\nverdict allowed\n"},
		"no rule allows the client": {withEgress(permission("spiffe://default.east.mesh.local/workload/another")),
			to + "denied: no rule allows " + caller +
				": add it under rules[].default.allow of a MeshTrafficPermission that targets the server\nSNI " + sni +
				"\nverdict denied: no rule allows " + caller +
				": add it under rules[].default.allow of a MeshTrafficPermission that targets the server\n"},
		"no egress is ready": {withEgress(egressOf("east", false)),
			"verdict unserved: destination kri_extsvc_default_east__api_443 is unreachable: no zone egress of this " +
				"zone is ready, and what leaves the zone goes through one\n"},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := test.hub.Inspector.
				Explain(envoysim.Request{From: state.ProxyKey{Mesh: mesh, Name: "client"}, To: "api"},
					nil)
			if err != nil {
				t.Fatal(err)
			}
			text := e.Text()
			_, text, _ = strings.Cut(text, "mutual TLS")
			_, text, _ = strings.Cut(text, "\n")
			compareWords(t, test.want, text)
		})
	}
}

// A cross-zone request through the egress is followed into the other zone, whose servers authorize the client.
func TestExplainARequestThatAnEgressForwards(t *testing.T) {
	west := newWest(permission(caller))
	e, err := withEgress().Inspector.
		Explain(toWeb, func(_ string, c envoysim.CrossZoneRequest) (*envoysim.IngressResult,
			error) {
			return west.Inspector.CrossZone(c)
		})
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(e.Text(), "mutual TLS")
	compareWords(t,
		`yes, client spiffe://default.east.mesh.local/workload/client, `+
			`server spiffe://default.west.mesh.local/workload/web
zone egress 10.0.0.7:10002 default.egress: forwards the TLS connection by SNI
SNI a1.web.80.default.ms
zone ingress 192.168.1.100:30001 ingress of the zone west
SNI a1.web.80.default.ms
listener self_ingress_10.0.0.1_10001
destination a1.web.80.default.ms
endpoint 10.0.0.2:8080 default.web: allowed by MeshTrafficPermission default/web rules[0].default.allow[0]
verdict allowed
`, text)
}
