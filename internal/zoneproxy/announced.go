package zoneproxy

import (
	"slices"

	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// The addresses of a zone proxy are announced in a row of each mesh that it serves: those of an ingress to other zones,
// those of an egress to the proxies of its zone.

// IsAnnouncedIngress returns whether other zones receive the address of a proxy as that of a healthy ingress.
func (s *Stage) IsAnnouncedIngress(r *table.Reader, key state.ProxyKey) bool {
	return slices.ContainsFunc(s.ingressAddresses(r, key), isHealthy)
}

// IsAnnouncedEgress returns whether the proxies of the zone receive the address of a proxy as that of a healthy egress.
func (s *Stage) IsAnnouncedEgress(r *table.Reader, key state.ProxyKey) bool {
	return slices.ContainsFunc(s.egressAddresses(r, key), isHealthy)
}

func isHealthy(a kind.ZoneProxyAddress) bool { return a.Healthy }

// AddressRows returns the keys of the rows that announce an ingress.
func (s *Stage) AddressRows(r *table.Reader, key state.ProxyKey) []resource.Key {
	return s.announcements(r, key, kind.MeshZoneAddresses.Key)
}

// EgressRows returns the keys of the rows that announce an egress.
func (s *Stage) EgressRows(r *table.Reader, key state.ProxyKey) []resource.Key {
	return s.announcements(r, key, kind.MeshEgressAddresses.Key)
}

func (s *Stage) announcements(
	r *table.Reader,
	key state.ProxyKey,
	of func(mesh, name string) resource.Key,
) []resource.Key {
	var rows []resource.Key
	for _, mesh := range s.state.MeshesOf(r, key) {
		rows = append(rows, of(mesh, s.state.Zone))
	}
	return rows
}

// ingressAddresses returns the announced addresses of an ingress.
func (s *Stage) ingressAddresses(r *table.Reader, key state.ProxyKey) []kind.ZoneProxyAddress {
	return announced(s, r, key, s.state.ZoneAddresses, func(row *kind.MeshZoneAddress) []kind.ZoneProxyAddress {
		return row.Ingresses
	})
}

// egressAddresses returns the announced addresses of an egress.
func (s *Stage) egressAddresses(r *table.Reader, key state.ProxyKey) []kind.ZoneProxyAddress {
	return announced(s, r, key, s.state.EgressAddresses, func(row *kind.MeshEgressAddress) []kind.ZoneProxyAddress {
		return row.Egresses
	})
}

func announced[S any](s *Stage, r *table.Reader, key state.ProxyKey, rows state.Rows[S],
	addresses func(*S) []kind.ZoneProxyAddress) []kind.ZoneProxyAddress {
	var entries []kind.ZoneProxyAddress
	for _, mesh := range s.state.MeshesOf(r, key) {
		if row, ok := rows.Find(r, mesh, s.state.Zone); ok {
			entries = append(entries, entriesOf(addresses(&row.Spec), key)...)
		}
	}
	return entries
}

// entriesOf returns the addresses of one proxy.
func entriesOf(all []kind.ZoneProxyAddress, key state.ProxyKey) []kind.ZoneProxyAddress {
	return slices.DeleteFunc(slices.Clone(all), func(entry kind.ZoneProxyAddress) bool {
		return entry.Name != key.Name || entry.Legacy != (key.Mesh == "")
	})
}

// DrainingIngresses returns the "address:port" of ingress listeners that are served and no longer configured. A
// listener that remote zones still dial is excluded.
func (s *Stage) DrainingIngresses(r *table.Reader, key state.ProxyKey, section *kind.ZoneIngressSection,
	serving *kind.DataplaneListenerStatus) []string {
	moved := section != nil && slices.ContainsFunc(serving.Ingresses, func(z kind.ZoneIngressSection) bool {
		return z.Listener() == section.Listener()
	})
	var gone []string
	for i := range serving.Ingresses {
		former := &serving.Ingresses[i]
		if section != nil && former.Listener() == section.Listener() {
			continue
		}
		if moved && former.SameAddress(section) || !s.isAdvertised(r, key, former) {
			gone = append(gone, former.Listener())
		}
	}
	return gone
}

// isAdvertised returns whether remote zones dial a proxy at the advertised address of a section.
func (s *Stage) isAdvertised(r *table.Reader, key state.ProxyKey, section *kind.ZoneIngressSection) bool {
	for _, entry := range s.ingressAddresses(r, key) {
		if entry.Address == section.AdvertisedAddress && entry.Port == section.AdvertisedPort {
			return true
		}
	}
	return false
}

// DrainingEgresses returns the "address:port" of egress listeners that are served and no longer configured. A listener
// that the zone's proxies still dial is excluded.
func (s *Stage) DrainingEgresses(r *table.Reader, key state.ProxyKey, section *kind.ZoneEgressSection,
	serving *kind.DataplaneListenerStatus) []string {
	var gone []string
	for i := range serving.Egresses {
		former := &serving.Egresses[i]
		isDialed := func(a kind.ZoneProxyAddress) bool { return a.Address == former.Address && a.Port == former.Port }
		if (section == nil || former.Listener() != section.Listener()) &&
			!slices.ContainsFunc(s.egressAddresses(r, key), isDialed) {
			gone = append(gone, former.Listener())
		}
	}
	return gone
}
