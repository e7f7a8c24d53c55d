package state

import (
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// ZoneProxyTables are the ZoneIngresses and ZoneEgresses of this zone, and the addresses of zone proxies of every
// form.
type ZoneProxyTables struct {
	ZoneIngresses      Rows[kind.ZoneIngress]
	ZoneEgresses       Rows[kind.ZoneEgress]
	ZoneEgressStatuses Rows[kind.ZoneEgressStatus]
	// ZoneAddresses are the ingress addresses of all zones, EgressAddresses the egresses of this zone.
	ZoneAddresses   Rows[kind.MeshZoneAddress]
	EgressAddresses Rows[kind.MeshEgressAddress]
	// ZoneIngressesByScope and ZoneEgressesByScope find all of them under the [MeshKey] of no mesh.
	ZoneIngressesByScope *table.Index[*resource.Object[kind.ZoneIngress]]
	ZoneEgressesByScope  *table.Index[*resource.Object[kind.ZoneEgress]]
	// ZoneAddressesByMesh finds the zone addresses of a [MeshKey], and ZoneAddressesByHostName those that have a host
	// name which this zone resolves.
	ZoneAddressesByMesh, ZoneAddressesByHostName *table.Index[*resource.Object[kind.MeshZoneAddress]]
}

func (t *Tables) addZoneProxy() {
	t.ZoneIngresses = addRows(t, kind.ZoneIngresses)
	t.ZoneEgresses = addRows(t, kind.ZoneEgresses)
	t.ZoneEgressStatuses = addRows(t, kind.ZoneEgressStatuses)
	t.ZoneAddresses = addRows(t, kind.MeshZoneAddresses)
	t.EgressAddresses = addRows(t, kind.MeshEgressAddresses)
	t.ZoneIngressesByScope = byMesh(t.ZoneIngresses)
	t.ZoneEgressesByScope = byMesh(t.ZoneEgresses)
	t.ZoneAddressesByMesh = byMesh(t.ZoneAddresses)
	t.ZoneAddressesByHostName = table.NewIndex(t.ZoneAddresses.Input, hostNameKeys[kind.MeshZoneAddress](t))
}
