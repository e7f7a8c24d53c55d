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
	ZoneIngressesByScope table.Index[*resource.Object[kind.ZoneIngress]]
	ZoneEgressesByScope  table.Index[*resource.Object[kind.ZoneEgress]]
	// ZoneAddressesByMesh finds the zone addresses of a [MeshKey], and ZoneAddressesByHostName those that have a host
	// name which this zone resolves.
	ZoneAddressesByMesh, ZoneAddressesByHostName table.Index[*resource.Object[kind.MeshZoneAddress]]
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
	t.ZoneAddressesByHostName = table.NewIndex(t.ZoneAddresses, hostNameKeys[kind.MeshZoneAddress](t))
}

// ZoneAddress returns the row with the zone ingresses of a zone, as other zones dial them for a mesh.
func (t *Tables) ZoneAddress(r *table.Reader, mesh, zone string) (*resource.Object[kind.MeshZoneAddress], bool) {
	return FindStored(t, t.ZoneAddresses, r, &kind.MeshZoneAddresses.Info, mesh, zone, zone)
}

// Networking returns the networking of a Dataplane, with an IP address in the place of a host name, or of a ZoneIngress
// or ZoneEgress of this zone.
func (t *Tables) Networking(r *table.Reader, key ProxyKey) (*kind.Networking, bool) {
	switch o := t.ProxyResource(r, key).(type) {
	case *resource.Object[kind.ZoneIngress]:
		return o.Spec.Dataplane(), true
	case *resource.Object[kind.ZoneEgress]:
		return o.Spec.Dataplane(), true
	case *resource.Object[kind.Dataplane]:
		return t.NetworkingOf(r, o), true
	}
	return nil, false
}

// ProxyResource returns the Dataplane of a proxy, or its ZoneIngress or ZoneEgress of this zone; nil without one.
func (t *Tables) ProxyResource(r *table.Reader, key ProxyKey) resource.Any {
	switch key.Type {
	case kind.IngressProxy:
		if z, ok := t.ZoneIngresses.Find(r, "", key.Name); ok && t.IsOwn(&z.Meta) {
			return z
		}
	case kind.EgressProxy:
		if z, ok := t.ZoneEgresses.Find(r, "", key.Name); ok && t.IsOwn(&z.Meta) {
			return z
		}
	default:
		if dp, ok := t.Dataplanes.Find(r, key.Mesh, key.Name); ok {
			return dp
		}
	}
	return nil
}
