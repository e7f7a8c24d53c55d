package graph

import (
	"slices"

	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// The addresses of a zone proxy are announced in a row of each mesh that it serves: those of an ingress to other zones,
// those of an egress to the proxies of its zone.

// Told returns whether other zones receive the address of a proxy as that of a healthy ingress.
func (s *State) Told(r *table.Reader, key state.ProxyKey) bool {
	return slices.ContainsFunc(s.ingressAddresses(r, key), isHealthy)
}

// Offered returns whether the proxies of the zone receive the address of a proxy as that of a healthy egress.
func (s *State) Offered(r *table.Reader, key state.ProxyKey) bool {
	return slices.ContainsFunc(s.egressAddresses(r, key), isHealthy)
}

func isHealthy(a kind.ZoneProxyAddress) bool { return a.Healthy }

// AddressRows returns the keys of the rows that announce an ingress.
func (s *State) AddressRows(r *table.Reader, key state.ProxyKey) []resource.Key {
	return s.announcements(r, key, kind.MeshZoneAddresses.Key)
}

// EgressRows returns the keys of the rows that announce an egress.
func (s *State) EgressRows(r *table.Reader, key state.ProxyKey) []resource.Key {
	return s.announcements(r, key, kind.MeshEgressAddresses.Key)
}

func (s *State) announcements(
	r *table.Reader,
	key state.ProxyKey,
	of func(mesh, name string) resource.Key,
) []resource.Key {
	var rows []resource.Key
	for _, mesh := range s.MeshesOf(r, key) {
		rows = append(rows, of(mesh, s.Zone))
	}
	return rows
}

// ingressAddresses returns the announced addresses of an ingress.
func (s *State) ingressAddresses(r *table.Reader, key state.ProxyKey) []kind.ZoneProxyAddress {
	return announced(s, r, key, s.ZoneAddresses, func(row *kind.MeshZoneAddress) []kind.ZoneProxyAddress {
		return row.Ingresses
	})
}

// egressAddresses returns the announced addresses of an egress.
func (s *State) egressAddresses(r *table.Reader, key state.ProxyKey) []kind.ZoneProxyAddress {
	return announced(s, r, key, s.EgressAddresses, func(row *kind.MeshEgressAddress) []kind.ZoneProxyAddress {
		return row.Egresses
	})
}

func announced[S any](s *State, r *table.Reader, key state.ProxyKey, rows state.Rows[S],
	addresses func(*S) []kind.ZoneProxyAddress) []kind.ZoneProxyAddress {
	var entries []kind.ZoneProxyAddress
	for _, mesh := range s.MeshesOf(r, key) {
		if row, ok := rows.Find(r, mesh, s.Zone); ok {
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
