package reconcile

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"weft/kind"
	"weft/resource"
)

func identityFor(mesh, name string, matchLabels map[string]string) resource.Any {
	return kind.MeshIdentities.Make(mesh, name, kind.MeshIdentity{
		Selector: &kind.IdentitySelector{Dataplane: &kind.LabelSelector{MatchLabels: matchLabels}}, Provider: kind.IdentityProvider{Type: "Bundled"},
	})
}

func ownEgress(name string) resource.Any {
	o := kind.ZoneEgresses.Make("", name, kind.ZoneEgress{Zone: "east"})
	o.Labels = map[string]string{kind.ZoneLabel: "east", kind.OriginLabel: kind.OriginZone}
	return o
}

// What stands in the status of a ZoneEgress follows the rules, and its log line comes once for each change.
func TestAZoneEgressSaysWhoseIdentityItHas(t *testing.T) {
	w := newWorld(t, "241.0.0.0/8")
	var log bytes.Buffer
	rc := New(w.plan, nil, nil, slog.New(slog.NewTextHandler(&log, nil)))
	look := func() kind.Condition {
		t.Helper()
		for _, step := range w.plan.egressIdentities(w.reader()) {
			rc.tellEgressIdentity(w.reader(), step.Put)
			w.put(step.Put)
		}
		if again := w.plan.egressIdentities(w.reader()); len(again) > 0 {
			t.Errorf("what is said is written again: %v", again)
		}
		status, ok := w.plan.State.ZoneEgressStatuses.Find(w.reader(), "", "ze")
		if !ok {
			t.Fatal("it has no status")
		}
		return status.Spec.Conditions[0]
	}
	for _, step := range []struct {
		what         string
		put          resource.Any
		status, says string
		logged       string
	}{
		{"without a mesh", ownEgress("ze"), "False", "no mesh has an identity", "level=ERROR"},
		{"one mesh without identities", kind.Meshes.Make("", "shop", kind.Mesh{}), "False", "no mesh has an identity", ""},
		{"one for a part of the mesh", identityFor("shop", "part", map[string]string{"app": "web"}), "False", "no mesh has an identity", ""},
		{"one for all", identityFor("shop", "all", nil), "True", "MeshIdentity shop/all", ""},
		{"a second mesh", kind.Meshes.Make("", "apple", kind.Mesh{}), "True", "set KUMA_DEFAULTS_MESH", "level=WARN"},
		{"another of the first mesh", identityFor("shop", "other", nil), "True", "set KUMA_DEFAULTS_MESH", ""},
		{"the usual mesh", kind.Meshes.Make("", "default", kind.Mesh{}), "True", "set KUMA_DEFAULTS_MESH", ""},
		{"its identity", identityFor("default", "identity", nil), "True", "MeshIdentity default/identity", ""},
	} {
		log.Reset()
		w.put(step.put)
		said := look()
		if said.Type != "Identity" || said.Status != step.status || !strings.Contains(said.Message, step.says) {
			t.Errorf("%s: it says %+v, want %s that says %q", step.what, said, step.status, step.says)
		}
		if got := log.String(); !strings.Contains(got, step.logged) || step.logged == "" && got != "" {
			t.Errorf("%s: the log says %q, want %q", step.what, got, step.logged)
		}
	}
}
