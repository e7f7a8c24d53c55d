package admission

import (
	"context"
	"fmt"

	"weft/kind"
	"weft/resource"
)

// Zone is the name of the control plane's zone; empty: it is global.
func (w *Writer) Zone() string { return w.zone }

// self is this control plane among the owners of resources.
func (w *Writer) self() kind.Owner { return kind.Owner{Zone: w.zone} }

// ownership are the labels that say whose a resource is.
func (w *Writer) ownership() map[string]string {
	labels := map[string]string{kind.OriginLabel: kind.OriginZone, kind.ZoneLabel: w.zone,
		kind.EnvLabel: kind.Universal}
	if w.self().Global() {
		labels[kind.OriginLabel] = kind.OriginGlobal
	}
	return labels
}

// owner answers whose a stored resource is. One that was stored before resources said so is this control
// plane's own.
func (w *Writer) owner(meta *resource.Meta) kind.Owner {
	if meta.Label(kind.OriginLabel) == "" {
		return w.self()
	}
	return kind.OwnerOf(meta)
}

// ownable rejects a write of a resource that another control plane owns or would own: a resource has one writer.
func (w *Writer) ownable(key resource.Key, stored *current) error {
	if stored != nil {
		return w.changeable(key, stored.object)
	}
	info := kind.ByName(key.Kind).Describe()
	switch zoneOnly, globalOnly := ownersOf(info); {
	case w.self().Global() && zoneOnly:
		return resource.Errorf(resource.Forbidden,
			"%s was not written: a %s belongs to one zone; write it to the control plane of that zone", key, key.Kind)
	case w.joined && globalOnly:
		return resource.Errorf(resource.Forbidden,
			"%s was not written: a %s belongs to the global control plane, which zone %q has joined; write it there",
			key, key.Kind, w.zone)
	}
	return nil
}

// ownersOf says which kinds only zones own, and which only global does. A zone has secrets of its own, which
// never leave it.
func ownersOf(info *resource.Info) (zoneOnly, globalOnly bool) {
	zone, global := info.Sync.Has(resource.ZoneToGlobal), info.Sync.Has(resource.GlobalToZones)
	return zone && !global, global && !zone && !info.Encrypted || info.Name == kind.Zones.Name
}

func (w *Writer) changeable(key resource.Key, stored resource.Any) error {
	meta := stored.Envelope()
	if owner := w.owner(meta); owner != w.self() {
		return resource.Errorf(resource.Forbidden, "%s belongs to %s, where its name is %q; change it there", key,
			whose(owner), kind.DisplayNameOf(meta))
	}
	return nil
}

// whose names an owner's control plane.
func whose(owner kind.Owner) string {
	if owner.Global() {
		return "the global control plane"
	}
	return fmt.Sprintf("the zone %q", owner.Zone)
}

// deletable rejects the deletion of a resource that another control plane owns.
func (w *Writer) deletable(ctx context.Context, key resource.Key) error {
	if kind.ByName(key.Kind).Describe().Sync == 0 {
		return nil
	}
	row, err := w.rows.Get(ctx, key)
	if err != nil {
		return err
	}
	o, err := Decode(row)
	if err != nil {
		return nil // what can't be read any more can be deleted
	}
	return w.changeable(key, o)
}
