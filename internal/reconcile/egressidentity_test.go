package reconcile

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

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
			rc.tellEgress(w.reader(), step.Put)
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

// SPIRE's roots can't be joined with others: the meshes that a ZoneEgress can't serve for it are named, and nothing
// goes to them in the clear. (Zone Egress Identity.)
func TestAZoneEgressNamesTheMeshesThatItCanNotServe(t *testing.T) {
	w := newWorld(t, "241.0.0.0/8")
	spire := func(mesh, domain string) resource.Any {
		return kind.MeshIdentities.Make(mesh, "spire", kind.MeshIdentity{
			SpiffeID: &kind.SpiffeIDTemplate{TrustDomain: domain}, Provider: kind.IdentityProvider{Type: "Spire"},
		})
	}
	for _, mesh := range []string{"default", "plain", "shop", "spired", "elsewhere"} {
		w.put(kind.Meshes.Make("", mesh, kind.Mesh{}))
	}
	w.put(spire("default", "corp.example"), spire("spired", "corp.example"), spire("elsewhere", "other.example"), identityFor("shop", "all", nil), ownEgress("ze"))
	for _, step := range w.plan.egressIdentities(w.reader()) {
		w.put(step.Put)
	}
	status, _ := w.plan.State.ZoneEgressStatuses.Find(w.reader(), "", "ze")
	said, ok := conditionOf(status.Spec.Conditions, "Compatible")
	if !ok || said.Status != "False" || !strings.Contains(said.Message, "proxies of the meshes elsewhere, shop and it refuse each other") {
		t.Errorf("its conditions are %+v", status.Spec.Conditions)
	}
}

// The root under which a ZoneEgress has certificates stays believed until the last of them and its connections have
// ended, and what it held goes with it.
func TestWhatAZoneEgressHoldsKeepsItsRoot(t *testing.T) {
	w := newWorld(t, "241.0.0.0/8")
	row := kind.ZoneEgressLeavesList.Make("default", "ze", kind.DataplaneLeaves{Leaves: []kind.HeldLeaf{
		{LeafNames: kind.NamesOf("spiffe://default/zone-egress"), MeshIdentity: kind.MTLSIdentity, Root: "old", Until: kind.Time{Time: w.now.Add(time.Minute)}},
		{LeafNames: kind.NamesOf("spiffe://default/zone-egress"), MeshIdentity: kind.MTLSIdentity, Root: "new", Until: kind.Time{Time: w.now.Add(time.Hour)}},
	}})
	w.put(ownEgress("ze"), row)
	holders := func(root string) int { return len(w.plan.State.Holders(w.reader(), "default", root)) }
	for _, at := range []struct {
		after    time.Duration
		old, new int
	}{{0, 1, 1}, {time.Minute, 1, 1}, {11 * time.Minute, 0, 1}, {70 * time.Minute, 0, 0}} {
		w.now = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC).Add(at.after)
		w.reconcile(kind.ZoneEgressLeavesList.Name, "ze")
		if holders("old") != at.old || holders("new") != at.new {
			t.Errorf("after %s the former root has %d holders and the new one %d, want %d and %d", at.after, holders("old"), holders("new"), at.old, at.new)
		}
	}
	w.put(row)
	w.remove(kind.ZoneEgresses.Key("", "ze"))
	w.reconcile(kind.ZoneEgressLeavesList.Name, "ze")
	if holders("new") != 0 {
		t.Error("what a ZoneEgress held stays though it is gone")
	}
}
