package push

import (
	"bytes"
	"context"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weft/internal/bubble"
	"weft/internal/graph"
	"weft/internal/mirror"
	"weft/internal/proxy"
	"weft/internal/state"
	"weft/internal/xds"
	"weft/kind"
	"weft/resource"
)

// never is an AckWaiter whose clients never ack.
type never struct{}

func (never) WaitAcked(ctx context.Context, _ []*xds.Stream, _ uint64, _ func(xds.NACK) bool) (int, error) {
	<-ctx.Done()
	return 0, ctx.Err()
}

// onDemand is an AckWaiter whose clients ack when the test sends.
type onDemand chan struct{}

func (s onDemand) WaitAcked(ctx context.Context, _ []*xds.Stream, _ uint64, _ func(xds.NACK) bool) (int, error) {
	select {
	case <-s:
		return 0, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

type removedListeners struct {
	proxy     state.ProxyKey
	listeners []string
}

// alone has no other instance.
type alone struct{}

func (alone) OtherInstance([]kind.Subscription) string { return "" }

func (alone) WaitAcked(context.Context, kind.AckClients, []resource.Key, func(kind.PendingAcks)) (bool, error) {
	return false, nil
}

// newHub returns a hub with one attached client, "client", that reaches everything.
func newHub(t *testing.T, s AckWaiter) (hub *Hub, kept chan []*resource.Object[kind.RetainedEndpoints],
	gone chan removedListeners) {
	return newHubAmong(t, s, nil)
}

// newHubAmong is newHub with other zones.
func newHubAmong(t *testing.T, s AckWaiter, zones Zones) (hub *Hub,
	kept chan []*resource.Object[kind.RetainedEndpoints], gone chan removedListeners) {
	hub, kept, gone = newLonelyHub(t, s, zones)
	attachClient(t, hub)
	return hub, kept, gone
}

func attachClient(t *testing.T, hub *Hub) {
	put(hub, kind.Dataplanes.Make(mesh, "client", kind.Dataplane{Networking: kind.Networking{
		Address: "10.0.0.9", TransparentProxying: &kind.TransparentProxying{},
	}}))
	t.Cleanup(hub.Proxies.Watch(state.ProxyKey{Mesh: mesh, Name: "client"}, func(*proxy.Proxy) {}))
}

// newLonelyHub is newHubAmong without its client.
func newLonelyHub(t *testing.T, s AckWaiter, zones Zones) (hub *Hub,
	kept chan []*resource.Object[kind.RetainedEndpoints], gone chan removedListeners) {
	kept, gone = make(chan []*resource.Object[kind.RetainedEndpoints], 1), make(chan removedListeners, 1)
	hub = NewHub(graph.NewState("default"), xds.NewCatalog(), slog.New(slog.DiscardHandler))
	hub.Use(t.Context(), Callbacks{
		Waiter: s, Replicas: alone{}, Zones: zones,
		RemoveListeners: func(_ context.Context, key state.ProxyKey, listeners []string) error {
			gone <- removedListeners{key, listeners}
			return nil
		},
		RetainSNIRoutes: func(context.Context, []*resource.Object[kind.RetainedSNIRoute]) error { return nil },
		RetainExternalServices: func(context.Context, []*resource.Object[kind.RetainedExternalService]) error {
			return nil
		},
		KeepIngresses: func(context.Context, []*resource.Object[kind.ResolvedName]) error { return nil },
		Announce:      func(context.Context, []*resource.Object[kind.DataplaneCertificates]) error { return nil },
		Keep: func(_ context.Context, rows []*resource.Object[kind.RetainedEndpoints]) error {
			kept <- rows
			return nil
		},
	})
	runDrains(t, hub)
	return hub, kept, gone
}

// runDrains starts the drains of a hub before it returns.
func runDrains(t *testing.T, hub *Hub) {
	go hub.Drains.Run(t.Context())
	for {
		hub.mu.Lock()
		begun := hub.Drains.ctx != nil
		hub.mu.Unlock()
		if begun {
			return
		}
		runtime.Gosched()
	}
}

func removal(keys ...resource.Key) mirror.Batch { return mirror.Batch{Removed: keys} }

// put commits objects. An operator vouches for the Dataplanes.
func put(hub *Hub, objects ...resource.Any) {
	for _, o := range objects {
		if dp, ok := o.(*resource.Object[kind.Dataplane]); ok {
			kind.VouchOperator(nil, dp)
		}
	}
	hub.Apply(mirror.Batch{Put: objects})
}

func web(tag string) resource.Any {
	return kind.MeshServices.Make(mesh, "web", kind.MeshService{
		Selector: kind.ServiceSelector{DataplaneTags: map[string]string{kind.ServiceTag: tag}},
		Ports:    []kind.ServicePort{{Port: 8080}},
	})
}

func server(name, address, tag string, port uint32) resource.Any {
	return kind.Dataplanes.Make(mesh, name, kind.Dataplane{Networking: kind.Networking{
		Address: address, Inbound: []kind.Inbound{{Port: port, Tags: map[string]string{kind.ServiceTag: tag}}},
	}})
}

func serving(name, address string, port uint32) resource.Any {
	return kind.DataplaneListenerStatuses.Make(mesh, name, kind.DataplaneListenerStatus{
		Inbounds: []kind.ServedInbound{{Inbound: kind.Inbound{Address: address, Port: port, Name: "8080",
			Protocol: kind.TCP, ServiceAddress: "127.0.0.1", ServicePort: port}}},
	})
}

// endpoints returns the endpoints of the service web that the client's group is sent.
func endpoints(t *testing.T, hub *Hub) string {
	t.Helper()
	for _, f := range hub.Proxies.setsOf(hub.Proxies.used[state.ProxyKey{Mesh: mesh, Name: "client"}]) {
		for _, r := range f.Resources() {
			if r.Type == xds.Endpoint && strings.Contains(r.Name, "web") {
				message, err := r.Message()
				if err != nil {
					t.Fatal(err)
				}
				return message.(interface{ String() string }).String()
			}
		}
	}
	t.Fatal("the group of the client has no assignment of web")
	return ""
}

func TestAFlippedSelectorKeepsTheFormerEndpointsUntilTheNewOnesServe(t *testing.T) {
	hub, kept, _ := newHub(t, never{})
	put(hub, web("blue"), server("blue", "10.0.0.1", "blue", 8080), serving("blue", "10.0.0.1", 8080),
		server("green", "10.0.0.2", "green", 8080))
	put(hub, web("green"))
	if got := endpoints(t, hub); !strings.Contains(got, "10.0.0.1") {
		t.Errorf("the list was emptied: %s", got)
	}
	rows := <-kept
	if len(rows) != 1 || rows[0].Key() != kind.RetainedEndpointsList.Key(mesh, "web-8080") {
		t.Errorf("kept %v, want the row of the retained endpoints", rows)
	}
	put(hub, serving("green", "10.0.0.2", 8080))
	if got := endpoints(t, hub); !strings.Contains(got, "10.0.0.2") {
		t.Errorf("green serves, and the list is %s", got)
	}
	hub.Apply(mirror.Batch{Removed: []resource.Key{rows[0].Key()}})
	if got := endpoints(t, hub); strings.Contains(got, "10.0.0.1") {
		t.Errorf("no endpoint is retained any more, and the list is %s", got)
	}
}

// A Pod that its last Service selects no more has no inbound, so its Dataplane has no address to vouch for. An address
// that an agent stated without a voucher is not retained.
func TestAnEndpointThatLosesItsInboundsIsRetained(t *testing.T) {
	complete := kind.Meshes.Make("", mesh, kind.Mesh{})
	complete.Vouched.Complete = true
	without := func() *resource.Object[kind.Dataplane] {
		return kind.Dataplanes.Make(mesh, "blue", kind.Dataplane{Networking: kind.Networking{Address: "10.0.0.1"}})
	}
	for what, c := range map[string]struct {
		agent []string // facts that an agent wrote without a voucher
		want  bool
	}{
		"by the API server":      {nil, true},
		"an address of an agent": {[]string{kind.AddressFact("10.0.0.1")}, false},
		"many of an agent":       {[]string{kind.AddressFact("*")}, false},
		"another of an agent":    {[]string{kind.AddressFact("10.0.0.9")}, true},
	} {
		t.Run(what, func(t *testing.T) {
			hub, _, _ := newHub(t, never{})
			put(hub, complete, web("blue"), server("blue", "10.0.0.1", "blue", 8080), serving("blue", "10.0.0.1", 8080),
				server("green", "10.0.0.2", "green", 8080))
			if got := endpoints(t, hub); !strings.Contains(got, "10.0.0.1") {
				t.Fatalf("blue is no endpoint: %s", got)
			}
			blue := without()
			kind.VouchOperator(nil, blue)
			blue.Vouched.Agent = c.agent
			hub.Apply(mirror.Batch{Put: []resource.Any{blue}})
			if got := endpoints(t, hub); strings.Contains(got, "10.0.0.1") != c.want {
				t.Errorf("without an inbound, blue is an endpoint: want %t, have %s", c.want, got)
			}
		})
	}
}

// TestEndpointsThatLoseTheirInboundsOneByOne: where Dataplanes lose their inbounds one after the other, those that
// still drain when the list becomes empty are retained with the last one. An endpoint whose drain is over is not, nor
// one that its owner, its probe or its agent excludes, nor one that is of another service.
func TestEndpointsThatLoseTheirInboundsOneByOne(t *testing.T) {
	address := map[string]string{"a": "10.0.0.1", "b": "10.0.0.2", "c": "10.0.0.3"}
	removed := func(name string) resource.Any {
		return kind.Dataplanes.Make(mesh, name, kind.Dataplane{Networking: kind.Networking{Address: address[name]}})
	}
	changed := func(name string, change func(*kind.DataplaneListenerStatus)) resource.Any {
		o := serving(name, address[name], 8080).(*resource.Object[kind.DataplaneListenerStatus])
		change(&o.Spec)
		return o
	}
	for what, c := range map[string]struct {
		between []resource.Any // after the loss of a and before that of b
		want    string
	}{
		"nothing else": {nil, "a b c"},
		"a has drained": {[]resource.Any{changed("a", func(s *kind.DataplaneListenerStatus) { s.Inbounds = nil })},
			"b c"},
		"the probe of a fails": {[]resource.Any{changed("a", func(s *kind.DataplaneListenerStatus) {
			s.Inbounds[0].Unhealthy = true
		})}, "b c"},
		"the agent of a drains": {[]resource.Any{changed("a", func(s *kind.DataplaneListenerStatus) {
			s.Draining = true
		})}, "b c"},
		"a is of another service":         {[]resource.Any{server("a", "10.0.0.1", "other", 8080)}, "b c"},
		"a has no endpoint any more":      {[]resource.Any{server("a", "10.0.0.1", "other", 9090)}, "a b c"},
		"a is back, and goes as the last": {[]resource.Any{server("a", "10.0.0.1", "blue", 8080)}, "a b c"},
	} {
		t.Run(what, func(t *testing.T) {
			hub, _, _ := newHub(t, never{})
			hub.callbacks.DrainTime = time.Hour
			put(hub, web("blue"))
			for name, at := range address {
				put(hub, server(name, at, "blue", 8080), serving(name, at, 8080))
			}
			has := func() string {
				var names []string
				list := endpoints(t, hub)
				for _, name := range []string{"a", "b", "c"} {
					if strings.Contains(list, address[name]) {
						names = append(names, name)
					}
				}
				return strings.Join(names, " ")
			}
			put(hub, removed("a"))
			if got := has(); got != "b c" {
				t.Fatalf("a has no inbound, and the list is %s", got)
			}
			put(hub, c.between...)
			put(hub, removed("b"))
			put(hub, removed("c"))
			if strings.HasPrefix(what, "a is back") {
				if got := has(); got != "a" {
					t.Fatalf("a is back, and the list is %s", got)
				}
				put(hub, removed("a"))
			}
			if got := has(); got != c.want {
				t.Errorf("the list is %s, want %s", got, c.want)
			}
		})
	}
}

// TestRetainedEndpointsEndWithTheirRow: endpoints that were retained are not retained again when their row is removed
// and nothing else serves.
func TestRetainedEndpointsEndWithTheirRow(t *testing.T) {
	hub, kept, _ := newHub(t, never{})
	put(hub, web("blue"), server("blue", "10.0.0.1", "blue", 8080), serving("blue", "10.0.0.1", 8080))
	put(hub, web("green"))
	if got := endpoints(t, hub); !strings.Contains(got, "10.0.0.1") {
		t.Fatalf("the list was emptied: %s", got)
	}
	row := (<-kept)[0].Key()
	hub.Apply(mirror.Batch{Removed: []resource.Key{row}})
	if got := endpoints(t, hub); strings.Contains(got, "10.0.0.1") {
		t.Errorf("the row is removed, and the list is %s", got)
	}
}

func TestAListThatIsEmptiedBeforeItsClientsAreBackIsRetained(t *testing.T) {
	hub, _, _ := newLonelyHub(t, never{}, nil)
	put(hub, web("blue"), server("blue", "10.0.0.1", "blue", 8080), serving("blue", "10.0.0.1", 8080))
	put(hub, web("green"))
	attachClient(t, hub)
	if got := endpoints(t, hub); !strings.Contains(got, "10.0.0.1") {
		t.Errorf("blue serves, green does not yet, and the list is %s", got)
	}
	hub.Apply(removal(kind.MeshServices.Key(mesh, "web")))
	if len(hub.lists.followed) > 0 {
		t.Errorf("the lists of a service that is gone are followed: %v", hub.lists.followed)
	}
}

func TestAnEndpointThatItsOwnerRemovesIsRemovedAtOnce(t *testing.T) {
	hub, _, _ := newHub(t, never{})
	put(hub, web("blue"), server("blue", "10.0.0.1", "blue", 8080), serving("blue", "10.0.0.1", 8080))
	out := server("blue", "10.0.0.1", "blue", 8080).(*resource.Object[kind.Dataplane])
	out.Spec.Networking.Inbound[0].State = kind.NotReady
	put(hub, out)
	if got := endpoints(t, hub); strings.Contains(got, "10.0.0.1") {
		t.Errorf("the last endpoint is NotReady, and the list is %s", got)
	}
}

func TestAListenerIsRemovedOnceEveryClientHasAcked(t *testing.T) {
	acked := make(onDemand)
	hub, _, gone := newHub(t, acked)
	blue := state.ProxyKey{Mesh: mesh, Name: "blue"}
	put(hub, web("blue"), server("blue", "10.0.0.1", "blue", 8080), serving("blue", "10.0.0.1", 8080),
		server("other", "10.0.0.3", "blue", 8080), serving("other", "10.0.0.3", 8080))
	put(hub, server("blue", "10.0.0.1", "blue", 8081))
	if got := endpoints(t, hub); strings.Contains(got, "10.0.0.1") {
		t.Errorf("the inbound moved, and clients are still sent there: %s", got)
	}
	proxy, _ := hub.Rows.Proxy(blue)
	if ports := portsOf(proxy); !slices.Equal(ports, []uint32{8080, 8081}) {
		t.Errorf("listens on %v, want the old port beside the new one until clients have acked", ports)
	}
	acked <- struct{}{}
	if got := <-gone; got.proxy != blue || !slices.Equal(got.listeners, []string{"10.0.0.1:8080"}) {
		t.Errorf("removes %+v, want 10.0.0.1:8080 of blue", got)
	}
}

func TestADrainIsCountedByWhatEndedIt(t *testing.T) {
	for name, c := range map[string]struct {
		waiter func() AckWaiter
		acked  bool
		least  time.Duration
	}{
		"every client is past it": {func() AckWaiter { s := make(onDemand, 1); s <- struct{}{}; return s }, true, 0},
		"somebody never is":       {func() AckWaiter { return never{} }, false, Bound},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				hub, _, gone := newHub(t, c.waiter())
				counted := 0
				hub.callbacks.Drained = func(listeners int, after time.Duration, acked bool) {
					counted++
					if listeners != 1 || acked != c.acked || after < c.least || after > Bound+time.Second {
						t.Errorf("counted %d listeners after %s, acked: %t", listeners, after, acked)
					}
				}
				put(hub, web("blue"), server("blue", "10.0.0.1", "blue", 8080), serving("blue", "10.0.0.1", 8080),
					server("other", "10.0.0.3", "blue", 8080), serving("other", "10.0.0.3", 8080))
				put(hub, server("blue", "10.0.0.1", "blue", 8081))
				<-gone
				synctest.Wait()
				if counted != 1 {
					t.Errorf("counted %d times, want once", counted)
				}
			})
		})
	}
}

// listenerThatComesBack returns a hub where the proxy blue has moved its listener to another port and back, beside the
// proxy other. Each drain waits for acked.
func listenerThatComesBack(t *testing.T, acked onDemand) (*Hub, chan removedListeners) {
	t.Helper()
	hub, _, gone := newHub(t, acked)
	put(hub, web("blue"), server("blue", "10.0.0.1", "blue", 8080), serving("blue", "10.0.0.1", 8080),
		server("other", "10.0.0.3", "blue", 8080), serving("other", "10.0.0.3", 8080))
	put(hub, server("blue", "10.0.0.1", "blue", 8081))
	put(hub, server("blue", "10.0.0.1", "blue", 8080))
	return hub, gone
}

func TestAListenerThatComesBackIsNotDrained(t *testing.T) {
	acked := make(onDemand)
	hub, gone := listenerThatComesBack(t, acked)
	acked <- struct{}{}
	// A second drain shows that the first one has ended: they wait one after another.
	put(hub, server("other", "10.0.0.3", "blue", 8081))
	acked <- struct{}{}
	if got := <-gone; got.proxy.Name != "other" {
		t.Errorf("removes %+v, whose listener is wanted again", got)
	}
}

func TestAListenerThatGoesTwiceWaitsForTheSecondTime(t *testing.T) {
	acked := make(onDemand)
	hub, gone := listenerThatComesBack(t, acked)
	put(hub, server("blue", "10.0.0.1", "blue", 8081))
	acked <- struct{}{} // one of the two waits
	acked <- struct{}{}
	<-gone
	select {
	case again := <-gone:
		t.Errorf("removes %+v a second time", again)
	default:
	}
}

func portsOf(p *proxy.Proxy) []uint32 {
	var ports []uint32
	for _, l := range p.Listeners {
		ports = append(ports, l.Port)
	}
	return ports
}

// A change of SPIFFE IDs and permissions in one commit must not leave a moment in which a proxy is known by its new
// SPIFFE ID alone.
func TestANewNameIsTakenFromTheCommitThatGivesIt(t *testing.T) {
	hub, _, _ := newHub(t, never{})
	statusWithHost := func(path string) resource.Any {
		return kind.MeshIdentities.Make(mesh, "identity", kind.MeshIdentity{
			Selector: &kind.IdentitySelector{Dataplane: &kind.LabelSelector{MatchLabels: map[string]string{}}},
			SpiffeID: &kind.SpiffeIDTemplate{TrustDomain: "mesh.local", Path: path},
			Provider: kind.IdentityProvider{Type: "Bundled"},
		})
	}
	certificates :=
		kind.DataplaneCertificates{Certificates: []kind.WorkloadCertificate{{
			SpiffeIDs: kind.SpiffeIDsOf("spiffe://mesh.local/old"), MeshIdentity: "identity",
		}}}
	put(hub, statusWithHost("/old"), web("blue"), server("blue", "10.0.0.1", "blue", 8080),
		kind.DataplaneCertificatesList.Make(mesh, "blue", certificates))
	hub.state.Identity.NextIDs.Pin(state.ProxyKey{Mesh: mesh, Name: "blue"})
	put(hub, statusWithHost("/new"))
	for _, f := range hub.Proxies.setsOf(hub.Proxies.used[state.ProxyKey{Mesh: mesh, Name: "client"}]) {
		for _, r := range f.Resources() {
			if r.Type != xds.Cluster || !strings.Contains(r.Name, "web") {
				continue
			}
			for _, name := range []string{"spiffe://mesh.local/old", "spiffe://mesh.local/new"} {
				if !bytes.Contains(r.Wire, []byte(name)) {
					t.Errorf("the client does not take the server under %s", name)
				}
			}
			return
		}
	}
	t.Error("the client does not reach the service")
}
