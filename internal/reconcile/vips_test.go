package reconcile

import (
	"fmt"
	"log/slog"
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

// addresses are the virtual IPs that are stored, by service; the test fails where two have the same.
func (m *mirrored) addresses() map[string]string {
	had, owners := map[string]string{}, map[string]string{}
	for key, row := range m.rows {
		for _, vip := range vipsIn(row) {
			if other, taken := owners[vip.IP]; taken {
				m.t.Fatalf("%s and %s both have %s", other, key, vip.IP)
			}
			owners[vip.IP], had[key.String()] = key.String(), vip.IP
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
				for service, ip := range had {
					if now[service] != ip {
						t.Fatalf("%s had %s and has %q", service, ip, now[service])
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
	if _, status := m.service("c"); len(status.VIPs) != 1 || len(status.Conditions) != 0 {
		t.Errorf("an address is free, and the service that has none has %+v", status)
	}
}
