package push

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"weft/internal/service"
	"weft/internal/state"
	"weft/internal/wire"
	"weft/kind"
	"weft/resource"
)

// anyNames draws a few names of a small world, so that they often meet.
var anyNames = rapid.Custom(func(t *rapid.T) *HostNames {
	var hosts []service.Host
	for _, name := range []string{"a.mesh.local", "b.mesh.local", "c.mesh.local", "d.mesh.local"} {
		if rapid.Bool().Draw(t, name) {
			host := service.Host{Name: name}
			for range rapid.IntRange(0, 2).Draw(t, "addresses") {
				host.Addresses = append(host.Addresses,
					netip.AddrFrom4([4]byte{241, 0, 0, rapid.Byte().Draw(t, "address") % 3}))
			}
			hosts = append(hosts, host)
		}
	}
	return newNames(hosts)
})

// applyUpdate applies an update as an agent does.
func applyUpdate(t *rapid.T, knows map[string]string, u *HostNamesUpdate) (version string) {
	update := &wire.HostNamesUpdate{}
	if err := proto.Unmarshal(u.Wire(), update); err != nil {
		t.Fatal(err)
	}
	if update.Complete {
		clear(knows)
	}
	for _, name := range update.Removed {
		delete(knows, name)
	}
	for _, host := range update.Changed {
		knows[host.Name] = string(slices.Concat(host.Addresses...))
	}
	return update.Version
}

func TestAnAgentThatHearsSomeOfTheUpdatesKnowsTheLastNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		knows, want := map[string]string{}, map[string]string{}
		var told, last *HostNames
		for _, names := range rapid.SliceOfN(anyNames, 1, 6).Draw(t, "names") {
			last = names
			if rapid.Bool().Draw(t, "slow") {
				continue
			}
			applyUpdate(t, knows, names.UpdateSince(told))
			told = names
		}
		if told != last {
			applyUpdate(t, knows, last.UpdateSince(told))
		}
		if version := applyUpdate(t, want, last.UpdateSince(nil)); version != last.Version {
			t.Errorf("the update is of version %s, want %s", version, last.Version)
		}
		if len(knows) != len(want) {
			t.Errorf("the agent knows %v, want %v", knows, want)
		}
		for name, addresses := range want {
			if knows[name] != addresses {
				t.Errorf("the agent knows %q of %s, want %q", knows[name], name, addresses)
			}
		}
	})
}

func TestEqualNamesHaveEqualVersionsAndNoOthers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := anyNames.Draw(t, "a"), anyNames.Draw(t, "b")
		same := slices.EqualFunc(a.hosts, b.hosts, func(a, b service.Host) bool {
			return a.Name == b.Name && slices.Equal(a.Addresses, b.Addresses)
		})
		if (a.Version == b.Version) != same {
			t.Errorf("%v and %v have versions %s and %s", a.hosts, b.hosts, a.Version, b.Version)
		}
	})
}

// statusWithHost returns the status of a service with a name and an address.
func statusWithHost(service, host, ip string) resource.Any {
	return kind.MeshServiceStatuses.Make(mesh, service, kind.MeshServiceStatus{
		VIPs: []kind.VIP{{IP: ip}}, Addresses: []kind.Address{{Hostname: host}},
	})
}

func TestAProxyHearsTheNamesOfWhatItReaches(t *testing.T) {
	hub, _, _ := newHub(t, never{})
	put(hub, web("web"), statusWithHost("web", "web.mesh.local", "241.0.0.1"),
		statusWithHost("gone", "gone.mesh.local", "241.0.0.9"))
	put(hub, kind.Dataplanes.Make(mesh, "plain", kind.Dataplane{Networking: kind.Networking{Address: "10.0.0.8"}}))
	heard := map[string][]*HostNames{}
	for _, name := range []string{"client", "plain", "missing"} {
		t.Cleanup(hub.Proxies.WatchHostNames(state.ProxyKey{Mesh: mesh, Name: name}, func(n *HostNames) {
			heard[name] = append(heard[name], n)
		}))
	}
	if first := heard["client"][0].hosts; len(first) != 1 || first[0].Name != "web.mesh.local" ||
		first[0].Addresses[0].String() != "241.0.0.1" {
		t.Errorf("the client hears %v, want web.mesh.local at 241.0.0.1", first)
	}
	if first := heard["plain"][0].hosts; len(first) != 0 {
		t.Errorf("a proxy that reaches no virtual IP hears %v", first)
	}
	if heard["missing"][0] != nil {
		t.Error("a proxy that is not there has names")
	}
	put(hub, kind.Dataplanes.Make(mesh, "server", kind.Dataplane{Networking: kind.Networking{Address: "10.0.0.7"}}))
	put(hub, statusWithHost("web", "web.mesh.local", "241.0.0.2"))
	if n := len(heard["client"]); n != 2 || heard["client"][1].hosts[0].Addresses[0].String() != "241.0.0.2" {
		t.Errorf("after one change of the name it has heard %d times, want twice", n)
	}
	if n := len(heard["plain"]); n != 1 {
		t.Errorf("a proxy whose names have not changed has heard %d times, want once", n)
	}
	put(hub, kind.Dataplanes.Make(mesh, "client", kind.Dataplane{Networking: kind.Networking{Address: "10.0.0.9"}}))
	if last := heard["client"][len(heard["client"])-1]; len(last.hosts) != 0 {
		t.Errorf("a proxy that is transparent no more hears %v", last.hosts)
	}
}

// A name has A records, and AAAA records where the machine has no IPv4 and its redirection covers IPv6.
func TestNamesHaveTheFamilyThatTheMachineDials(t *testing.T) {
	hub, _, _ := newHub(t, never{})
	put(hub, web("web"), kind.MeshServiceStatuses.Make(mesh, "web", kind.MeshServiceStatus{
		VIPs:      []kind.VIP{{IP: "241.0.0.1"}, {IP: "fd00:fd00::f100:1"}},
		Addresses: []kind.Address{{Hostname: "web.mesh.local"}},
	}))
	var heard *HostNames
	t.Cleanup(hub.Proxies.WatchHostNames(state.ProxyKey{Mesh: mesh, Name: "client"}, func(n *HostNames) { heard = n }))
	for _, c := range []struct {
		redirected string
		machine    kind.IPFamilies
		want       string
	}{
		{"DualStack", "", "[241.0.0.1]"}, // an agent of an older release
		{"DualStack", kind.DualStack, "[241.0.0.1]"},
		{"DualStack", kind.IPv4, "[241.0.0.1]"},
		{"DualStack", kind.IPv6, "[fd00:fd00::f100:1]"},
		{"IPv4", kind.DualStack, "[241.0.0.1]"},
		{"IPv4", kind.IPv6, "[]"},
		{"IPv6", kind.DualStack, "[fd00:fd00::f100:1]"},
		{"IPv6", kind.IPv6, "[fd00:fd00::f100:1]"},
	} {
		put(hub,
			kind.Dataplanes.Make(mesh, "client", kind.Dataplane{Networking: kind.Networking{Address: "10.0.0.9",
				TransparentProxying: &kind.TransparentProxying{IPFamilyMode: c.redirected}}}),
			kind.DataplaneListenerStatuses.Make(mesh, "client", kind.DataplaneListenerStatus{IPFamilies: c.machine}))
		if heard == nil || len(heard.hosts) != 1 || fmt.Sprint(heard.hosts[0].Addresses) != c.want {
			t.Errorf("%s of a machine with %q hears %v, want %s", c.redirected, c.machine, heard, c.want)
		}
	}
}
