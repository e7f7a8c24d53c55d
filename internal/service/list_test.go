package service_test

import (
	"fmt"
	"strings"
	"testing"

	"weft/internal/service"
	"weft/internal/zoneroute"
	"weft/kind"
)

// only selects some zones, and from limits an entry to the clients of a zone.
func only(zones ...string) kind.Failover {
	return kind.Failover{To: kind.ToZones{Type: kind.OnlyZones, Zones: zones}}
}

func from(zone string, f kind.Failover) kind.Failover {
	f.From = &kind.FromZones{Zones: []string{zone}}
	return f
}

// TestPrioritiesOfZones: each entry of a failover has a priority with the zones that no earlier entry has. Zones that
// no entry selects are left out.
func TestPrioritiesOfZones(t *testing.T) {
	anyZone := kind.Failover{To: kind.ToZones{Type: kind.AnyZone}}
	none := kind.Failover{To: kind.ToZones{Type: kind.NoZone}}
	except := func(zones ...string) kind.Failover {
		return kind.Failover{To: kind.ToZones{Type: kind.OtherZones, Zones: zones}}
	}
	for _, c := range []struct {
		name    string
		way     zoneroute.Way
		entries []kind.Failover
		want    string
	}{
		{"no policy", zoneroute.ByIngress, nil, "north south west"},
		{"any zone", zoneroute.ByIngress, []kind.Failover{anyZone}, "north south west"},
		{"none", zoneroute.ByIngress, []kind.Failover{none}, ""},
		{"none cancels no other entry", zoneroute.ByIngress, []kind.Failover{none, only("west")}, "west"},
		{"one and then the others", zoneroute.ByIngress, []kind.Failover{only("west"), anyZone}, "west, north south"},
		{"the order of the entries", zoneroute.ByIngress, []kind.Failover{only("west"), only("north")}, "west, north"},
		{"all but one", zoneroute.ByIngress, []kind.Failover{except("west")}, "north south"},
		{"the first entry decides", zoneroute.ByIngress, []kind.Failover{only("west", "north"), except("south"),
			only("south")}, "north west, south"},
		{"clients of this zone", zoneroute.ByIngress, []kind.Failover{from("east", only("west"))}, "west"},
		{"clients of another zone", zoneroute.ByIngress, []kind.Failover{from("north", only("west")), only("south")},
			"south"},
		{"a zone without servers", zoneroute.ByIngress, []kind.Failover{only("nowhere"), only("west")}, "west"},
		{"through an egress, any zone", zoneroute.ByEgress, []kind.Failover{anyZone}, "north south west"},
		{"through an egress, each service", zoneroute.ByEgress, []kind.Failover{only("west", "north")},
			"north(north-1), west(west-1), west(west-2)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := &service.Destination{Key: service.MultiZoneKey("default", "web").WithPort(80), ClientZone: "east"}
			for _, zone := range []string{"north", "south", "west"} {
				servers := service.Servers{Zone: zone, Way: c.way, SNI: "all", Identities: []string{"id"},
					ServiceSNIs: []string{zone + "-1"}}
				if zone == "west" {
					servers.ServiceSNIs = append(servers.ServiceSNIs, "west-2")
				}
				d.Zones = append(d.Zones, servers)
			}
			if c.entries != nil {
				d.Effective.LoadBalancing.LocalityAwareness =
					&kind.LocalityAwareness{CrossZone: &kind.CrossZone{Failover: c.entries}}
			}
			var priorities []string
			for _, remote := range d.Remotes(true) {
				var zones []string
				for _, zone := range remote.Zones {
					if zone.SNI != "all" {
						zone.Zone += fmt.Sprintf("(%s)", zone.SNI)
					}
					zones = append(zones, zone.Zone)
				}
				priorities = append(priorities, strings.Join(zones, " "))
			}
			if got := strings.Join(priorities, ", "); got != c.want {
				t.Errorf("the priorities are %q, want %q", got, c.want)
			}
			if lists := d.Lists(true); len(lists) != len(priorities) {
				t.Errorf("%d lists for %d priorities", len(lists), len(priorities))
			}
			if reason := d.UnreachableReason(true); (reason == "") != (c.want != "") {
				t.Errorf("unreachable: %q", reason)
			}
			if remotes := d.Remotes(false); remotes != nil {
				t.Errorf("clients without an identity reach %v", remotes)
			}
		})
	}
}

// TestNamesOfRemoteLocalities: each priority has a name, which is read back.
func TestNamesOfRemoteLocalities(t *testing.T) {
	for i, want := range []string{"remote", "remote-2", "remote-3"} {
		key := service.MultiZoneKey("default", "web").WithPort(80).WithLocality(service.RemoteAt(i))
		if string(key.Locality) != want || !key.Locality.IsRemote() {
			t.Errorf("the locality of priority %d is %s, want %s", i, key.Locality, want)
		}
		if got, ok := service.ParseDestination(key.String()); !ok || got != key {
			t.Errorf("%s is read as %+v", key, got)
		}
	}
}
