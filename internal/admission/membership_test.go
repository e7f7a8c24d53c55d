package admission_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weft/internal/admission"
	"weft/internal/store/memory"
	"weft/kind"
	"weft/resource"
)

const (
	teamA            = `{type: Mesh, name: m, dataplaneProxyMembership: {allowed: [{tags: {team: a}}]}}`
	notAdmittedError = "mesh m does not admit Dataplane web: networking.inbound[0] is allowed by none of " +
		"dataplaneProxyMembership.allowed: {team: a}"
)

// dataplaneOfTeam is a Dataplane with one inbound, tagged with a team.
func dataplaneOfTeam(name, team string) string {
	return fmt.Sprintf(`{type: Dataplane, mesh: m, name: %s, networking: {address: 10.0.0.1, inbound: [{port: 80, `+
		`tags: {team: %s}}]}}`, name, team)
}

// TestNotAdmittedDataplane: a Dataplane that the mesh does not admit is not written, and the stored one is kept.
func TestNotAdmittedDataplane(t *testing.T) {
	w, rows := newEastWriter(t)
	put(t, w, dataplaneOfTeam("web", "b"))
	put(t, w, teamA)
	stored := listing(t, rows)
	for name, doc := range map[string]string{"web": dataplaneOfTeam("web", "c"),
		"other": dataplaneOfTeam("other", "b")} {
		for _, dryRun := range []bool{false, true} {
			_, err := w.Put(t.Context(), parse(t, doc), admission.Change{DryRun: dryRun})
			wantError(t, err, resource.Forbidden, strings.Replace(notAdmittedError, "web", name, 1))
		}
	}
	if d := cmp.Diff(stored, listing(t, rows)); d != "" {
		t.Errorf("a rejected write changed:\n%s", d)
	}
	put(t, w, dataplaneOfTeam("web", "a"))
	put(t, w, `{type: Mesh, name: m}`)
	put(t, w, dataplaneOfTeam("web", "b"))
}

// TestMembershipInAZone: a zone applies the last Mesh that it received from global. Global itself accepts the
// Dataplanes that a zone has written.
func TestMembershipInAZone(t *testing.T) {
	w, _ := newWriterWithMesh(t, admission.Options{Zone: "east", Joined: true})
	rule := func(team string) {
		t.Helper()
		if err := w.Receive(t.Context(),
			received(global, kind.Meshes, "m",
				`{"dataplaneProxyMembership":{"allowed":[{"tags":{"team":"`+team+`"}}]}}`)); err != nil {
			t.Fatal(err)
		}
	}
	rule("a") // and no update from global from then on
	_, err := w.Put(t.Context(), parse(t, dataplaneOfTeam("web", "b")), admission.Change{})
	wantError(t, err, resource.Forbidden, notAdmittedError)
	put(t, w, dataplaneOfTeam("web", "a"))
	rule("b")
	put(t, w, dataplaneOfTeam("web", "b"))

	w, _ = newWriterWithMesh(t, admission.Options{})
	put(t, w, teamA)
	if err := w.Receive(t.Context(),
		received(west, kind.Dataplanes, "web",
			`{"networking":{"address":"10.0.0.1","inbound":[{"port":80,"tags":{"team":"b"}}]}}`)); err != nil {
		t.Errorf("global does not take what a zone has: %v", err)
	}
}

// TestEnvironment: a joined zone tags its inbounds with the environment; membership rules know it in every zone.
func TestEnvironment(t *testing.T) {
	for name, test := range map[string]struct {
		joined bool
		want   string
	}{"alone": {false, ""}, "joined": {true, "universal"}} {
		t.Run(name, func(t *testing.T) {
			w, _ := newWriterWithMesh(t, admission.Options{Zone: "east", Joined: test.joined})
			rule := `{"dataplaneProxyMembership":{"allowed":[{"tags":{"kuma.io/environment":"universal",` +
				`"kuma.io/zone":"east"}}]}}`
			if err := w.Receive(t.Context(), received(global, kind.Meshes, "m", rule)); err != nil {
				t.Fatal(err)
			}
			dp := put(t, w, dataplaneOfTeam("web", "a")).Object.(*resource.Object[kind.Dataplane])
			if got := dp.Spec.Networking.Inbound[0].Tags[kind.EnvironmentTag]; got != test.want {
				t.Errorf("the tag is %q, want %q", got, test.want)
			}
			_, err := w.Put(t.Context(),
				parse(t, strings.Replace(dataplaneOfTeam("web", "a"), "team: a", "kuma.io/environment: kubernetes", 1)),
				admission.Change{})
			wantError(t, err, resource.Invalid,
				`networking.inbound[0].tags[kuma.io/environment]: is "kubernetes", and `+
					`the control plane sets "universal"; leave it out`)
		})
	}
}

// TestEnvironmentOfAJoiningZone: Dataplanes that were stored before the zone joined get the tag at the next start, as a
// write would set it, and nothing else changes.
func TestEnvironmentOfAJoiningZone(t *testing.T) {
	alone, rows := newWriterWithMesh(t, admission.Options{Zone: "east"})
	put(t, alone, `{type: Mesh, name: m}`)
	before := put(t, alone, dataplaneOfTeam("web", "a")).Object.(*resource.Object[kind.Dataplane])
	joined := admission.New(rows, admission.Options{Zone: "east", Joined: true})
	theirs := received(west, kind.Dataplanes, "web",
		`{"networking":{"address":"10.0.0.1","inbound":[{"port":80,"tags":{"team":"b"}}]}}`)
	if err := joined.Receive(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	if done := adopt(t, joined, rows); done != (admission.Adopted{Tagged: 1}) {
		t.Errorf("joined: %+v", done)
	}
	after := read(t, rows, before.Key()).(*resource.Object[kind.Dataplane])
	want := map[string]string{"team": "a", kind.ZoneLabel: "east", kind.EnvironmentTag: kind.Universal}
	if got := after.Spec.Networking.Inbound[0].Tags; !maps.Equal(got, want) {
		t.Errorf("the tags are %v, want %v", got, want)
	}
	if !slices.Equal(after.Vouched.Operator, before.Vouched.Operator) || len(before.Vouched.Operator) == 0 ||
		!maps.Equal(after.Labels, before.Labels) {
		t.Errorf("it was vouched for %v with the labels %v, and is for %v with %v", before.Vouched, before.Labels,
			after.Vouched, after.Labels)
	}
	other := read(t, rows, theirs.Key()).(*resource.Object[kind.Dataplane])
	if got := other.Spec.Networking.Inbound[0].Tags; !maps.Equal(got, map[string]string{"team": "b"}) {
		t.Errorf("another zone's Dataplane has the tags %v", got)
	}
	if done := adopt(t, joined, rows); done != (admission.Adopted{}) {
		t.Errorf("a second time: %+v", done)
	}
	if put := put(t, joined, dataplaneOfTeam("web", "a")); put.Changed {
		t.Error("what its owner writes once more is another")
	}
	renamed := admission.New(rows, admission.Options{Zone: "north", Joined: true})
	adopt(t, renamed, rows)
	after = read(t, rows, before.Key()).(*resource.Object[kind.Dataplane])
	if got := after.Spec.Networking.Inbound[0].Tags[kind.ZoneLabel]; got != "north" {
		t.Errorf("under another name of the zone its tag is %q", got)
	}
}

// TestEvictionWarnings compares the members before and after the write of a Mesh.
func TestEvictionWarnings(t *testing.T) {
	rows := memory.New(memory.Options{})
	t.Cleanup(func() { _ = rows.Close() })
	w, east := admission.New(rows, admission.Options{}), kind.Owner{Zone: "east"}
	put(t, w, `{type: Mesh, name: m}`)
	receive := func(owner kind.Owner, name, team string) {
		t.Helper()
		row := received(owner, kind.Dataplanes, name,
			`{"networking":{"address":"10.0.0.1","inbound":[{"port":80,"tags":{"team":"`+team+`"}}]}}`)
		row.Body = append(bytes.TrimSuffix(row.Body, []byte("}")),
			`,"vouched":{"operator":["tag team=`+team+`"],"complete":true}}`...)
		if err := w.Receive(t.Context(), row); err != nil {
			t.Fatal(err)
		}
	}
	receive(east, "web-1", "b")
	receive(west, "web-1", "b")
	receive(west, "web-2", "a")
	says := func(doc string, want ...string) {
		t.Helper()
		before, err := w.Put(t.Context(), parse(t, doc), admission.Change{DryRun: true})
		if err != nil {
			t.Fatal(err)
		}
		if after := put(t, w, doc); !slices.Equal(before.Warnings, want) || !slices.Equal(after.Warnings, want) {
			t.Errorf("%s is warned of\n%q before and\n%q after, want\n%q", doc, before.Warnings, after.Warnings, want)
		}
	}
	says(teamA, "dataplaneProxyMembership evicts 2 Dataplanes: web-1 of zone east, web-1 of zone west: "+
		"networking.inbound[0] is allowed by none of dataplaneProxyMembership.allowed: {team: a} (team is b)")
	says(teamA)
	says(`{type: Mesh, name: m, dataplaneProxyMembership: {allowed: [{tags: {kuma.io/zone: west, team: "*"}}]}}`)
	says(`{type: Mesh, name: m, dataplaneProxyMembership: {blocked: [{tags: {team: a}}]}}`,
		"dataplaneProxyMembership evicts 1 Dataplane: web-2 of zone west: networking.inbound[0] is "+
			"blocked by dataplaneProxyMembership.blocked[0] {team: a}")
	says(`{type: Mesh, name: m, dataplaneProxyMembership: {allowed: []}}`,
		`dataplaneProxyMembership.allowed: is empty, which admits every proxy; to admit none, block `+
			`{kuma.io/zone: "*"}`)
	says(`{type: Mesh, name: m, dataplaneProxyMembership: {blocked: [{kubernetes: {namespace: {name: ns-1}}}, `+
		`{kubernetes: {pod: {labels: {a: b}}}}]}}`,
		"dataplaneProxyMembership.blocked[1].kubernetes: rests on labels, which are hard to restrict; a namespace by "+
			"its name and a zone are not the Pod's to choose")
	for i := range 12 {
		receive(east, fmt.Sprintf("api-%02d", i), "c")
	}
	says(`{type: Mesh, name: m, dataplaneProxyMembership: {blocked: [{tags: {team: c}}]}}`,
		"dataplaneProxyMembership evicts 12 Dataplanes: api-00 of zone east, api-01 of zone east, api-02 of zone "+
			"east, api-03 of zone east, api-04 of zone east, "+
			"api-05 of zone east, api-06 of zone east, api-07 of zone east, api-08 of zone east, api-09 of zone "+
			"east and 2 more: networking.inbound[0] is blocked by dataplaneProxyMembership.blocked[0] {team: c}")
	for i := range 11 {
		receive(west, fmt.Sprintf("db-%02d", i), fmt.Sprintf("db-%02d", i))
	}
	put(t, w, `{type: Mesh, name: m}`)
	const none = `{type: Mesh, name: m, dataplaneProxyMembership: {allowed: [{tags: {owner: "*"}}, {tags: {team: z}}]}}`
	warned, err := w.Put(t.Context(), parse(t, none), admission.Change{DryRun: true})
	if err != nil {
		t.Fatal(err)
	}
	const rule = ": networking.inbound[0] is allowed by none of dataplaneProxyMembership.allowed: {owner: *} " +
		"(no owner), {team: z} (team is "
	if n := len(warned.Warnings); n != 11 || !strings.HasSuffix(warned.Warnings[0], "and 2 more"+rule+"c)") ||
		!strings.HasSuffix(warned.Warnings[1], "2 Dataplanes: web-1 of zone east, web-1 of zone west"+rule+"b)") ||
		warned.Warnings[10] != "dataplaneProxyMembership evicts 4 Dataplanes for 4 other reasons" {
		t.Errorf("%d warnings: %q", n, warned.Warnings)
	}
}

// TestDataplaneMovesBetweenMeshes writes a Dataplane into two meshes that admit it, one after the other. A third mesh
// does not admit it, and it is not written. (Mesh Membership.)
func TestDataplaneMovesBetweenMeshes(t *testing.T) {
	w, _ := newEastWriter(t)
	for mesh, team := range map[string]string{"old": "a", "new": "a", "closed": "b"} {
		put(t, w, fmt.Sprintf(`{type: Mesh, name: %s, dataplaneProxyMembership: {allowed: [{tags: {team: %s}}]}}`, mesh,
			team))
	}
	document := func(mesh string) resource.Any {
		return parse(t,
			fmt.Sprintf(`{type: Dataplane, mesh: %s, name: web, networking: {address: 10.0.0.1, inbound: [{port: 80, `+
				`tags: {team: a}}]}}`, mesh))
	}
	for _, mesh := range []string{"old", "new", "old"} {
		if _, err := w.Put(t.Context(), document(mesh), admission.Change{}); err != nil {
			t.Errorf("mesh %s: %v", mesh, err)
		}
		if err := w.Delete(t.Context(), document(mesh).Key(), admission.Change{}); err != nil {
			t.Fatal(err)
		}
	}
	_, err := w.Put(t.Context(), document("closed"), admission.Change{})
	wantError(t, err, resource.Forbidden, "mesh closed does not admit Dataplane web")
}
