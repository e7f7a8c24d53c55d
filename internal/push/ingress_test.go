package push

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"weft/internal/proxy"
	"weft/internal/state"
	"weft/internal/xds"
	"weft/kind"
	"weft/resource"
)

func zoneIngressOf(name, address string) resource.Any {
	return kind.Dataplanes.Make(mesh, name, kind.Dataplane{Networking: kind.Networking{
		ZoneIngress: &kind.ZoneIngressSection{Address: address, Port: 10001, AdvertisedAddress: "192.168.1.100",
			AdvertisedPort: 30001},
	}})
}

// withSNI returns the service web with a server name.
func withSNI(sni string) resource.Any {
	return kind.MeshServices.Make(mesh, "web", kind.MeshService{
		Selector: kind.ServiceSelector{DataplaneTags: map[string]string{kind.ServiceTag: "web"}},
		Ports:    []kind.ServicePort{{Port: 8080, SNIs: []kind.SNI{{Value: sni}}}},
	})
}

// servingTLS returns the listener status of a server that presents a certificate.
func servingTLS(name, address string, port uint32) resource.Any {
	row := serving(name, address, port).(*resource.Object[kind.DataplaneListenerStatus])
	row.Spec.Inbounds[0].Serial = "5e"
	return row
}

// watched keeps a proxy in use.
func watched(t *testing.T, hub *Hub, name string) state.ProxyKey {
	key := state.ProxyKey{Mesh: mesh, Name: name}
	t.Cleanup(hub.Proxies.Watch(key, func(*proxy.Proxy) {}))
	return key
}

// namesOf returns the names of the resources of a type in a proxy's resource sets, sorted.
func namesOf(hub *Hub, key state.ProxyKey, typ xds.Type) []string {
	var all []string
	for _, f := range hub.Proxies.setsOf(hub.Proxies.used[key]) {
		for _, r := range f.Resources() {
			if r.Type == typ {
				all = append(all, r.Name)
			}
		}
	}
	slices.Sort(all)
	return all
}

func TestIngressesOfAMeshShareWhatTheyPassOn(t *testing.T) {
	hub, _, _ := newHub(t, never{})
	put(hub, zoneIngressOf("ingress-1", "10.0.0.1"), zoneIngressOf("ingress-2", "10.0.0.2"),
		withSNI("a.web.8080.default.ms"))
	first, second := watched(t, hub, "ingress-1"), watched(t, hub, "ingress-2")
	if a, b := hub.Proxies.setsOf(hub.Proxies.used[first])[1], hub.Proxies.setsOf(hub.Proxies.used[second])[1]; a != b {
		t.Error("each ingress has SNI routes of its own")
	}
	for _, key := range []state.ProxyKey{first, second} {
		if got := namesOf(hub, key, xds.Cluster); !slices.Equal(got, []string{"a.web.8080.default.ms"}) {
			t.Errorf("%s has the clusters %v", key, got)
		}
		if got := namesOf(hub, key, xds.Endpoint); !slices.Equal(got, []string{"a.web.8080.default.ms"}) {
			t.Errorf("%s has the assignments %v, want one for its cluster", key, got)
		}
		if got, want := namesOf(hub, key, xds.Listener),
			fmt.Sprintf("self_ingress_10.0.0.%s_10001", strings.TrimPrefix(key.Name, "ingress-")); !slices.Equal(got,
			[]string{want}) {
			t.Errorf("%s listens at %v, want %s", key, got, want)
		}
	}
}

// Changes of the services of an ingress never change its listener, because a new listener drains all open connections.
func TestAnAddedOrRemovedServiceDoesNotChangeTheIngressListener(t *testing.T) {
	hub, _, _ := newHub(t, never{})
	put(hub, zoneIngressOf("ingress", "10.0.0.1"))
	key := watched(t, hub, "ingress")
	own := hub.Proxies.used[key].own
	put(hub, withSNI("a.web.8080.default.ms"), server("web", "10.0.0.5", "web", 8080),
		servingTLS("web", "10.0.0.5", 8080))
	put(hub, withSNI("b.web.8080.default.ms"))
	hub.Apply(removal(kind.RetainedSNIRoutes.Key(mesh, "web-8080"))) // other zones have removed it
	if got := namesOf(hub, key, xds.Endpoint); !slices.Equal(got, []string{"b.web.8080.default.ms"}) {
		t.Errorf("after the server name changed it has the assignments %v", got)
	}
	hub.Apply(removal(kind.MeshServices.Key(mesh, "web")))
	hub.Apply(removal(kind.RetainedSNIRoutes.Key(mesh, "web-8080")))
	if got := namesOf(hub, key, xds.Cluster); len(got) > 0 {
		t.Errorf("the service is gone, and it has the clusters %v", got)
	}
	if hub.Proxies.used[key].own != own {
		t.Error("what the ingress has for itself was made anew")
	}
}

// A plaintext server could not authenticate callers of other zones.
func TestAnIngressDoesNotForwardToAPlaintextServer(t *testing.T) {
	hub, _, _ := newHub(t, never{})
	put(hub, zoneIngressOf("ingress", "10.0.0.1"), withSNI("a.web.8080.default.ms"),
		server("secure", "10.0.0.5", "web", 8080), servingTLS("secure", "10.0.0.5", 8080),
		server("plain", "10.0.0.6", "web", 8080), serving("plain", "10.0.0.6", 8080))
	key := watched(t, hub, "ingress")
	config, _ := hub.Inspector.Config(key)
	i := slices.IndexFunc(config, func(r *xds.Resource) bool { return r.Type == xds.Endpoint })
	message, err := config[i].Message()
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(message); !strings.Contains(got, "10.0.0.5") || strings.Contains(got, "10.0.0.6") {
		t.Errorf("it forwards to %s, want the server that takes mutual TLS and no other", got)
	}
}

// An agent that reports a loopback address gets no connection forwarded to the ingress's own machine.
func TestAnIngressForwardsNothingToItsOwnMachine(t *testing.T) {
	hub, _, _ := newHub(t, never{})
	put(hub, zoneIngressOf("ingress", "10.0.0.1"), withSNI("a.web.8080.default.ms"),
		server("secure", "10.0.0.5", "web", 8080), servingTLS("secure", "10.0.0.5", 8080),
		server("local", "127.0.0.1", "web", 8080), servingTLS("local", "127.0.0.1", 8080))
	config, _ := hub.Inspector.Config(watched(t, hub, "ingress"))
	i := slices.IndexFunc(config, func(r *xds.Resource) bool { return r.Type == xds.Endpoint })
	message, err := config[i].Message()
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(message); !strings.Contains(got, "10.0.0.5") || strings.Contains(got, "127.0.0.1") {
		t.Errorf("it forwards to %s, want the server on another machine alone", got)
	}
}

// An ingress is a client of the servers that it forwards to: a listener stays until the ingress has acked its removal.
func TestAServerWaitsForTheIngressesToLetGo(t *testing.T) {
	acked := make(onDemand)
	hub, _, gone := newHub(t, acked)
	put(hub, zoneIngressOf("ingress", "10.0.0.1"), withSNI("a.web.8080.default.ms"),
		server("one", "10.0.0.5", "web", 8080), servingTLS("one", "10.0.0.5", 8080),
		server("two", "10.0.0.6", "web", 8080), servingTLS("two", "10.0.0.6", 8080))
	key := watched(t, hub, "ingress")
	before := hub.catalog.Revision()
	put(hub, server("one", "10.0.0.5", "web", 8081))
	if hub.catalog.Revision() == before {
		t.Fatal("the ingress was not told")
	}
	config, _ := hub.Inspector.Config(key)
	for _, r := range config {
		if r.Type == xds.Endpoint && strings.Contains(string(r.Wire), "10.0.0.5") {
			t.Error("the ingress still forwards to the server that goes")
		}
	}
	hub.mu.Lock()
	since := hub.Drains.open[state.ProxyKey{Mesh: mesh, Name: "one"}]["10.0.0.5:8080"]
	hub.mu.Unlock()
	if since != hub.catalog.Revision() {
		t.Errorf("the drain waits for revision %d, want %d, at which the ingress has acked", since,
			hub.catalog.Revision())
	}
	acked <- struct{}{}
	<-gone
}

// confirmOnDemand has other zones that confirm when the test sends.
type confirmOnDemand struct {
	rows    chan []resource.Key
	confirm chan struct{}
}

func (a confirmOnDemand) AwaitConfirmed(ctx context.Context, rows ...resource.Key) error {
	select {
	case a.rows <- rows:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-a.confirm:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func told(ingresses ...kind.ZoneProxyAddress) resource.Any {
	return kind.MeshZoneAddresses.Make(mesh, "default", kind.MeshZoneAddress{Ingresses: ingresses})
}

// ackedAtOnce is an AckWaiter whose clients ack at once.
type ackedAtOnce struct{}

func (ackedAtOnce) WaitAcked(context.Context, []*xds.Stream, uint64, func(xds.NACK) bool) (int, error) {
	return 0, nil
}

// An ingress that moves listens at its former address until every other zone dials the new one.
func TestAnIngressListenerGoesOnceOtherZonesDialAnother(t *testing.T) {
	zones := confirmOnDemand{make(chan []resource.Key), make(chan struct{})}
	hub, _, gone := newHubAmong(t, ackedAtOnce{}, zones)
	former := kind.ZoneIngressSection{Address: "10.0.0.1", Port: 10001, AdvertisedAddress: "192.168.1.100",
		AdvertisedPort: 30001}
	moved := kind.ZoneIngressSection{Address: "10.0.0.1", Port: 10002, AdvertisedAddress: "192.168.1.100",
		AdvertisedPort: 30002}
	put(hub, zoneIngressOf("ingress", "10.0.0.1"),
		told(kind.ZoneProxyAddress{Name: "ingress", Address: "192.168.1.100", Port: 30001, Healthy: true}),
		kind.DataplaneListenerStatuses.Make(mesh, "ingress",
			kind.DataplaneListenerStatus{Ingresses: []kind.ZoneIngressSection{former}}))
	put(hub, kind.Dataplanes.Make(mesh, "ingress", kind.Dataplane{Networking: kind.Networking{ZoneIngress: &moved}}))
	put(hub, kind.DataplaneListenerStatuses.Make(mesh, "ingress",
		kind.DataplaneListenerStatus{Ingresses: []kind.ZoneIngressSection{former, moved}}))
	proxy, _ := hub.Rows.Proxy(state.ProxyKey{Mesh: mesh, Name: "ingress"})
	if len(proxy.Ingresses) != 2 || hub.Drains.Open() > 0 {
		t.Errorf("listens at %v with %d drains, want both addresses while other zones dial the former one",
			proxy.Ingresses, hub.Drains.Open())
	}
	put(hub, told(kind.ZoneProxyAddress{Name: "ingress", Address: "192.168.1.100", Port: 30002, Healthy: true}))
	if rows := <-zones.rows; !slices.Equal(rows, []resource.Key{kind.MeshZoneAddresses.Key(mesh, "default")}) {
		t.Errorf("other zones are asked about %v", rows)
	}
	select {
	case left := <-gone:
		t.Errorf("%v goes before other zones have confirmed", left)
	default:
	}
	zones.confirm <- struct{}{}
	if left := <-gone; !slices.Equal(left.listeners, []string{"10.0.0.1:10001"}) {
		t.Errorf("%v goes, want the former listener", left)
	}
}

func TestADrainingIngressWaitsForOtherZones(t *testing.T) {
	zones := confirmOnDemand{make(chan []resource.Key), make(chan struct{})}
	hub, _, _ := newHubAmong(t, ackedAtOnce{}, zones)
	key := state.ProxyKey{Mesh: mesh, Name: "ingress"}
	put(hub, zoneIngressOf("ingress", "10.0.0.1"), told(kind.ZoneProxyAddress{Name: "ingress", Healthy: true}))
	drained := make(chan error)
	go func() { drained <- hub.Acks.AwaitDrain(t.Context(), key) }()
	put(hub, kind.DataplaneListenerStatuses.Make(mesh, "ingress", kind.DataplaneListenerStatus{Draining: true}))
	select {
	case rows := <-zones.rows:
		t.Errorf("other zones are asked about %v before they are told", rows)
	case err := <-drained:
		t.Errorf("drained (%v) while other zones are told that it is well", err)
	default:
	}
	put(hub, told(kind.ZoneProxyAddress{Name: "ingress"}))
	<-zones.rows
	zones.confirm <- struct{}{}
	if err := <-drained; err != nil {
		t.Error(err)
	}
}

// A ZoneIngress serves all meshes, also later ones, and belongs to none.
func TestAZoneIngressServesEveryMesh(t *testing.T) {
	hub, _, _ := newHub(t, never{})
	other := kind.MeshServices.Make("other", "db", kind.MeshService{
		Selector: kind.ServiceSelector{DataplaneTags: map[string]string{kind.ServiceTag: "db"}},
		Ports:    []kind.ServicePort{{Port: 5432, SNIs: []kind.SNI{{Value: "a.db.5432.other.ms"}}}},
	})
	put(hub, kind.Meshes.Make("", mesh, kind.Mesh{}), withSNI("a.web.8080.default.ms"), other,
		kind.ZoneIngresses.Make("", "old",
			kind.ZoneIngress{Networking: kind.ZoneIngressNetworking{Address: "10.0.0.1", Port: 10001}}))
	key := state.ZoneIngressProxy("old")
	t.Cleanup(hub.Proxies.Watch(key, func(*proxy.Proxy) {}))
	if got := namesOf(hub, key, xds.Cluster); !slices.Equal(got, []string{"a.web.8080.default.ms"}) {
		t.Errorf("forwards %v", got)
	}
	put(hub, kind.Meshes.Make("", "other", kind.Mesh{}))
	want := []string{"a.db.5432.other.ms", "a.web.8080.default.ms"}
	if got := namesOf(hub, key, xds.Cluster); !slices.Equal(got, want) {
		t.Errorf("with a second mesh it forwards %v, want %v", got, want)
	}
	if got := namesOf(hub, key, xds.Endpoint); !slices.Equal(got, want) {
		t.Errorf("its assignments are %v, want %v", got, want)
	}
	hub.Apply(removal(kind.Meshes.Key("", mesh)))
	if got := namesOf(hub, key, xds.Cluster); !slices.Equal(got, want[:1]) {
		t.Errorf("with one mesh less it forwards %v", got)
	}
}

// A service is deleted while its servers stay, or its port is removed from its servers too. Other zones send requests
// there until they have removed it.
func TestARemovedPortIsForwardedUntilOtherZonesHaveRemovedIt(t *testing.T) {
	const sni = "a.web.8080.default.ms"
	for name, change := range map[string]func(*Hub){
		"the service is deleted": func(hub *Hub) { hub.Apply(removal(kind.MeshServices.Key(mesh, "web"))) },
		"it has another name":    func(hub *Hub) { put(hub, withSNI("b.web.8080.default.ms")) },
		"the inbound goes with it": func(hub *Hub) {
			b := removal(kind.MeshServices.Key(mesh, "web"))
			b.Put = []resource.Any{server("one", "10.0.0.5", "web", 8081)}
			hub.Apply(b)
		},
	} {
		t.Run(name, func(t *testing.T) {
			hub, _, _ := newHub(t, never{})
			put(hub, zoneIngressOf("ingress", "10.0.0.1"), withSNI(sni), server("one", "10.0.0.5", "web", 8080),
				servingTLS("one", "10.0.0.5", 8080))
			key := watched(t, hub, "ingress")
			change(hub)
			if got := backendsOf(t, hub, key, sni); !strings.Contains(got, "10.0.0.5") {
				t.Errorf("behind the server name is %s", got)
			}
			if listeners := portsOf(proxyOf(hub, "one")); !slices.Contains(listeners, 8080) {
				t.Errorf("the server listens at %v", listeners)
			}
			if hub.Drains.Open() > 0 {
				t.Error("its listener waits for the clients of its own zone alone")
			}
			hub.Apply(removal(kind.RetainedSNIRoutes.Key(mesh, "web-8080")))
			if got := namesOf(hub, key, xds.Cluster); slices.Contains(got, sni) {
				t.Errorf("other zones have heard of it, and the ingress has %v", got)
			}
		})
	}
}

// A service without servers has no request to lose.
func TestNoSNIRouteIsRetainedForAServiceWithoutServers(t *testing.T) {
	hub, _, _ := newHub(t, never{})
	put(hub, zoneIngressOf("ingress", "10.0.0.1"), withSNI("a.web.8080.default.ms"))
	key := watched(t, hub, "ingress")
	hub.Apply(removal(kind.MeshServices.Key(mesh, "web")))
	if got := namesOf(hub, key, xds.Cluster); len(got) > 0 {
		t.Errorf("the ingress has %v", got)
	}
}

// A member that leaves a service of many zones is retained under its server name too.
func TestAServiceOfManyZonesKeepsAMemberThatGoes(t *testing.T) {
	const sni = "a.all.8080.default.mzms"
	hub, _, _ := newHub(t, never{})
	member := withSNI("a.web.8080.default.ms")
	put(hub, zoneIngressOf("ingress", "10.0.0.1"), member, server("one", "10.0.0.5", "web", 8080),
		servingTLS("one", "10.0.0.5", 8080),
		kind.MeshMultiZoneServices.Make(mesh, "all", kind.MeshMultiZoneService{
			Selector: kind.MultiZoneSelector{MeshService: &kind.LabelSelector{MatchLabels: map[string]string{}}},
			Ports:    []kind.ServicePort{{Port: 8080, AppProtocol: kind.TCP, SNIs: []kind.SNI{{Value: sni}}}},
		}))
	key := watched(t, hub, "ingress")
	if got := backendsOf(t, hub, key, sni); !strings.Contains(got, "10.0.0.5") {
		t.Fatalf("behind the server name is %s", got)
	}
	hub.Apply(removal(member.Key()))
	if got := backendsOf(t, hub, key, sni); !strings.Contains(got, "10.0.0.5") {
		t.Errorf("once the member has gone: %s", got)
	}
	hub.Apply(removal(kind.RetainedSNIRoutes.Key(mesh, "web-8080")))
	if got := backendsOf(t, hub, key, sni); strings.Contains(got, "10.0.0.5") {
		t.Errorf("other zones have heard of it, and behind the server name is %s", got)
	}
}

// The SNI route of a deleted service of many zones is retained as any other.
func TestADeletedServiceOfManyZonesIsForwardedForAWhile(t *testing.T) {
	const sni = "a.all.8080.default.mzms"
	hub, _, _ := newHub(t, never{})
	all := kind.MeshMultiZoneServices.Make(mesh, "all", kind.MeshMultiZoneService{
		Selector: kind.MultiZoneSelector{MeshService: &kind.LabelSelector{MatchLabels: map[string]string{}}},
		Ports:    []kind.ServicePort{{Port: 8080, AppProtocol: kind.TCP, SNIs: []kind.SNI{{Value: sni}}}},
	})
	put(hub, zoneIngressOf("ingress", "10.0.0.1"), withSNI("a.web.8080.default.ms"),
		server("one", "10.0.0.5", "web", 8080), servingTLS("one", "10.0.0.5", 8080), all)
	key := watched(t, hub, "ingress")
	hub.Apply(removal(all.Key()))
	if got := backendsOf(t, hub, key, sni); !strings.Contains(got, "10.0.0.5") {
		t.Errorf("once the service has gone: %s", got)
	}
	hub.Apply(removal(kind.RetainedSNIRoutes.Key(mesh, "all-8080.mzms")))
	if got := namesOf(hub, key, xds.Cluster); slices.Contains(got, sni) {
		t.Errorf("its time is over, and the ingress has %v", got)
	}
}

// backendsOf returns the assignment of a server name in a proxy's resource sets.
func backendsOf(t *testing.T, hub *Hub, key state.ProxyKey, sni string) string {
	t.Helper()
	for _, f := range hub.Proxies.setsOf(hub.Proxies.used[key]) {
		for _, r := range f.Resources() {
			if r.Type != xds.Endpoint || r.Name != sni {
				continue
			}
			message, err := r.Message()
			if err != nil {
				t.Fatal(err)
			}
			return fmt.Sprint(message)
		}
	}
	t.Fatalf("%s has no assignment of %s", key, sni)
	return ""
}

func proxyOf(hub *Hub, name string) *proxy.Proxy {
	proxy, _ := hub.Rows.Proxy(state.ProxyKey{Mesh: mesh, Name: name})
	return proxy
}

// Without an ingress no cross-zone request arrives, so changes are sent to other zones at once.
func TestNewsWaitForNoIngressWhereThereIsNone(t *testing.T) {
	hub, _, _ := newHub(t, never{})
	hub.callbacks.Version = func(context.Context, resource.Key) (string, error) { return "", nil }
	put(hub, withSNI("a.web.8080.default.ms"), zoneIngressOf("ingress", "10.0.0.1"))
	if err := hub.Acks.AwaitIngresses(t.Context(), mesh, kind.MeshServices.Key(mesh, "web")); err != nil {
		t.Error(err)
	}
}
