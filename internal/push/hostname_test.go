package push

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"weft/internal/bubble"
	"weft/internal/service"
	"weft/kind"
	"weft/resource"
)

// remoteService returns a service of the zone west.
func remoteService() resource.Any {
	service := kind.MeshServices.Make(mesh, kind.SyncedName(&kind.MeshServices.Info, mesh, "far",
		kind.Owner{Zone: "west"}), kind.MeshService{
		State: "Available",
		Ports: []kind.ServicePort{{Port: 80, SNIs: []kind.SNI{{Value: "a1.far.80.default.ms"}}}},
		Identities: []kind.ServiceIdentity{{Type: kind.SpiffeIdentity,
			Value: "spiffe://default.west.mesh.local/workload/far"}},
	})
	service.Labels = map[string]string{kind.ZoneLabel: "west", kind.OriginLabel: kind.OriginZone,
		kind.DisplayName: "far"}
	return service
}

func ingressesOfWest(addresses ...string) resource.Any {
	row := kind.MeshZoneAddresses.Make(mesh, kind.SyncedName(&kind.MeshZoneAddresses.Info, mesh, "west",
		kind.Owner{Zone: "west"}), kind.MeshZoneAddress{})
	row.Labels = map[string]string{kind.ZoneLabel: "west", kind.OriginLabel: kind.OriginZone, kind.DisplayName: "west"}
	for i, address := range addresses {
		row.Spec.Ingresses = append(row.Spec.Ingresses, kind.ZoneProxyAddress{Name: fmt.Sprint(i), Address: address,
			Port: 10001, Healthy: true})
	}
	return row
}

func resolved(name string, addresses ...string) resource.Any {
	row := kind.ResolvedNames.Make("", name, kind.ResolvedName{Problem: "the name has no address"})
	for _, address := range addresses {
		row.Spec.Problem = ""
		row.Spec.Addresses = append(row.Spec.Addresses, kind.ResolvedAddress{Address: address})
	}
	return row
}

// Clients go on with the former ingresses of a zone that now advertises a host name until the name has addresses, also
// where its first lookup fails. The same holds for a name that replaces another. The retained ingresses are stored.
func TestIngressesStayUntilTheirHostNameIsResolved(t *testing.T) {
	hub, _, _ := newHub(t, never{})
	stored := make(chan []*resource.Object[kind.ResolvedName], 1)
	hub.callbacks.KeepIngresses = func(_ context.Context, rows []*resource.Object[kind.ResolvedName]) error {
		stored <- rows
		return nil
	}
	dialedIngresses := func(want ...string) {
		t.Helper()
		var got []string
		for _, e := range hub.state.Services.EndpointsOf(hub.reader(),
			service.DestinationKey{Mesh: mesh, Zone: "west", Service: "far", Port: 80}).Endpoints {
			got = append(got, e.Address)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("clients dial %v, want %v", got, want)
		}
	}
	keeps := func(name string) {
		t.Helper()
		if rows := <-stored; len(rows) != 1 || rows[0].Name != name || len(rows[0].Spec.Former) != 1 {
			t.Errorf("%v is stored", rows)
		}
	}
	put(hub, remoteService(), ingressesOfWest("192.0.2.1", "192.0.2.2"))
	dialedIngresses("192.0.2.1", "192.0.2.2")
	put(hub, ingressesOfWest("lb.example"))
	dialedIngresses("192.0.2.1", "192.0.2.2")
	keeps("lb.example")
	put(hub, resolved("lb.example", "192.0.2.3"))
	dialedIngresses("192.0.2.3")
	put(hub, resolved("other.example"))
	put(hub, ingressesOfWest("other.example"))
	dialedIngresses("192.0.2.3")
	keeps("other.example")
	put(hub, ingressesOfWest("192.0.2.9"))
	dialedIngresses("192.0.2.9")
	put(hub, ingressesOfWest("lb.example", "unresolved.example"))
	dialedIngresses("192.0.2.3")
	put(hub, ingressesOfWest())
	dialedIngresses()
	select {
	case rows := <-stored:
		t.Errorf("%v is stored, though there was an address", rows)
	default:
	}
}

// Other zones learn that this zone applies a change only after its host names have been looked up.
func TestAChangeWaitsForTheFirstLookupOfItsNames(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		hub, _, _ := newHub(t, never{})
		row := ingressesOfWest("lb.example", "other.example")
		put(hub, remoteService(), row)
		done := make(chan []resource.Key, 1)
		go func() { done <- hub.Rows.LookedUp(t.Context(), []resource.Key{row.Key()}) }()
		put(hub, resolved("lb.example", "192.0.2.3"))
		synctest.Wait()
		select {
		case names := <-done:
			t.Fatalf("it went on with %v", names)
		default:
		}
		put(hub, resolved("other.example"))
		if names := <-done; fmt.Sprint(names) != "[ResolvedName lb.example ResolvedName other.example]" {
			t.Errorf("the names are %v", names)
		}
		bounded, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		again := ingressesOfWest("hangs.example")
		put(hub, again)
		if names := hub.Rows.LookedUp(bounded, []resource.Key{again.Key()}); len(names) != 1 {
			t.Errorf("the names are %v", names)
		}
	})
}

// Another zone waits for the lookup of its new host name as long as this zone dials the former ingresses in its place.
func TestAChangeWaitsWhileFormerIngressesAreDialled(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		hub, _, _ := newHub(t, never{})
		hub.callbacks.KeepIngresses = func(context.Context, []*resource.Object[kind.ResolvedName]) error { return nil }
		put(hub, remoteService(), ingressesOfWest("192.0.2.1"))
		row := ingressesOfWest("lb.example")
		put(hub, row)
		failed := resolved("lb.example").(*resource.Object[kind.ResolvedName])
		failed.Spec.Former = []kind.FormerIngresses{{Mesh: mesh, Zone: "west",
			Ingresses: []kind.IngressEndpoint{{Address: "192.0.2.1", Port: 10001}}}}
		put(hub, failed)
		done := make(chan []resource.Key, 1)
		go func() { done <- hub.Rows.LookedUp(t.Context(), []resource.Key{row.Key()}) }()
		synctest.Wait()
		select {
		case <-done:
			t.Fatal("it went on, though the former ingress is dialed")
		default:
		}
		put(hub, resolved("lb.example", "192.0.2.3"))
		<-done
		atOtherInstance := resolved("other.example").(*resource.Object[kind.ResolvedName])
		atOtherInstance.Spec.Former = []kind.FormerIngresses{{Mesh: mesh, Zone: "north",
			Ingresses: failed.Spec.Former[0].Ingresses}}
		other := ingressesOfWest("lb.example", "other.example")
		put(hub, atOtherInstance, other)
		if names := hub.Rows.LookedUp(t.Context(), []resource.Key{other.Key()}); len(names) != 2 {
			t.Errorf("the names are %v", names)
		}
	})
}
