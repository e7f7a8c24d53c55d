package access

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weft/kind"
	"weft/resource"
)

// ofShop returns rules by which the group owners reads and writes the meshes shop and pay, and bob reads all meshes.
func ofShop() Rules {
	rules := Rules{Read: {Users: []string{"bob"}}, Preview: {Groups: []string{AuthenticatedGroup}}}
	for _, action := range []Action{Read, Write} {
		rule := rules[action]
		rule.Limited = []MeshRule{{Setting: MeshesSetting + "[0]", Meshes: []string{"shop", "pay"},
			Groups: []string{"owners"}}}
		rules[action] = rule
	}
	return rules
}

// TestLimitedToMeshes: a user of some meshes has these alone, also for requests about several meshes, and nothing of
// global scope.
func TestLimitedToMeshes(t *testing.T) {
	rules := ofShop()
	owner, bob := NewUser("ann", []string{"owners"}, ByUserToken), NewUser("bob", nil, ByUserToken)
	for _, test := range []struct {
		user   User
		action Action
		scope  Scope
		may    bool
	}{
		{owner, Read, MeshScope("shop"), true},
		{owner, Write, MeshScope("pay"), true},
		{owner, Read, MeshScope("shops"), false},
		{owner, Read, MeshScope(""), false},
		{owner, Read, GlobalScope, false},
		{owner, Read, AnyMesh, true},
		{owner, OperatorResources, AnyMesh, false},
		{owner, Preview, MeshScope("shop"), true},
		{owner, Preview, MeshScope("other"), false}, // preview is permitted there, and reading is not
		{bob, Read, GlobalScope, true},
		{bob, Read, MeshScope("shop"), true},
		{bob, Write, MeshScope("shop"), false},
		{bob, Preview, GlobalScope, true},
		{NewUser("eve", nil, ByUserToken), Preview, AnyMesh, false},
		{NewUser("eve", nil, ByUserToken), Read, AnyMesh, false},
		{Anonymous(), Read, AnyMesh, false},
	} {
		if err := rules.Check(test.user, test.action, test.scope, "x"); (err == nil) != test.may {
			t.Errorf("%s, %s, %+v: %v, want allowed %v", test.user, test.action, test.scope, err, test.may)
		}
	}
	if names := rules.Meshes(owner, Read).Names(); !slices.Equal(names, []string{"pay", "shop"}) {
		t.Errorf("the owner reads %q", names)
	}
}

// TestScopes: a Mesh is of itself, and Zones and HostnameGenerators are read by readers of any mesh.
func TestScopes(t *testing.T) {
	for _, test := range []struct {
		key         resource.Key
		read, write Scope
	}{
		{kind.Meshes.Key("", "shop"), MeshScope("shop"), MeshScope("shop")},
		{kind.Dataplanes.Key("shop", "web"), MeshScope("shop"), MeshScope("shop")},
		{kind.Zones.Key("", "shop"), AnyMesh, GlobalScope},
		{kind.ZoneInsights.Key("", "shop"), AnyMesh, GlobalScope},
		{kind.HostnameGenerators.Key("", "shop"), AnyMesh, GlobalScope},
		{kind.ZoneEgresses.Key("", "shop"), GlobalScope, GlobalScope},
		{kind.GlobalSecrets.Key("", "shop"), GlobalScope, GlobalScope},
		{kind.Secrets.Key("", "shop"), GlobalScope, GlobalScope}, // without its mesh
	} {
		if got := ReadScope(test.key); got != test.read {
			t.Errorf("%s is read in %+v, want %+v", test.key, got, test.read)
		}
		if got := WriteScope(test.key); got != test.write {
			t.Errorf("%s is written in %+v, want %+v", test.key, got, test.write)
		}
	}
}

// TestForwardedUsers: a user that another control plane authenticated has the one action that it permitted.
func TestForwardedUsers(t *testing.T) {
	user := NewPermitted(ByGlobal, "ann", []string{"owners"}, ViewStats)
	for action, want := range map[Action]bool{ViewStats: true, Read: false, Preview: false, Known: false, Open: false} {
		if got := ofShop().Meshes(user, action); got.IsAll() != want || got.Permits(AnyMesh) != want {
			t.Errorf("%s: %+v, want all: %t", action, got, want)
		}
	}
}

// TestPermissions: each permitted action has the settings that decide, and the meshes to which they limit it.
func TestPermissions(t *testing.T) {
	got := ofShop().Permissions(NewUser("bob", []string{"owners"}, ByUserToken))
	want := []Permission{
		{Read, "access.static.read.users", nil},
		{Read, "access.static.meshes[0]", []string{"pay", "shop"}},
		{Preview, "access.static.preview.groups", nil},
		{Write, "access.static.meshes[0]", []string{"pay", "shop"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	got = ofShop().Permissions(NewUser("ann", []string{"owners"}, ByUserToken))
	if len(got) != 3 || !slices.Equal(got[1].Meshes, []string{"pay", "shop"}) {
		t.Errorf("a preview is not limited to what ann reads: %+v", got)
	}
}

// TestDenialsOfMeshes: the text of a denial has the settings and the caller's own meshes.
func TestDenialsOfMeshes(t *testing.T) {
	owner := NewUser("ann", []string{"owners"}, ByUserToken)
	err := ofShop().Check(owner, Write, MeshScope("other"), "PUT /meshes/other/meshtimeouts/a")
	for _, part := range []string{"outside the meshes pay, shop", MeshesVariable, "KUMA_ACCESS_STATIC_WRITE_GROUPS"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("the denial lacks %q: %v", part, err)
		}
	}
	err = ofShop().Check(owner, GenerateUserToken, GlobalScope, "POST /tokens/user")
	if err == nil || strings.Contains(err.Error(), MeshesVariable) {
		t.Errorf("the setting of meshes permits no user tokens: %v", err)
	}
}
