package zonesync

import (
	"fmt"

	"weft/kind"
	"weft/resource"
)

// Direction is a direction of travel of one kind: the owners whose resources the sender may send. Both sides compute it
// from their own identity and the peer's authenticated one, never from a frame.
type Direction struct {
	Sync     resource.Sync
	From, To kind.Owner
}

// Open reports whether any resource of the kind travels this way.
func (w Direction) Open() bool {
	if w.From.Global() {
		return w.Sync.Has(resource.GlobalToZones | resource.ZoneToZones)
	}
	return w.Sync.Has(resource.ZoneToGlobal)
}

// permits reports whether resources of an owner may travel this way: the sender's own, and from global also those of
// other zones if the kind is forwarded.
func (w Direction) permits(owner kind.Owner) bool {
	switch {
	case owner == w.To:
		return false
	case owner != w.From:
		return w.From.Global() && w.Sync.Has(resource.ZoneToZones)
	case owner.Global():
		return w.Sync.Has(resource.GlobalToZones)
	}
	return w.Sync.Has(resource.ZoneToGlobal)
}

// May returns nil if resources of an owner may travel this way, and otherwise the reason.
func (w Direction) May(owner kind.Owner) error {
	switch {
	case w.permits(owner):
		return nil
	case owner == w.To:
		return fmt.Errorf("it belongs to %s, its only writer", owner)
	case owner == w.From && owner.Global():
		return fmt.Errorf("resources of this kind do not belong to global")
	case owner == w.From:
		return fmt.Errorf("resources of this kind do not belong to zones")
	case w.From.Global():
		return fmt.Errorf("it belongs to %s, and resources of this kind are not forwarded to other zones", owner)
	}
	return fmt.Errorf("it belongs to %s, and %s may send only its own", owner, w.From)
}
