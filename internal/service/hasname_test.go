package service

import (
	"testing"

	"weft/kind"
)

// TestHasName: a service is found by its name on its owner and by that of its copies. A kind that one control plane
// owns has no copies of another name.
func TestHasName(t *testing.T) {
	east := kind.Owner{Zone: "east"}
	web := DestinationKey{Kind: MeshService, Mesh: "default", Zone: "east", Service: "web"}
	copied := kind.SyncedName(&kind.MeshServices.Info, "default", "web", east)
	for name, want := range map[string]bool{
		"web": true, copied: true, kind.LongerSyncedName("default", "web", east): true, "we": false, "": false,
		kind.SyncedName(&kind.MeshServices.Info, "default", "web", kind.Owner{Zone: "west"}): false,
	} {
		if web.HasName(name) != want {
			t.Errorf("%s has the name %q: %t", web, name, !want)
		}
	}
	global := DestinationKey{Kind: MultiZoneService, Mesh: "default", Service: "web"}
	if !global.HasName("web") || global.HasName(kind.LongerSyncedName("default", "web", kind.Owner{})) {
		t.Errorf("%s has other names", global)
	}
}
