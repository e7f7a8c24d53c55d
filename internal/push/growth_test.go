package push

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weft/internal/bubble"
	"weft/internal/proxy"
	"weft/internal/state"
	"weft/internal/xds"
	"weft/kind"
	"weft/resource"
)

// acks is an AckWaiter whose clients ack when the test sends.
type acks chan struct{}

// halfAcked makes a hub wait for these acks between additions.
func halfAcked(hub *Hub) acks {
	a := make(acks)
	hub.mu.Lock()
	defer hub.mu.Unlock()
	hub.callbacks.HalfAcked = func(ctx context.Context, _ uint64, _ func()) error {
		select {
		case <-a:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return a
}

// instance is the n-th instance of a service, ready.
func instance(service string, n int) []resource.Any {
	name, address := fmt.Sprintf("%s-%d", service, n), fmt.Sprintf("10.1.%d.%d", len(service), n)
	return []resource.Any{server(name, address, service, 8080), serving(name, address, 8080)}
}

// count returns the number of endpoints of the service web that the client has been sent.
func count(t *testing.T, hub *Hub) int {
	t.Helper()
	hub.mu.Lock()
	defer hub.mu.Unlock()
	return strings.Count(endpoints(t, hub), "10.1.3.")
}

// knows reports whether the client has been sent a cluster of a service.
func knows(hub *Hub, service string) bool {
	return slices.ContainsFunc(clientHas(hub), func(r *xds.Resource) bool {
		return r.Type == xds.Cluster && strings.Contains(r.Name, service)
	})
}

var clientKey = state.ProxyKey{Mesh: mesh, Name: "client"}

// clientHas returns the resources that the client has been sent, sorted.
func clientHas(hub *Hub) []*xds.Resource {
	hub.mu.Lock()
	defer hub.mu.Unlock()
	var all []*xds.Resource
	for _, f := range hub.Proxies.setsOf(hub.Proxies.used[clientKey]) {
		all = append(all, f.Resources()...)
	}
	return inOrder(all)
}

func growing(t *testing.T, test func(hub *Hub, acks acks)) {
	bubble.Test(t, func(t *testing.T) {
		hub, _, _ := newHub(t, never{})
		put(hub, web("web"))
		acks := halfAcked(hub)
		put(hub, instance("web", 1)...)
		if got := count(t, hub); got != 1 {
			t.Fatalf("the first addition is not published at once: %d endpoints", got)
		}
		test(hub, acks)
	})
}

func TestAdditionsAreMergedUntilHalfOfTheStreamsHaveAcked(t *testing.T) {
	growing(t, func(hub *Hub, acks acks) {
		revision := hub.catalog.Revision()
		for n := 2; n < 20; n++ {
			put(hub, instance("web", n)...)
		}
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		if got := count(t, hub); got != 1 {
			t.Errorf("%d endpoints are published before the first one is acked", got)
		}
		acks <- struct{}{}
		const last = 20 + pauseFactor // a further instance every 9 ms: it never rests for as long as the acks took
		for n := 20; n <= last; n++ {
			time.Sleep(9 * time.Millisecond)
			synctest.Wait()
			if got := count(t, hub); got != 1 {
				t.Fatalf("%d endpoints are published without a pause", got)
			}
			put(hub, instance("web", n)...)
		}
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		if got := count(t, hub); got != last {
			t.Errorf("%d endpoints are published after the pause, want %d", got, last)
		}
		if got := hub.catalog.Revision() - revision; got != 1 {
			t.Errorf("%d additions took %d revisions, want 1", last-1, got)
		}
		acks <- struct{}{}
		time.Sleep(time.Minute)
		synctest.Wait()
		put(hub, instance("web", last+1)...)
		if got := count(t, hub); got != last+1 {
			t.Errorf("a single addition after the burst is not published at once: %d endpoints", got)
		}
	})
}

func TestAwaitAdditions(t *testing.T) {
	growing(t, func(hub *Hub, acks acks) {
		if hub.Additions.Await(context.Background()) {
			t.Error("AwaitAdditions waited, and a round without additions is under way")
		}
		var returned, waited bool
		await := func(ctx context.Context) {
			returned = false
			waited, returned = hub.Additions.Await(ctx), true
		}
		for _, addition := range [][]resource.Any{instance("web", 2), added()} {
			put(hub, addition...)
			go await(context.Background())
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			if returned {
				t.Error("AwaitAdditions returned while an addition waits")
			}
			acks <- struct{}{}
			time.Sleep(100 * time.Millisecond) // the pause
			synctest.Wait()
			if !returned || !waited {
				t.Errorf("the addition is published: returned %t after it waited %t", returned, waited)
			}
		}
		put(hub, instance("web", 3)...)
		ctx, cancel := context.WithCancel(context.Background())
		go await(ctx)
		cancel()
		synctest.Wait()
		if !returned {
			t.Error("AwaitAdditions has not returned with its context")
		}
	})
}

func TestAPauseEndsWhenNothingIsAddedForAsLongAsTheAcksTook(t *testing.T) {
	growing(t, func(hub *Hub, acks acks) {
		put(hub, instance("web", 2)...)
		time.Sleep(100 * time.Millisecond)
		acks <- struct{}{}
		time.Sleep(99 * time.Millisecond)
		synctest.Wait()
		if got := count(t, hub); got != 1 {
			t.Errorf("%d endpoints are published without a pause", got)
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if got := count(t, hub); got != 2 {
			t.Errorf("nothing was added for as long as the acks took, and %d endpoints are published, want 2", got)
		}
	})
}

// While proxies connect, each push repeats the assignments to those that are connected already.
func TestAPauseLastsWhileTheNumberOfProxiesGrows(t *testing.T) {
	growing(t, func(hub *Hub, acks acks) {
		connect := func(name string) {
			hub.Proxies.Watch(state.ProxyKey{Mesh: mesh, Name: name}, func(*proxy.Proxy) {})
		}
		time.Sleep(10 * time.Millisecond)
		acks <- struct{}{}
		n := 2
		addFor := func(pauses int) { // a further instance every 9 ms: it never rests for as long as the acks took
			for until := time.Now().Add(time.Duration(pauses) * pauseFactor * 10 * time.Millisecond); time.Now().Before(
				until); n++ {
				put(hub, instance("web", n)...)
				time.Sleep(9 * time.Millisecond)
				synctest.Wait()
			}
		}
		for pause := range 3 {
			for i := range 1 << pause {
				connect(fmt.Sprintf("proxy-%d-%d", pause, i))
			}
			addFor(1)
			if got := count(t, hub); got != 1 {
				t.Fatalf("%d endpoints are published while proxies connect", got)
			}
		}
		addFor(1)
		if got := count(t, hub); got == 1 {
			t.Error("no addition is published although no further proxy connects")
		}
	})
}

func TestStreamsThatDoNotAckDelayAdditionsForABoundedTime(t *testing.T) {
	growing(t, func(hub *Hub, _ acks) {
		put(hub, instance("web", 2)...)
		time.Sleep(longestSilence)
		synctest.Wait()
		if got := count(t, hub); got != 2 {
			t.Errorf("no client acks, and %d endpoints are published, want 2", got)
		}
	})
}

func TestARemovalDoesNotWaitForAdditions(t *testing.T) {
	growing(t, func(hub *Hub, _ acks) {
		put(hub, instance("web", 2)...)
		put(hub, instance("web", 3)...)
		hub.Apply(removal(kind.DataplaneListenerStatuses.Key(mesh, "web-1")))
		got := endpoints(t, hub)
		if strings.Contains(got, "10.1.3.1\"") || !strings.Contains(got, "10.1.3.2") ||
			!strings.Contains(got, "10.1.3.3") {
			t.Errorf("web-1 is gone, web-2 and web-3 are ready, and the client has %s", got)
		}
	})
}

func TestANewServiceWaitsAndAChangedOneDoesNot(t *testing.T) {
	growing(t, func(hub *Hub, _ acks) {
		put(hub, added()...)
		if knows(hub, "added") {
			t.Error("a further service is published before the first addition is acked")
		}
		other := web("web").(*resource.Object[kind.MeshService])
		other.Spec.Ports[0].AppProtocol = kind.HTTP
		put(hub, other)
		if !knows(hub, "added") {
			t.Error("a changed service is published, and the one that was added to the same group is not")
		}
	})
}

func TestWhatWaitsIsPublishedWhenAProxyMovesToAnotherGroup(t *testing.T) {
	growing(t, func(hub *Hub, _ acks) {
		put(hub, instance("web", 2)...)
		put(hub, kind.Dataplanes.Make(mesh, "client", kind.Dataplane{Networking: kind.Networking{
			Address: "10.0.0.9",
			TransparentProxying: &kind.TransparentProxying{ReachableBackends: &kind.ReachableBackends{
				Refs: []kind.BackendRef{{Kind: kind.MeshServices.Name, Name: "web"}},
			}},
		}}))
		if got := count(t, hub); got != 2 {
			t.Errorf("the client changed its group and has %d endpoints, want 2", got)
		}
	})
}

// added returns a further service with a host name and an instance.
func added() []resource.Any {
	service := kind.MeshServices.Make(mesh, "added", kind.MeshService{
		Selector: kind.ServiceSelector{DataplaneTags: map[string]string{kind.ServiceTag: "added"}},
		Ports:    []kind.ServicePort{{Port: 8080}},
	})
	return append(instance("added", 1), service, statusWithHost("added", "added.mesh.local", "241.0.0.2"))
}

// No removal overtakes an earlier addition, or a rolling update would leave clients without an endpoint.
func TestAChangeIsPublishedWithAllThatWaits(t *testing.T) {
	for what, change := range map[string]func(hub *Hub){
		"an endpoint is removed": func(hub *Hub) {
			hub.Apply(removal(kind.DataplaneListenerStatuses.Key(mesh, "web-1")))
		},
		"a service is changed": func(hub *Hub) {
			changed := web("web").(*resource.Object[kind.MeshService])
			changed.Spec.Ports[0].AppProtocol = kind.HTTP
			put(hub, changed)
		},
		"a service is removed":   func(hub *Hub) { hub.Apply(removal(kind.MeshServices.Key(mesh, "other"))) },
		"a host name is removed": func(hub *Hub) { hub.Apply(removal(kind.MeshServiceStatuses.Key(mesh, "web"))) },
	} {
		t.Run(what, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				hub, _, _ := newHub(t, never{})
				other := web("other").(*resource.Object[kind.MeshService])
				other.Name = "other"
				put(hub, web("web"), other, statusWithHost("web", "web.mesh.local", "241.0.0.1"))
				put(hub, instance("web", 1)...)
				put(hub, instance("other", 1)...)
				halfAcked(hub)
				put(hub, instance("web", 2)...) // begins a round
				put(hub, instance("web", 3)...)
				put(hub, instance("other", 2)...)
				put(hub, added()...)
				told := ""
				defer hub.Proxies.WatchHostNames(clientKey, func(n *HostNames) { told = fmt.Sprint(n.hosts) })()
				if count(t, hub) != 2 || knows(hub, "added") || strings.Contains(told, "added") {
					t.Fatal("additions of a round do not wait")
				}
				revision := hub.catalog.Revision()
				change(hub)
				config, _ := hub.Inspector.Config(clientKey)
				if got := clientHas(hub); !sameResources(got, config) {
					changed, removed := difference(got, config)
					t.Errorf("%d resources still wait, and %d that are removed are published", len(changed),
						len(removed))
				}
				if !strings.Contains(told, "added.mesh.local") {
					t.Errorf("the client's agent has been sent the host names %s, without the added service's", told)
				}
				if got := hub.catalog.Revision() - revision; got > 1 {
					t.Errorf("the change and the additions took %d revisions, want 1", got)
				}
			})
		})
	}
}

func TestTheFirstEndpointOfAPublishedServiceDoesNotWait(t *testing.T) {
	growing(t, func(hub *Hub, _ acks) {
		hub.Apply(removal(kind.DataplaneListenerStatuses.Key(mesh, "web-1")))
		if got := count(t, hub); got != 0 {
			t.Fatalf("no instance is ready, and %d endpoints are published", got)
		}
		put(hub, instance("web", 2)...)
		if got := count(t, hub); got != 1 {
			t.Errorf("web had no endpoint, and its first one waits")
		}
	})
}

// Streams that are slow but ack one after another do not end a round.
func TestARoundLastsWhileStreamsAck(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		hub, _, _ := newHub(t, never{})
		put(hub, web("web"))
		hub.callbacks.HalfAcked = func(ctx context.Context, _ uint64, progress func()) error {
			for range 4 {
				select {
				case <-time.After(longestSilence - time.Millisecond):
					progress()
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			<-ctx.Done()
			return ctx.Err()
		}
		put(hub, instance("web", 1)...)
		put(hub, instance("web", 2)...)
		time.Sleep(5*longestSilence - 5*time.Millisecond)
		synctest.Wait()
		if got := count(t, hub); got != 1 {
			t.Errorf("streams still ack, and %d endpoints are published, want 1", got)
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if got := count(t, hub); got != 2 {
			t.Errorf("no stream has acked for %s, and %d endpoints are published, want 2", longestSilence, got)
		}
	})
}

// The groups of ZoneEgresses belong to no mesh: merging is for the proxies of a mesh, which connect all at once.
func TestAZoneEgressDoesNotWaitForAdditions(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		hub, _, _ := newHub(t, never{})
		put(hub,
			kind.ZoneEgresses.Make("", "ze",
				kind.ZoneEgress{Networking: kind.ZoneEgressNetworking{Address: "10.0.0.9", Port: 10002}}))
		put(hub, kind.Meshes.Make("", "default", kind.Mesh{}), everybody(),
			kind.MeshTrusts.Make("default", "identity", kind.MeshTrust{
				TrustDomain: "default.default.mesh.local",
				CABundles:   []kind.CABundle{{Type: "Pem", PEM: &kind.PEMBundle{Value: "root of default"}}},
			}), web("web"))
		key := state.ZoneEgressProxy("ze")
		t.Cleanup(hub.Proxies.Watch(key, func(*proxy.Proxy) {}))
		group, groups := hub.Proxies.used[key].own.Proxy.Group, hub.publisher.sets.groups
		halfAcked(hub)
		put(hub, instance("web", 1)...) // begins a round
		had := len(groups.open[group].set.Resources())
		put(hub, kind.Meshes.Make("", "shop", kind.Mesh{}))
		if got := len(groups.open[group].set.Resources()); got <= had || groups.open[group].late {
			t.Errorf("a mesh is added, and the ZoneEgress has %d resources that are shared, as before", got)
		}
	})
}
