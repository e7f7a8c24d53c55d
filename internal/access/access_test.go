package access

import (
	"strings"
	"testing"

	"weft/resource"
)

func TestWhoMayByDefault(t *testing.T) {
	admin := NewUser("ann", []string{AdminGroup}, ByUserToken)
	bootstrap := NewUser(AdminName, nil, ByUserToken)
	user := NewUser("bob", []string{"ops"}, ByCertificate)
	for _, test := range []struct {
		user   User
		action Action
		want   resource.Code // 0: allowed
	}{
		{Anonymous(), Open, 0},
		{Anonymous(), Known, resource.Unauthorized},
		{Anonymous(), Read, resource.Unauthorized},
		{Anonymous(), "misspelled", resource.Unauthorized},
		{Administrator(), Write, 0},
		{user, Known, 0},
		{user, Read, 0},
		{user, Preview, 0},
		{Anonymous(), Preview, resource.Unauthorized},
		{user, Write, resource.Forbidden},
		{user, AdminResources, resource.Forbidden},
		{user, ViewConfigDump, resource.Forbidden},
		{user, GenerateUserToken, resource.Forbidden},
		{user, "misspelled", resource.Forbidden},
		{admin, AdminResources, 0},
		{bootstrap, GenerateZoneToken, 0},
	} {
		err := Defaults().Check(test.user, test.action, GlobalScope, "GET /meshes")
		if got := resource.CodeOf(err); got != test.want {
			t.Errorf("%s, %s: code %d, want %d", test.user, test.action, got, test.want)
		}
	}
}

func TestARuleReplacesTheDefault(t *testing.T) {
	rules := Defaults()
	rules[Write] = Rule{Users: []string{"bob"}, Groups: []string{"deployers"}}
	rules[Read] = Rule{Groups: []string{UnauthenticatedGroup}}
	for _, test := range []struct {
		user   User
		action Action
		may    bool
	}{
		{NewUser("bob", nil, ByUserToken), Write, true},
		{NewUser("ci", []string{"deployers"}, ByUserToken), Write, true},
		{NewUser("ann", []string{AdminGroup}, ByUserToken), Write, false},
		{Anonymous(), Read, true},
		{NewUser("bob", nil, ByUserToken), Read, false},
	} {
		if got := rules.Check(test.user, test.action, GlobalScope, "x") == nil; got != test.may {
			t.Errorf("%s, %s: allowed %v, want %v", test.user, test.action, got, test.may)
		}
	}
}

// A denial names the caller, the action and the setting that decides.
func TestADenialSaysWhatToDo(t *testing.T) {
	err := Defaults().Check(NewUser("bob", []string{"ops"}, ByUserToken), ViewConfigDump, MeshScope("default"),
		"GET /meshes/default/dataplanes/a/_config")
	for _, part := range []string{
		`user "bob" (groups ops, mesh-system:authenticated)`, "may not view the configuration of a proxy",
		"GET /meshes/default/dataplanes/a/_config", "KUMA_ACCESS_STATIC_GET_CONFIG_DUMP_GROUPS",
	} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("the denial lacks %q: %v", part, err)
		}
	}
}

// Neither a proof nor its groups can make somebody a member of the groups of strangers, or make it anonymous.
func TestAuthenticatedOnce(t *testing.T) {
	u := NewUser("ann", []string{AuthenticatedGroup, "ops"}, ByUserToken)
	if len(u.Groups) != 2 || !u.Known() || Anonymous().Known() || (User{}).Known() {
		t.Errorf("%s, known %v", u, u.Known())
	}
}
