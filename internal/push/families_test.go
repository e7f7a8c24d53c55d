package push

import (
	"net/netip"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"weft/internal/state"
	"weft/kind"
	"weft/resource"
)

// addressesIn returns the IP addresses in a message, those in extensions included.
func addressesIn(t *testing.T, m proto.Message) (found []netip.Addr) {
	t.Helper()
	var visit func(protoreflect.Message)
	visit = func(m protoreflect.Message) {
		switch v := m.Interface().(type) {
		case *corev3.SocketAddress:
			if ip, err := netip.ParseAddr(v.Address); err == nil {
				found = append(found, ip)
			}
		case *anypb.Any:
			inner, err := v.UnmarshalNew()
			if err != nil {
				t.Fatal(err)
			}
			visit(inner.ProtoReflect())
			return
		}
		m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			switch {
			case f.IsMap() || f.Message() == nil:
			case f.IsList():
				for i := range v.List().Len() {
					visit(v.List().Get(i).Message())
				}
			default:
				visit(v.Message())
			}
			return true
		})
	}
	visit(m.ProtoReflect())
	return found
}

// TestNoAddressOfAFamilyThatTheMachineLacks: Envoy rejects a listener, and a whole endpoint list, with an IPv6 address
// on a machine without IPv6, so no resource of any proxy there has one. The addresses of the other family stay.
// Proxies whose agents do not report the families have both.
func TestNoAddressOfAFamilyThatTheMachineLacks(t *testing.T) {
	hub, _, _ := newHub(t, never{})
	six := server("web-6", "fd00::2", "web", 8080)
	client := redirectedServer("client", "10.0.0.9").(*resource.Object[kind.Dataplane])
	client.Spec.Networking.Inbound = []kind.Inbound{{Port: 8081, Address: "fd00::9",
		Tags: map[string]string{kind.ServiceTag: "other"}}}
	client.Spec.Networking.Outbound = []kind.Outbound{
		{Address: "::1", Port: 10001, Tags: map[string]string{kind.ServiceTag: "web"}},
		{Address: "127.0.0.1", Port: 10001, Tags: map[string]string{kind.ServiceTag: "web"}}}
	api := externalService("api", "192.0.2.1").(*resource.Object[kind.MeshExternalService])
	api.Spec.Endpoints = append(api.Spec.Endpoints, kind.ExternalEndpoint{Address: "2001:db8::1", Port: 443},
		kind.ExternalEndpoint{Address: "api.example.com", Port: 443})
	egress := kind.Dataplanes.Make(mesh, "egress", kind.Dataplane{Networking: kind.Networking{
		ZoneEgress: &kind.ZoneEgressSection{Address: "10.0.0.8", Port: 10002}}})
	put(hub, everybody(), withSNI("a.web.8080.default.ms"), zoneIngressOf("ingress", "10.0.0.7"), egress, api,
		server("web-4", "10.0.0.2", "web", 8080), six, client, servingTLS("web-4", "10.0.0.2", 8080),
		servingTLS("web-6", "fd00::2", 8080), kind.MeshServiceStatuses.Make(mesh, "web",
			kind.MeshServiceStatus{VIPs: []kind.VIP{{IP: "241.0.0.1"}, {IP: "fd00:fd01::1"}}}))
	keys := []state.ProxyKey{{Mesh: mesh, Name: "client"}, {Mesh: mesh, Name: "ingress"}, {Mesh: mesh, Name: "egress"}}
	families := func(of kind.IPFamilies) {
		for _, key := range keys {
			put(hub, kind.DataplaneListenerStatuses.Make(mesh, key.Name, kind.DataplaneListenerStatus{Run: "1",
				IPFamilies: of}))
		}
	}
	// count returns the number of addresses of each family, without 127.0.0.0/8, in the resources of a proxy.
	count := func(key state.ProxyKey) (four, six int) {
		resources, _ := hub.Inspector.Config(key)
		for _, r := range resources {
			m, err := r.Message()
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range addressesIn(t, m) {
				switch {
				case a.Is6():
					six++
				case !a.IsLoopback():
					four++
				}
			}
		}
		return four, six
	}
	both := map[state.ProxyKey][2]int{}
	for _, of := range []kind.IPFamilies{"", kind.IPv4, kind.DualStack, kind.IPv6, kind.DualStack} {
		families(of)
		for _, key := range keys {
			four, six := count(key)
			if of == "" {
				both[key] = [2]int{four, six}
			}
			want := both[key]
			if !of.Has(false) {
				want[0] = 0
			}
			if !of.Has(true) {
				want[1] = 0
			}
			if got := [2]int{four, six}; got != want || both[key][1] == 0 {
				t.Errorf("%s on a machine with %q has %d addresses of IPv4 and %d of IPv6, want %v", key.Name, of, four,
					six, want)
			}
		}
	}
	families(kind.IPv4)
	if p := hub.state.Proxies.Proxy.Get(hub.reader(), keys[0]); len(p.Excluded) != 2 ||
		!strings.HasSuffix(p.Excluded[0].String(), "since the machine does not have its IP family") {
		t.Errorf("the proxy lacks %v", p.Excluded)
	}
}
