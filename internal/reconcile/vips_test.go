package reconcile

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// services are one name of each kind that has virtual IPs.
func services(name string) []resource.Any {
	return []resource.Any{
		kind.MeshServices.Make("default", name, kind.MeshService{Ports: []kind.ServicePort{{Port: 80}}}),
		kind.MeshMultiZoneServices.Make("default", name, kind.MeshMultiZoneService{}),
		kind.MeshExternalServices.Make("default", name, kind.MeshExternalService{}),
	}
}

// addresses are the virtual IPs that are stored, by service; the test fails where two have the same, and where a
// service does not have one of each family.
func (m *mirrored) addresses() map[string]string {
	had, owners := map[string]string{}, map[string]string{}
	for key, row := range m.rows {
		for _, vip := range vipsIn(row) {
			if other, taken := owners[vip.IP]; taken {
				m.t.Fatalf("%s and %s both have %s", other, key, vip.IP)
			}
			owners[vip.IP], had[key.String()] = key.String(), fmt.Sprint(vipsIn(row))
		}
		if vips := vipsIn(row); len(vips) == 1 || len(vips) > 2 {
			m.t.Fatalf("%s has %v", key, vips)
		}
	}
	return had
}

func TestNoTwoServicesHaveAVirtualIPAndNoneLosesIts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := follow(newWorld(t, "241.0.0.0/29"), false, slog.New(slog.DiscardHandler)) // six addresses
		m.lags = true
		had := map[string]string{}
		service := func(t *rapid.T) resource.Any {
			return rapid.SampledFrom(services(fmt.Sprintf("service-%d", rapid.IntRange(0, 3).Draw(t, "service")))).Draw(
				t, "kind")
		}
		t.Repeat(map[string]func(*rapid.T){
			"create": func(t *rapid.T) { m.user(service(t)) },
			"delete": func(t *rapid.T) {
				gone := service(t).Key()
				m.removes(gone)
				delete(had, resource.Key{Kind: gone.Kind + "Status", Mesh: gone.Mesh, Name: gone.Name}.String())
			},
			"write":   func(*rapid.T) { m.step() },
			"hear":    func(t *rapid.T) { m.deliver(rapid.IntRange(1, 3).Draw(t, "rows")) },
			"list":    func(*rapid.T) { m.list() },
			"fail":    func(*rapid.T) { m.fails = !m.fails },
			"go by":   func(*rapid.T) { m.now = m.now.Add(time.Second); m.commit(func(*table.Tx) {}) },
			"restart": func(*rapid.T) { m.takeOver() },
			"drain": func(t *rapid.T) {
				m.drain()
				live := 0
				for key := range m.rows {
					if kind.StatusKind(key.Kind) != nil {
						live++
					}
				}
				if got := len(m.addresses()); got != min(live, 6) {
					t.Fatalf("%d of %d services have one of the six addresses", got, live)
				}
			},
			"": func(t *rapid.T) {
				now := m.addresses()
				for service, vips := range had {
					if now[service] != vips {
						t.Fatalf("%s had %s and has %q", service, vips, now[service])
					}
				}
				had = now
			},
		})
	})
}

// A service that was told that its range is full gets the first address that becomes free.
func TestAFreedAddressGoesToAServiceThatHasNone(t *testing.T) {
	m := follow(newWorld(t, "241.0.0.0/30"), false, slog.New(slog.DiscardHandler)) // two addresses
	for _, name := range []string{"a", "b", "c"} {
		m.user(services(name)[0])
		m.drain()
	}
	if _, status := m.service("c"); len(status.VIPs) != 0 || len(status.Conditions) != 1 {
		t.Fatalf("the third service of two addresses has %+v", status)
	}
	m.removes(kind.MeshServices.Key("default", "a"))
	m.drain()
	if _, status := m.service("c"); len(status.VIPs) != 2 || len(status.Conditions) != 0 {
		t.Errorf("an address is free, and the service that has none has %+v", status)
	}
}

// vipsOf returns the virtual IPs of a service that is reconciled now.
func (w *world) vipsOf(service resource.Any) []string {
	w.t.Helper()
	key := service.Key()
	w.reconcile(key.Kind, key.Name)
	row, _ := w.plan.State.Tables.Find(w.reader(),
		resource.Key{Kind: key.Kind + "Status", Mesh: key.Mesh, Name: key.Name})
	var ips []string
	for _, vip := range vipsIn(row) {
		ips = append(ips, vip.IP)
	}
	return ips
}

// A service has a virtual IP of each family. The IPv6 one embeds the other, and both stay when the ranges change.
func TestAVirtualIPOfEachFamily(t *testing.T) {
	w := newWorld(t, "241.0.0.0/8")
	had := map[string][]string{}
	for _, service := range services("web") {
		w.put(service)
		vips := w.vipsOf(service)
		if len(vips) != 2 {
			t.Fatalf("%s has the virtual IPs %v", service.Key(), vips)
		}
		four, six := netip.MustParseAddr(vips[0]), netip.MustParseAddr(vips[1])
		if !four.Is4() || kind.EmbedIPv4(sixRange, four) != six {
			t.Errorf("%s has the virtual IPs %v, want one of IPv4 and the one of IPv6 that embeds it", service.Key(),
				vips)
		}
		had[service.Key().String()] = vips
	}
	external, _ := w.plan.State.Tables.ExternalServiceStatuses.Find(w.reader(), "default", "web")
	if external.Spec.VIP == nil || *external.Spec.VIP != external.Spec.VIPs[0] {
		t.Errorf("the first of %v is %v", external.Spec.VIPs, external.Spec.VIP)
	}
	other := netip.MustParsePrefix("10.0.0.0/8")
	w.plan.Ranges = Ranges{other, other, other, netip.MustParsePrefix("fd01::/64")}
	for _, service := range services("web") {
		if vips := w.vipsOf(service); !slices.Equal(vips, had[service.Key().String()]) {
			t.Errorf("in another range %s has %v, had %v", service.Key(), vips, had[service.Key().String()])
		}
	}
	api := services("api")[0]
	w.put(api)
	if vips := w.vipsOf(api); !strings.HasPrefix(vips[0], "10.") || !strings.HasPrefix(vips[1], "fd01::") {
		t.Errorf("a new service has %v", vips)
	}
}

// What is stored stays: the address of an older release gets one of IPv6, and cluster IPs get none.
func TestStoredVirtualIPsStay(t *testing.T) {
	w := newWorld(t, "241.0.0.0/8")
	web := services("web")
	for _, c := range []struct {
		service, status resource.Any
		want            []string
	}{
		{web[0], kind.MeshServiceStatuses.Make("default", "web", kind.MeshServiceStatus{
			VIPs: []kind.VIP{{IP: "240.0.0.9"}}}), []string{"240.0.0.9", "fd00:fd00::f000:9"}},
		{web[1], kind.MeshMultiZoneServiceStatuses.Make("default", "web", kind.MeshMultiZoneServiceStatus{
			VIPs: []kind.VIP{{IP: "fd00:10:96::a"}}}), []string{"fd00:10:96::a"}},
		{web[2], kind.MeshExternalServiceStatuses.Make("default", "web", kind.MeshExternalServiceStatus{
			VIP: &kind.VIP{IP: "242.0.0.9"}}), []string{"242.0.0.9", "fd00:fd00::f200:9"}},
		{services("both")[0], kind.MeshServiceStatuses.Make("default", "both", kind.MeshServiceStatus{
			VIPs: []kind.VIP{{IP: "10.96.0.1"}, {IP: "fd00:10:96::b"}}}), []string{"10.96.0.1", "fd00:10:96::b"}},
	} {
		w.put(c.service, c.status)
		if vips := w.vipsOf(c.service); !slices.Equal(vips, c.want) {
			t.Errorf("%s has %v, want %v", c.service.Key(), vips, c.want)
		}
	}
}

// A service whose IPv6 address is in use has that of IPv4, and a condition.
func TestAnIPv6AddressInUseIsACondition(t *testing.T) {
	w := newWorld(t, "241.0.0.0/8")
	web := services("web")[0]
	w.put(web, services("cluster")[0],
		kind.MeshServiceStatuses.Make("default", "web", kind.MeshServiceStatus{VIPs: []kind.VIP{{IP: "241.0.0.9"}}}),
		kind.MeshServiceStatuses.Make("default", "cluster", kind.MeshServiceStatus{
			VIPs: []kind.VIP{{IP: "fd00:fd00::f100:9"}}}))
	vips := w.vipsOf(web)
	_, status := w.service("web")
	if !slices.Equal(vips, []string{"241.0.0.9"}) || len(status.Conditions) != 1 ||
		!strings.Contains(status.Conditions[0].Message, "MeshService default/cluster; set KUMA_IPAM_IPV6_CIDR") {
		t.Errorf("it has %v and %+v", vips, status.Conditions)
	}
}
