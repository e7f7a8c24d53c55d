package zonesync

import (
	"fmt"

	"weft/kind"
	"weft/resource"
)

// Way is whose resources travel from one side to another, for one kind. Both sides know it from who they are,
// and from the token or certificate of the other; nothing that the other says changes it.
type Way struct {
	Sync     resource.Sync
	From, To kind.Owner
}

// Open says whether anything of the kind travels this way.
func (w Way) Open() bool {
	if w.From.Global() {
		return w.Sync.Has(resource.GlobalToZones | resource.ZoneToZones)
	}
	return w.Sync.Has(resource.ZoneToGlobal)
}

// permits says whether resources of an owner may travel this way: its own, and from global those of other
// zones where the kind is passed on.
func (w Way) permits(owner kind.Owner) bool {
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

// May answers nil where resources of an owner may travel this way, and else why not.
func (w Way) May(owner kind.Owner) error {
	switch {
	case w.permits(owner):
		return nil
	case owner == w.To:
		return fmt.Errorf("it belongs to %s, which alone changes it", owner)
	case owner == w.From && owner.Global():
		return fmt.Errorf("resources of this kind do not belong to global")
	case owner == w.From:
		return fmt.Errorf("resources of this kind do not belong to zones")
	case w.From.Global():
		return fmt.Errorf("it belongs to %s, and resources of this kind are not passed on to other zones", owner)
	}
	return fmt.Errorf("it belongs to %s, and %s may send only its own", owner, w.From)
}
