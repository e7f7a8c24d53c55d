package zonesync_test

import (
	"testing"

	"weft/internal/zonesync"
	"weft/kind"
	"weft/resource"
)

// TestMay: the owners whose resources a side may send, for every way of a kind. All others are rejected.
func TestMay(t *testing.T) {
	type sending struct{ from, to, owner kind.Owner }
	toZone, fromZone, passedOn := sending{global, east, global}, sending{east, global, east},
		sending{global, east, west}
	allowed := map[resource.Sync][]sending{
		0:                      {},
		resource.GlobalToZones: {toZone},
		resource.ZoneToGlobal:  {fromZone},
		resource.GlobalToZones | resource.ZoneToGlobal: {toZone, fromZone},
		resource.ZoneToGlobal | resource.ZoneToZones:   {fromZone, passedOn},
		everyWay: {toZone, fromZone, passedOn},
	}
	for sync, may := range allowed {
		for _, way := range [][2]kind.Owner{{global, east}, {east, global}} {
			open := false
			for _, owner := range []kind.Owner{global, east, west} {
				want := false
				for _, s := range may {
					want = want || s == sending{way[0], way[1], owner}
				}
				err := zonesync.Direction{Sync: sync, From: way[0], To: way[1]}.May(owner)
				if (err == nil) != want {
					t.Errorf("sync %b: %s sends to %s what belongs to %s: %v, allowed is %v", sync, way[0], way[1],
						owner, err, want)
				}
				open = open || want
			}
			if got := (zonesync.Direction{Sync: sync, From: way[0], To: way[1]}).Open(); got != open {
				t.Errorf("sync %b: from %s to %s is open: %v", sync, way[0], way[1], got)
			}
		}
	}
}
