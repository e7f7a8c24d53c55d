// Package join connects zones with the global control plane: it runs the streams of zone sync between the stores of
// both. [Zone] is the client side, [Global] the server side.
//
// Each kind has a stream of its own, so a rejected item delays no other kind. The stored resources alone decide what is
// sent, and the authenticated identity of the peer decides who owns a received resource. A side whose peer is
// disconnected continues with its stored resources, and both sides resume from their positions.
package join

import (
	"weft/internal/zonesync"
	"weft/kind"
	"weft/resource"
)

// SyncedKinds returns the kinds that are sent between control planes.
func SyncedKinds() []resource.Descriptor {
	var kinds []resource.Descriptor
	for _, d := range kind.All() {
		if d.Describe().Sync != 0 {
			kinds = append(kinds, d)
		}
	}
	return kinds
}

// syncDirection returns which items of a kind one control plane sends to another.
func syncDirection(d resource.Descriptor, from, to kind.Owner) zonesync.Direction {
	return zonesync.Direction{Sync: d.Describe().Sync, From: from, To: to}
}
