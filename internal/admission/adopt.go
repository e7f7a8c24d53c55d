package admission

import (
	"context"
	"errors"
	"iter"
	"maps"

	"golang.org/x/sync/errgroup"

	"weft/internal/store"
	"weft/kind"
	"weft/resource"
)

// Adopted counts the resources whose owner labels or tags changed at the start.
type Adopted struct {
	Labeled int // had no owner label, or that of a former name of this zone
	Taken   int // belonged to the global control plane
	Given   int // had been taken from global, and belong to it again
	Removed int // belonged to another zone
	Tagged  int // Dataplanes whose inbounds lacked tags of the zone
}

// Adopt brings the owner labels of stored resources in line with the control plane's present role. It is called at the
// start with all stored resources of the kinds that zone sync carries. A zone that has left its global control plane
// takes over global's resources, and removes those of other zones. A zone that joins gives back the resources that it
// took and that no user has written since, so zone sync replaces or deletes them. Resources without an owner label, or
// with that of a former name of the zone, become the zone's own. Inbounds of its Dataplanes get the tags that a write
// would set now: the environment, where the zone has joined since. (Mesh Membership.)
func (w *Writer) Adopt(ctx context.Context, resources iter.Seq[resource.Any]) (Adopted, error) {
	var done Adopted
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(adopters)
	for o := range resources {
		change := func(ctx context.Context, key resource.Key) error { return w.relabel(ctx, key, w.own(key)) }
		switch w.ownerStateOf(o) {
		case ownerKnown:
			continue
		case ownerUnlabeled:
			done.Labeled++
		case inboundsUntagged:
			done.Tagged++
		case formerGlobal:
			done.Taken++
			name := kind.OwnerName(kind.ByName(o.Key().Kind).Describe(), o.Envelope())
			change = func(ctx context.Context, key resource.Key) error { return w.relabel(ctx, key, w.take(key, name)) }
		case takenFromGlobal:
			done.Given++
			change = func(ctx context.Context, key resource.Key) error { return w.relabel(ctx, key, giveBack) }
		case otherZone:
			done.Removed++
			change = func(ctx context.Context, key resource.Key) error { return w.rows.Delete(ctx, key, "") }
		}
		group.Go(func() error {
			if err := change(ctx, o.Key()); !errors.Is(err, store.ErrNotFound) {
				return userError(o.Key(), err)
			}
			return nil
		})
	}
	return done, group.Wait()
}

// adopters is the number of concurrent writes, which the store can commit together.
const adopters = 32

// ownerState is the relation of a stored resource to this control plane.
type ownerState int

const (
	ownerKnown       ownerState = iota
	ownerUnlabeled              // its own, without the label
	inboundsUntagged            // its own Dataplane, whose inbounds lack tags
	formerGlobal                // of global, in a zone without a global control plane
	takenFromGlobal             // its own since it left global, in a zone that has joined one
	otherZone                   // of another zone, in a zone without a global control plane
)

func (w *Writer) ownerStateOf(o resource.Any) ownerState {
	owned := w.labeledOwnerState(o)
	if dp, ok := o.(*resource.Object[kind.Dataplane]); ok && owned == ownerKnown && w.owner(&dp.Meta) == w.self() &&
		w.tagInbounds(dp.Spec.Networking.Inbound, false) {
		return inboundsUntagged
	}
	return owned
}

// labeledOwnerState returns the state by the labels of a resource.
func (w *Writer) labeledOwnerState(o resource.Any) ownerState {
	meta, info := o.Envelope(), kind.ByName(o.Key().Kind).Describe()
	zoneOnly, _ := ownersOf(info)
	alone := !w.self().Global() && !w.joined
	switch origin := meta.Label(kind.OriginLabel); {
	case info.Sync == 0, w.self().Global() && zoneOnly:
		return ownerKnown
	case origin == "" && alone:
		return ownerKnown // no other zone receives it; its next write labels it
	case origin == "":
		return ownerUnlabeled
	case w.joined && w.isTaken(o):
		return takenFromGlobal
	case kind.OwnerOf(meta) == w.self(), origin == kind.OriginGlobal && !alone:
		return ownerKnown
	case origin == kind.OriginGlobal:
		return formerGlobal
	case w.displayName(o.Key()) == kind.DisplayNameOf(meta): // it was not received, so this zone had another name
		return ownerUnlabeled
	case alone:
		return otherZone
	}
	return ownerKnown
}

// takenLabel marks a resource of a zone that it took when it left a global control plane. The value is the name of the
// resource on global ([kind.OwnerName]). No user and no other control plane can set the label, and a user's write
// removes it.
const takenLabel = "weft.io/taken-from-global"

// isTaken returns whether a resource of this zone, under any name of the zone, is still as it was taken from global.
func (w *Writer) isTaken(o resource.Any) bool {
	meta, key := o.Envelope(), o.Key()
	name := meta.Label(takenLabel)
	taken := Received{Kind: kind.ByName(key.Kind), Mesh: key.Mesh, Name: name}
	return name != "" && meta.Label(kind.OriginLabel) == kind.OriginZone &&
		w.displayName(key) == kind.DisplayNameOf(meta) && (taken.Key() == key || taken.LongerKey() == key)
}

// own returns the change of a row's labels by which this control plane owns it.
func (w *Writer) own(key resource.Key) func(labels map[string]string) {
	return func(labels map[string]string) {
		maps.Copy(labels, w.ownership())
		name, namespace := w.namespaced(key)
		labels[kind.DisplayName], labels[kind.NamespaceLabel] = name, namespace
		if namespace == "" {
			delete(labels, kind.NamespaceLabel)
		}
		if w.self().Global() {
			delete(labels, kind.ZoneLabel)
			delete(labels, takenLabel)
		}
	}
}

// take is own for a row of global, whose name there is name.
func (w *Writer) take(key resource.Key, name string) func(labels map[string]string) {
	return func(labels map[string]string) {
		w.own(key)(labels)
		labels[takenLabel] = name
	}
}

// giveBack makes a taken row one of global again. Its name on global, by which zone sync knows it, is complete. The
// other labels are those of this zone until global sends the resource, or its deletion.
func giveBack(labels map[string]string) {
	if labels[takenLabel] == "" {
		return // another replica was first, or a user
	}
	labels[kind.OriginLabel], labels[kind.DisplayName] = kind.OriginGlobal, labels[takenLabel]
	for _, name := range []string{kind.ZoneLabel, kind.NamespaceLabel, takenLabel} {
		delete(labels, name)
	}
}

// relabel changes the labels of a row, and gives the inbounds of a Dataplane their tags.
func (w *Writer) relabel(ctx context.Context, key resource.Key, change func(labels map[string]string)) error {
	row, err := w.rows.Get(ctx, key)
	if err != nil {
		return err
	}
	if row.Body, err = resource.Relabel(row.Body, change); err != nil {
		return err
	}
	if row, err = w.retag(row); err != nil {
		return err
	}
	_, err = w.rows.Update(ctx, row)
	if errors.Is(err, store.ErrStale) {
		return w.relabel(ctx, key, change)
	}
	return err
}

// retag gives the inbounds of a stored Dataplane the tags of this zone.
func (w *Writer) retag(row store.Row) (store.Row, error) {
	if row.Key.Kind != kind.Dataplanes.Name || w.self().Global() {
		return row, nil
	}
	o, err := Decode(row)
	if err != nil {
		return row, err
	}
	if w.tagInbounds(o.(*resource.Object[kind.Dataplane]).Spec.Networking.Inbound, true) {
		row.Body, err = resource.Body(o)
	}
	return row, err
}

// tagInbounds returns whether inbounds lack tags of this zone, and sets them if set is true.
func (w *Writer) tagInbounds(inbounds []kind.Inbound, set bool) (lack bool) {
	for i := range inbounds {
		for name, want := range w.zoneTags() {
			if inbounds[i].Tags[name] == want {
				continue
			}
			lack = true
			if set {
				if inbounds[i].Tags == nil {
					inbounds[i].Tags = map[string]string{}
				}
				inbounds[i].Tags[name] = want
			}
		}
	}
	return lack
}

// zoneTags are the tags that every inbound of this zone has: the zone and, in a joined zone, the environment.
func (w *Writer) zoneTags() map[string]string {
	tags := map[string]string{kind.ZoneLabel: w.zone}
	if w.joined {
		tags[kind.EnvironmentTag] = w.env
	}
	return tags
}
