// Package join connects zones with the global control plane: the streams of zone sync, what goes into them out
// of the store, and what comes out of them into it. [Zone] is the side that dials, [Global] the one that
// serves.
//
// Each kind has a stream of its own, so that one which is refused holds up no other. What to send is decided
// by the store alone, and whose a resource is by who the other side has proved to be. A side that loses its
// peer serves on with what it has, and the two go on where they were once they meet again.
package join

import (
	"weft/internal/zonesync"
	"weft/kind"
	"weft/resource"
)

// Traveling are the kinds that go from one control plane to another.
func Traveling() []resource.Descriptor {
	var kinds []resource.Descriptor
	for _, d := range kind.All() {
		if d.Describe().Sync != 0 {
			kinds = append(kinds, d)
		}
	}
	return kinds
}

// way says what of a kind goes from one control plane to another.
func way(d resource.Descriptor, from, to kind.Owner) zonesync.Way {
	return zonesync.Way{Sync: d.Describe().Sync, From: from, To: to}
}
