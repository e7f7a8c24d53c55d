package state

import (
	"cmp"

	"weft/internal/table"
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

// StoredName returns the name in this table of a zone's resource, by its [kind.OwnerName] there. The zone is empty for
// a resource of global. longer is true for a resource that has its [kind.LongerSyncedName].
func (t *Tables) StoredName(info *resource.Info, mesh, zone, name string, longer bool) string {
	switch owner := (kind.Owner{Zone: zone}); {
	case zone == t.Zone:
		return name
	case longer:
		return kind.LongerSyncedName(mesh, name, owner)
	default:
		return kind.SyncedName(info, mesh, name, owner)
	}
}

// HasLongerName returns whether a resource of another owner has its [kind.LongerSyncedName].
func (t *Tables) HasLongerName(meta *resource.Meta) bool {
	return t.OwnerOf(meta).Zone != t.Zone && kind.IsLongerSyncedName(meta.Name)
}

// IsNamed returns whether a resource has a name on its owner.
func (t *Tables) IsNamed(info *resource.Info, meta *resource.Meta, name string) bool {
	if t.OwnerOf(meta).Zone == t.Zone {
		return meta.Name == name
	}
	return kind.OwnerName(info, meta) == name
}

// FindStored returns a zone's resource by its [kind.OwnerName] there. The zone is empty for a resource of global.
func FindStored[S any](t *Tables, rows Rows[S], r *table.Reader, info *resource.Info, mesh, zone, name string) (
	*resource.Object[S], bool) {
	o, ok := rows.Find(r, mesh, t.StoredName(info, mesh, zone, name, false))
	if zone == t.Zone || !kind.HasSyncedName(info) || ok && kind.IsCopyOf(info, &o.Meta, name, kind.Owner{Zone: zone}) {
		return o, ok
	}
	return rows.Find(r, mesh, t.StoredName(info, mesh, zone, name, true))
}

// StoredKey returns the key of a zone's resource by its [kind.OwnerName] there; false where it is not stored.
func (t *Tables) StoredKey(r *table.Reader, info *resource.Info, mesh, zone, name string) (resource.Key, bool) {
	for _, longer := range []bool{false, true} {
		key := resource.Key{Kind: info.Name, Mesh: mesh, Name: t.StoredName(info, mesh, zone, name, longer)}
		if o, ok := t.Find(r, key); ok && (zone == t.Zone || !kind.HasSyncedName(info) ||
			kind.IsCopyOf(info, o.Envelope(), name, kind.Owner{Zone: zone})) {
			return key, true
		}
	}
	return resource.Key{}, false
}
