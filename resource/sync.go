package resource

// Sync says which way the resources of a kind travel between the global control plane and zones, and with
// that who may own one: whose copy the others hold. The zero value stays where it is written.
type Sync int

const (
	// GlobalToZones kinds may be global's, and go from there to every zone.
	GlobalToZones Sync = 1 << iota
	// ZoneToGlobal kinds may be a zone's, and go from there to global.
	ZoneToGlobal
	// ZoneToZones kinds go on from global to the other zones. It comes with ZoneToGlobal.
	ZoneToZones
)

// Has says whether a kind travels one of the ways.
func (s Sync) Has(way Sync) bool { return s&way != 0 }
