package resource

// Sync is the direction in which the resources of a kind travel between the global control plane and zones. It decides
// who may own a resource; the others store a copy. The zero value stays on its control plane.
type Sync int

const (
	// GlobalToZones kinds may be owned by global, and travel to every zone.
	GlobalToZones Sync = 1 << iota
	// ZoneToGlobal kinds may be owned by a zone, and travel to global.
	ZoneToGlobal
	// ZoneToZones kinds travel from global to the other zones too. It requires ZoneToGlobal.
	ZoneToZones
)

// Has reports whether a kind travels in one of the directions.
func (s Sync) Has(way Sync) bool { return s&way != 0 }
