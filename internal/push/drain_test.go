package push

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weft/internal/bubble"
	"weft/internal/proxy"
	"weft/internal/state"
	"weft/kind"
	"weft/resource"
)

// onePort returns a Dataplane "blue" whose inbounds share port 8080; inbounds has their names, and whether each has a
// listener.
func onePort(inbounds map[string]bool) resource.Any {
	n := kind.Networking{Address: "10.0.0.1"}
	for _, name := range []string{"web", "web-preview"} {
		in := kind.Inbound{Port: 8080, Name: name, State: kind.Ignored, Tags: map[string]string{kind.ServiceTag: name}}
		if inbounds[name] {
			in.State = kind.Ready
		}
		n.Inbound = append(n.Inbound, in)
	}
	return kind.Dataplanes.Make(mesh, "blue", kind.Dataplane{Networking: n})
}

// servesOnePort returns the listener status of "blue" with some of its inbounds.
func servesOnePort(names ...string) resource.Any {
	row := kind.DataplaneListenerStatus{Run: "run-1"}
	for _, name := range names {
		row.Inbounds = append(row.Inbounds, kind.ServedInbound{Inbound: kind.Inbound{
			Address: "10.0.0.1", Port: 8080, Name: name, Protocol: kind.TCP, ServiceAddress: "127.0.0.1",
			ServicePort: 8080,
		}})
	}
	return kind.DataplaneListenerStatuses.Make(mesh, "blue", row)
}

// The agent of an inbound that is wanted again in the moment in which its drain ends reports it only after its session
// is notified: the listeners of the proxy are the same before and after.
func TestASessionHearsThatADrainedInboundLeftTheListenerStatus(t *testing.T) {
	hub, _, _ := newHub(t, never{})
	put(hub, onePort(map[string]bool{"web": true}), servesOnePort("web"))
	put(hub, onePort(map[string]bool{"web-preview": true}))
	put(hub, servesOnePort("web", "web-preview")) // web drains
	told := 0
	blue := state.ProxyKey{Mesh: mesh, Name: "blue"}
	t.Cleanup(hub.Proxies.Watch(blue, func(*proxy.Proxy) { told++ }))
	put(hub, onePort(map[string]bool{"web": true})) // wanted again, while
	told = 0
	put(hub, servesOnePort("web-preview")) // its drain ends
	if told == 0 {
		t.Error("web is wanted and not in the listener status, and the session of its agent does not look again")
	}
	serving, _ := hub.Rows.ListenerStatus(blue)
	told = 0
	put(hub, servesOnePort("web-preview", "web"))
	if told > 0 {
		t.Errorf("the session looks again, though nothing is missing in %v", serving.Spec.Inbounds)
	}
}

// callerOf returns a permission of one caller for the inbounds of a section.
func callerOf(section string) resource.Any {
	return kind.MeshTrafficPermissions.Make(mesh, "of-"+section, kind.MeshTrafficPermission{
		TargetRef: &kind.TargetRef{Kind: "Dataplane", SectionName: section},
		Rules: []kind.PermissionRule{{Default: kind.PermissionDefault{
			Allow: []kind.CallerMatch{{SpiffeID: &kind.IDMatch{Type: "Exact",
				Value: "spiffe://mesh.local/of-" + section}}},
		}}},
	})
}

// allowed returns the SPIFFE IDs that the one listener of "blue" allows.
func allowed(t *testing.T, hub *Hub) []string {
	t.Helper()
	proxy, _ := hub.Rows.Proxy(state.ProxyKey{Mesh: mesh, Name: "blue"})
	if len(proxy.Listeners) != 1 {
		t.Fatalf("it has %d listeners", len(proxy.Listeners))
	}
	var ids []string
	for _, rule := range proxy.Listeners[0].Permissions.Allow {
		ids = append(ids, strings.TrimPrefix(rule.Exact, "spiffe://mesh.local/"))
	}
	slices.Sort(ids)
	return ids
}

// A client's proxy may have sent a request just before it acked that the inbound is no endpoint any more. The request
// arrives while the inbound still has its listener and permissions: for the drain time, counted from the last ack.
func TestADrainedInboundKeepsItsPermissionsForTheDrainTime(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		acked := make(onDemand)
		hub, _, gone := newHub(t, acked)
		hub.callbacks.DrainTime = 5 * time.Second
		put(hub, kind.MeshIdentities.Make(mesh, "identity", kind.MeshIdentity{
			Selector: &kind.IdentitySelector{Dataplane: &kind.LabelSelector{MatchLabels: map[string]string{}}},
			Provider: kind.IdentityProvider{Type: "Bundled"},
		}), callerOf("web"), callerOf("web-preview"), onePort(map[string]bool{"web": true}), servesOnePort("web"))
		put(hub, onePort(map[string]bool{"web-preview": true}), servesOnePort("web", "web-preview"))
		time.Sleep(10 * time.Second) // of the clients' own, before the last one acks
		acked <- struct{}{}
		time.Sleep(5*time.Second - time.Millisecond)
		synctest.Wait()
		select {
		case early := <-gone:
			t.Fatalf("%v left before the drain time was over", early.listeners)
		default:
		}
		if got := allowed(t, hub); !slices.Equal(got, []string{"of-web", "of-web-preview"}) {
			t.Errorf("within the drain time it allows %v", got)
		}
		hub.Apply(removal(kind.MeshTrafficPermissions.Key(mesh, "of-web")))
		if got := allowed(t, hub); !slices.Equal(got, []string{"of-web-preview"}) {
			t.Errorf("a permission was revoked within the drain time, and it allows %v", got)
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		select {
		case got := <-gone:
			if !slices.Equal(got.listeners, []string{"10.0.0.1:8080/web"}) {
				t.Errorf("%v left", got.listeners)
			}
		default:
			t.Error("the drain time is over, and the inbound stays")
		}
	})
}

// moving returns the inbound "http" of the Dataplane "blue" at an address, and its listener status at several.
func moving(address string, served ...string) []resource.Any {
	row := kind.DataplaneListenerStatus{Run: "run-1"}
	for _, s := range served {
		row.Inbounds = append(row.Inbounds, kind.ServedInbound{Inbound: kind.Inbound{
			Address: s, Port: 8080, Name: "http", Protocol: kind.TCP, ServiceAddress: "127.0.0.1", ServicePort: 8080,
			Tags: map[string]string{kind.ServiceTag: "blue"},
		}})
	}
	return []resource.Any{
		kind.Dataplanes.Make(mesh, "blue", kind.Dataplane{Networking: kind.Networking{
			Address: address,
			Inbound: []kind.Inbound{{Port: 8080, Name: "http", Tags: map[string]string{kind.ServiceTag: "blue"}}},
		}}),
		kind.DataplaneListenerStatuses.Make(mesh, "blue", row),
	}
}

// A client is sent a moved endpoint once: in the commit in which the inbound serves at its new address, the former one
// is removed. Until then the former one is used, and stays. A removal of the endpoint by its owner acts at once.
func TestAMovedEndpointIsOnePush(t *testing.T) {
	hub, _, gone := newHub(t, atOnce{})
	put(hub, append(moving("10.0.0.1", "10.0.0.1"), web("blue"), server("other", "10.0.0.3", "blue", 8080),
		serving("other", "10.0.0.3", 8080))...)
	pushes, last := 0, endpoints(t, hub)
	look := func() string {
		now := endpoints(t, hub)
		if now != last {
			pushes, last = pushes+1, now
		}
		return now
	}
	put(hub, moving("10.0.0.5", "10.0.0.1")[:1]...)
	if got := look(); !strings.Contains(got, "10.0.0.1") || pushes > 0 {
		t.Errorf("it serves at its former address alone, and the list is %s", got)
	}
	if hub.Drains.Open() > 0 {
		t.Error("its former listener is draining, and nothing serves in its place")
	}
	put(hub, moving("10.0.0.5", "10.0.0.1", "10.0.0.5")[1:]...)
	if got := look(); strings.Contains(got, "10.0.0.1") || !strings.Contains(got, "10.0.0.5") || pushes != 1 {
		t.Fatalf("it serves at its new address, and after %d pushes the list is %s", pushes, got)
	}
	if got := <-gone; !slices.Equal(got.listeners, []string{"10.0.0.1:8080"}) {
		t.Errorf("%v left the listener status", got.listeners)
	}
	put(hub, moving("10.0.0.5", "10.0.0.5")...)
	put(hub, web("green"), server("another", "10.0.0.4", "green", 8080), serving("another", "10.0.0.4", 8080))
	green := moving("10.0.0.6")[0].(*resource.Object[kind.Dataplane])
	green.Spec.Networking.Inbound[0].Tags = map[string]string{kind.ServiceTag: "green"}
	put(hub, green)
	if got := look(); strings.Contains(got, "10.0.0.5") {
		t.Errorf("an inbound of another service took its place, and the list is %s", got)
	}
	put(hub, append(moving("10.0.0.5", "10.0.0.5"), web("blue"))...)
	look()
	notReady := moving("10.0.0.6", "10.0.0.5")[0].(*resource.Object[kind.Dataplane])
	notReady.Spec.Networking.Inbound[0].State = kind.NotReady
	put(hub, notReady)
	if got := look(); strings.Contains(got, "10.0.0.5") {
		t.Errorf("its owner has taken it out while it moves, and the list is %s", got)
	}
}
