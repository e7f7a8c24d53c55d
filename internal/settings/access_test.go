package settings

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weft/internal/access"
)

const readByAdmins = "KUMA_ACCESS_STATIC_READ_GROUPS=mesh-system:admin"

// TestMeshRules: the rules that are limited to meshes are read from the file, and from the variable as JSON and YAML.
// The rules of Kuma's settings stay beside them.
func TestMeshRules(t *testing.T) {
	const flow = `[{meshes: [shop, pay], actions: [read, write], groups: [shop-team]}, {meshes: [shop], actions: ` +
		`[read], users: [ann]}]`
	const text = `[{"meshes":["shop","pay"],"actions":["read","write"],"groups":["shop-team"]},` +
		`{"meshes":["shop"],"actions":["read"],"users":["ann"]}]`
	team := access.MeshRule{Setting: "access.static.meshes[0]", Meshes: []string{"shop", "pay"},
		Groups: []string{"shop-team"}}
	ann := access.MeshRule{Setting: "access.static.meshes[1]", Meshes: []string{"shop"}, Users: []string{"ann"}}
	admins := access.Rule{Users: []string{access.AdminName}, Groups: []string{access.AdminGroup}}
	readers, writers := admins, admins
	readers.Limited, writers.Limited = []access.MeshRule{team, ann}, []access.MeshRule{team}
	for name, source := range map[string][2]string{"file": {"access: {static: {meshes: " + flow + "}}", ""},
		"YAML": {"", flow}, "JSON": {"", text}} {
		environ := []string{readByAdmins}
		if source[1] != "" {
			environ = append(environ, access.MeshesVariable+"="+source[1])
		}
		s, _, err := Load(write(t, source[0]), environ, nil)
		if err != nil {
			t.Fatal(name, err)
		}
		want := map[access.Action]access.Rule{
			access.Read:              readers,
			access.Write:             writers,
			access.OperatorResources: admins,
		}
		for action, rule := range want {
			if diff := cmp.Diff(rule, s.Access[action]); diff != "" {
				t.Errorf("%s, %s: %s", name, action, diff)
			}
		}
	}
}

// TestInvalidMeshRules: a rule that permits nothing, or more than its meshes, stops the start.
func TestInvalidMeshRules(t *testing.T) {
	for rule, want := range map[string]string{
		`{meshes: [shop], actions: [read], groups: [a], zones: [b]}`:  `unknown field "zones"`,
		`{actions: [read], groups: [a]}`:                              "[0] names no mesh",
		`{meshes: [shop], groups: [a]}`:                               "[0] names no action",
		`{meshes: [shop], actions: [read]}`:                           "[0] names neither users",
		`{meshes: ["*"], actions: [read], groups: [a]}`:               "is not a name of a mesh",
		`{meshes: [shop], actions: [reads], groups: [a]}`:             `"reads", which cannot be limited`,
		`{meshes: [shop], actions: [generateUserToken], groups: [a]}`: `"generateUserToken", which cannot`,
		`{meshes: [no], actions: [read], groups: [a]}`:                "quote a name",
		`{meshes: [shop], actions: [read], users: [007]}`:             "quote a name",
		`{meshes: [shop], actions: [read], users: [ann, ""]}`:         `"", which is no name`,
		`{meshes: [shop], actions: [read], groups: ["a,b"]}`:          `"a,b", which is no name`,
		`{meshes: [shop], actions: [read], groups: [" a"]}`:           `" a", which is no name`,
		`shop`: "is not a list of",
	} {
		_, _, err := Load("", []string{readByAdmins, access.MeshesVariable + "=[" + rule + "]"}, nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", rule, err, want)
		}
	}
}

// TestMeshRulesWithoutEffect: a rule limits no user where every user may do the same in every mesh, as every user reads
// by default. Previews are limited by the action read.
func TestMeshRulesWithoutEffect(t *testing.T) {
	const read = access.MeshesVariable + "=[{meshes: [shop], actions: [read, preview], groups: [a]}]"
	_, _, err := Load("", []string{read}, nil)
	if err == nil || !strings.Contains(err.Error(), "KUMA_ACCESS_STATIC_READ_GROUPS") {
		t.Errorf("every user reads every mesh: %v", err)
	}
	for _, groups := range []string{"mesh-system:unauthenticated", "ops,mesh-system:authenticated"} {
		if _, _, err := Load("", []string{read, "KUMA_ACCESS_STATIC_READ_GROUPS=" + groups}, nil); err == nil {
			t.Errorf("%s reads every mesh", groups)
		}
	}
	if _, _, err := Load("", []string{read, readByAdmins}, nil); err != nil {
		t.Error(err)
	}
}
