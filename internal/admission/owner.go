package admission

import (
	"context"
	"fmt"

	"weft/kind"
	"weft/resource"
)

// Zone is the name of the control plane's zone; empty on the global control plane.
func (w *Writer) Zone() string { return w.zone }

// self is this control plane as an owner of resources.
func (w *Writer) self() kind.Owner { return kind.Owner{Zone: w.zone} }

// ownership are the labels of resources that this control plane owns.
func (w *Writer) ownership() map[string]string {
	labels := map[string]string{kind.OriginLabel: kind.OriginZone, kind.ZoneLabel: w.zone, kind.EnvLabel: w.env}
	if w.self().Global() {
		labels[kind.OriginLabel] = kind.OriginGlobal
	}
	return labels
}

// displayName returns the name of a resource of this control plane for readers, without the namespace.
func (w *Writer) displayName(key resource.Key) string {
	name, _ := w.namespaced(key)
	return name
}

// owner returns the owner of a stored resource: this control plane, where an older release stored it without a label.
func (w *Writer) owner(meta *resource.Meta) kind.Owner {
	if meta.Label(kind.OriginLabel) == "" {
		return w.self()
	}
	return kind.OwnerOf(meta)
}

// checkOwnable rejects a write of a resource that another control plane owns or would own: a resource has one writer.
func (w *Writer) checkOwnable(key resource.Key, stored *current) error {
	if stored != nil {
		return w.checkChangeable(key, stored.object)
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

// ownersOf returns whether only zones write a kind, or only global. A zone has secrets of its own, which are never
// synced.
func ownersOf(info *resource.Info) (zoneOnly, globalOnly bool) {
	zone, global := info.Sync.Has(resource.ZoneToGlobal), info.Sync.Has(resource.GlobalToZones)
	return zone && !global, global && !zone && !info.Encrypted || info.Name == kind.Zones.Name
}

func (w *Writer) checkChangeable(key resource.Key, stored resource.Any) error {
	meta := stored.Envelope()
	if owner := w.owner(meta); owner != w.self() {
		return resource.Errorf(resource.Forbidden, "%s belongs to %s, where its name is %q; change it there", key,
			ownerPhrase(owner), kind.OwnerName(kind.ByName(key.Kind).Describe(), meta))
	}
	return nil
}

// ownerPhrase names a control plane in messages.
func ownerPhrase(owner kind.Owner) string {
	if owner.Global() {
		return "the global control plane"
	}
	return fmt.Sprintf("the zone %q", owner.Zone)
}

// checkDeletable rejects the deletion of a resource that another control plane owns.
func (w *Writer) checkDeletable(ctx context.Context, key resource.Key) error {
	if kind.ByName(key.Kind).Describe().Sync == 0 {
		return nil
	}
	row, err := w.rows.Get(ctx, key)
	if err != nil {
		return err
	}
	o, err := Decode(row)
	if err != nil {
		return nil // an unreadable row can be deleted too
	}
	return w.checkChangeable(key, o)
}
