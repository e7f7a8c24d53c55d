package state

import (
	"cmp"

	"weft/kind"
	"weft/resource"
)

// IsOwn returns whether a resource belongs to this zone.
func (t *Tables) IsOwn(meta *resource.Meta) bool { return t.ZoneOf(meta) == t.Zone }

// ZoneOf returns the zone of a resource; this zone where the resource has none.
func (t *Tables) ZoneOf(meta *resource.Meta) string { return cmp.Or(kind.OwnerOf(meta).Zone, t.Zone) }

// OwnerOf returns the owner of a stored resource. A resource without an owner belongs to this control plane.
func (t *Tables) OwnerOf(meta *resource.Meta) kind.Owner {
	if meta.Label(kind.OriginLabel) == "" {
		return kind.Owner{Zone: t.Zone}
	}
	return kind.OwnerOf(meta)
}

// IsRemote returns whether a MeshService belongs to a remote zone. Its selector is about that zone's Dataplanes, which
// are not stored here, so only the zone's report is known. On global every MeshService is remote.
func (t *Tables) IsRemote(service *resource.Object[kind.MeshService]) bool {
	return t.InOtherZone(&service.Meta)
}

// InOtherZone returns whether a resource belongs to a remote zone. A resource of global belongs to every zone.
func (t *Tables) InOtherZone(meta *resource.Meta) bool { return t.ZoneOf(meta) != t.Zone }

// StoredName returns the name in this table of a zone's resource, by its [kind.OwnerName] there. It is empty for a
// resource of global.
func (t *Tables) StoredName(info *resource.Info, mesh, zone, name string) string {
	if zone == t.Zone {
		return name
	}
	return kind.SyncedName(info, mesh, name, kind.Owner{Zone: zone})
}
