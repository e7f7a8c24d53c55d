package kind_test

import (
	"strings"
	"testing"

	"weft/kind"
	"weft/kind/kindtest"
)

// TestNamesOfCopies: two names that are made for it have one short name, and no two resources have one longer name.
// Neither form is ever of the other one.
func TestNamesOfCopies(t *testing.T) {
	west, east := kind.Owner{Zone: "west"}, kind.Owner{Zone: "east"}
	info := &kind.MeshServices.Info
	short := kind.SyncedName(info, "m", kindtest.WestName, west)
	if other := kind.SyncedName(info, "m", kindtest.EastName, east); short != other {
		t.Errorf("the names are %s and %s, want one: the pair is not the one that was found", short, other)
	}
	if web := kind.SyncedName(info, "m", "web.ns", west); web != "web-ns-1fe0abed0431196a" {
		t.Errorf("the copy of web.ns is %s: the names of stored rows may not change", web)
	}
	seen := map[string]bool{}
	long := strings.Repeat("a.", 120) + "b"
	for _, name := range []string{kindtest.WestName, kindtest.EastName, "web.ns", "a", long} {
		for _, owner := range []kind.Owner{west, east, {}} {
			longer := kind.LongerSyncedName("m", name, owner)
			if seen[longer] || len(longer) > 63 || strings.Contains(longer, ".") || !kind.IsLongerSyncedName(longer) {
				t.Errorf("the longer name of %s of %s is %s", name, owner, longer)
			}
			seen[longer] = true
			if short := kind.SyncedName(info, "m", name, owner); kind.IsLongerSyncedName(short) {
				t.Errorf("%s has the form of a longer name", short)
			}
		}
	}
	for _, name := range []string{"web", "web-copy-0123456789abcdef", "-copy-0123456789abcdef0123456789abcdef",
		"web-copy-0123456789abcdef0123456789abcdeg", "web-copy-0123456789abcdef0123456789abcdef.ns"} {
		if kind.IsLongerSyncedName(name) {
			t.Errorf("%s counts as a longer name", name)
		}
	}
}
