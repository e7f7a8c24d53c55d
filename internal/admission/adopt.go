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

// Adopted counts what a start has changed in whose resources are.
type Adopted struct {
	Labeled int // had no owner, or one of a name that this zone had
	Taken   int // were the global control plane's
	Removed int // were another zone's
	Tagged  int // Dataplanes whose inbounds lacked tags of the zone
}

// Adopt makes whose resources are agree with what the control plane is now; it is for the start, with all that
// is stored of the kinds that travel. A zone that has joined no others any more takes over what was the global
// control plane's, and what other zones had goes. What was stored before resources said whose they are, or
// while this zone had another name, becomes its own. Inbounds of its Dataplanes get the tags that a write sets now: the
// environment, where the zone has joined others since. (Mesh Membership.)
func (w *Writer) Adopt(ctx context.Context, resources iter.Seq[resource.Any]) (Adopted, error) {
	var done Adopted
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(adopters)
	for o := range resources {
		change := w.relabel
		switch w.ownerStateOf(o) {
		case ownerKnown:
			continue
		case ownerUnlabelled:
			done.Labeled++
		case inboundsUntagged:
			done.Tagged++
		case formerGlobal:
			done.Taken++
		case otherZone:
			done.Removed++
			change = func(ctx context.Context, key resource.Key) error { return w.rows.Delete(ctx, key, "") }
		}
		group.Go(func() error {
			if err := change(ctx, o.Key()); !errors.Is(err, store.ErrNotFound) {
				return shown(o.Key(), err)
			}
			return nil
		})
	}
	return done, group.Wait()
}

// adopters write at the same time, so that the store can commit what is of one moment together.
const adopters = 32

// standing is what a stored resource is to the control plane that it is found by.
type ownerState int

const (
	ownerKnown       ownerState = iota
	ownerUnlabelled             // its own, and does not say so
	inboundsUntagged            // its own Dataplane, whose inbounds lack tags
	formerGlobal                // global's, of a zone that is alone
	otherZone                   // another zone's, of a zone that is alone
)

func (w *Writer) ownerStateOf(o resource.Any) ownerState {
	owned := w.labelledOwnerState(o)
	if dp, ok := o.(*resource.Object[kind.Dataplane]); ok && owned == ownerKnown && w.owner(&dp.Meta) == w.self() &&
		w.tagInbounds(dp.Spec.Networking.Inbound, false) {
		return inboundsUntagged
	}
	return owned
}

// labelledOwnerState is what the labels of a resource say.
func (w *Writer) labelledOwnerState(o resource.Any) ownerState {
	meta, info := o.Envelope(), kind.ByName(o.Key().Kind).Describe()
	zoneOnly, _ := ownersOf(info)
	alone := !w.self().Global() && !w.joined
	switch origin := meta.Label(kind.OriginLabel); {
	case info.Sync == 0, w.self().Global() && zoneOnly:
		return ownerKnown
	case origin == "" && alone:
		return ownerKnown // no other zone receives it; its next write labels it
	case origin == "":
		return ownerUnlabelled
	case kind.OwnerOf(meta) == w.self(), origin == kind.OriginGlobal && !alone:
		return ownerKnown
	case origin == kind.OriginGlobal:
		return formerGlobal
	case meta.Name == kind.DisplayNameOf(meta): // it was not received, so this zone had another name
		return ownerUnlabelled
	case alone:
		return otherZone
	}
	return ownerKnown
}

// relabel makes a row this control plane's own: its labels, and the tags of a Dataplane's inbounds.
func (w *Writer) relabel(ctx context.Context, key resource.Key) error {
	row, err := w.rows.Get(ctx, key)
	if err != nil {
		return err
	}
	row.Body, err = resource.Relabel(row.Body, func(labels map[string]string) {
		maps.Copy(labels, w.ownership())
		labels[kind.DisplayName] = key.Name
		if w.self().Global() {
			delete(labels, kind.ZoneLabel)
		}
	})
	if err != nil {
		return err
	}
	if row, err = w.retag(row); err != nil {
		return err
	}
	_, err = w.rows.Update(ctx, row)
	if errors.Is(err, store.ErrStale) {
		return w.relabel(ctx, key)
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

// tagInbounds says whether inbounds lack tags of this zone, and sets them where it is to.
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

// zoneTags are the tags that every inbound of this zone has: the zone and, where there are others, the environment.
func (w *Writer) zoneTags() map[string]string {
	tags := map[string]string{kind.ZoneLabel: w.zone}
	if w.joined {
		tags[kind.EnvironmentTag] = kind.Universal
	}
	return tags
}
