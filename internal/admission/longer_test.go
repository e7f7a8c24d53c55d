package admission_test

import (
	"testing"

	"weft/internal/admission"
	"weft/kind"
	"weft/kind/kindtest"
	"weft/resource"
)

var east = kind.Owner{Zone: "east"}

// TestTheSecondResourceOfAKeyHasALongerOne: two owners chose names whose copies have one key. The first keeps it, the
// second is stored under a longer one, and each keeps its own through changes and deletions of the other.
func TestTheSecondResourceOfAKeyHasALongerOne(t *testing.T) {
	w, rows := newWriterWithMesh(t, admission.Options{})
	first := received(west, kind.MeshServices, kindtest.WestName, webService)
	second := received(east, kind.MeshServices, kindtest.EastName, webService)
	if first.Key() != second.Key() {
		t.Fatalf("the keys are %s and %s", first.Key(), second.Key())
	}
	receive := func(r admission.Received, at resource.Key) {
		t.Helper()
		row, err := w.ReceiveAt(t.Context(), r, nil)
		if err != nil || row.Key != at {
			t.Fatalf("%s is stored as %s (%v), want %s", r.Owner, row.Key, err, at)
		}
		if stored := read(t, rows, at); kind.OwnerOf(stored.Envelope()) != r.Owner {
			t.Errorf("%s is of %s", at, kind.OwnerOf(stored.Envelope()))
		}
	}
	remove := func(r admission.Received, at resource.Key) {
		t.Helper()
		if key, err := w.RemoveReceivedAt(t.Context(), r); err != nil || key != at {
			t.Fatalf("%s is deleted as %s (%v), want %s", r.Owner, key, err, at)
		}
		wantGone(t, rows, at)
	}
	receive(first, first.Key())
	// The sender's log has no row of it, so it seems to be new at its key.
	row, err := w.ReceiveAt(t.Context(), second, &admission.ReceivedRow{Key: second.Key()})
	if err != nil || row.Key != second.LongerKey() {
		t.Fatalf("it is stored as %s (%v), want %s", row.Key, err, second.LongerKey())
	}
	for range 2 {
		receive(second, second.LongerKey())
		receive(first, first.Key())
	}
	remove(first, first.Key())
	receive(second, second.LongerKey())
	receive(first, first.Key())
	remove(second, second.LongerKey())
	read(t, rows, first.Key())
	remove(second, second.LongerKey())
	remove(first, first.Key())
	receive(second, second.Key())
	receive(first, first.LongerKey())
}

// TestAnInsightHasTheKeyOfItsDataplane: a copy of an insight is found by the name of its Dataplane's copy, and deleted
// with it.
func TestAnInsightHasTheKeyOfItsDataplane(t *testing.T) {
	const proxy, status = `{"networking":{"address":"10.0.0.1","inbound":[{"port":80}]}}`, `{"subscriptions":[]}`
	w, rows := newWriterWithMesh(t, admission.Options{})
	second := received(east, kind.Dataplanes, kindtest.EastName, proxy)
	insight := received(east, kind.DataplaneInsights, kindtest.EastName, status)
	at := resource.Key{Kind: insight.Key().Kind, Mesh: "m", Name: second.LongerKey().Name}
	for _, r := range []admission.Received{received(west, kind.Dataplanes, kindtest.WestName, proxy), second, insight} {
		if err := w.Receive(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	read(t, rows, at)
	wantGone(t, rows, insight.Key())
	if err := w.RemoveReceived(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	wantGone(t, rows, at)
}

// TestANameKeepsNoCopyOut: a user of this control plane who chose the name of a copy keeps no resource of another
// control plane out, and can choose no name that would.
func TestANameKeepsNoCopyOut(t *testing.T) {
	w, rows := newWriterWithMesh(t, admission.Options{Zone: "east", Joined: true})
	deny := received(global, kind.MeshTrafficPermissions, "deny", `{"rules":[]}`)
	own := `{type: MeshTrafficPermission, mesh: m, name: ` + deny.Key().Name + `, spec: {rules: [{default: {}}]}}`
	put(t, w, own)
	if err := w.Receive(t.Context(), deny); err != nil {
		t.Fatal(err)
	}
	read(t, rows, deny.LongerKey())
	if owner := kind.OwnerOf(read(t, rows, deny.Key()).Envelope()); owner != east {
		t.Errorf("the policy of the user is of %s", owner)
	}
	put(t, w, own)
	other := received(global, kind.MeshTrafficPermissions, "other", `{"rules":[]}`)
	for _, document := range []string{
		`{type: MeshTrafficPermission, mesh: m, name: ` + other.LongerKey().Name + `, spec: {rules: []}}`,
		`{type: MeshService, mesh: m, name: ` + other.LongerKey().Name + `, spec: {selector: {dataplaneRef: {name: a}},
			ports: [{port: 80}]}}`,
	} {
		_, err := w.Put(t.Context(), parse(t, document), admission.Change{})
		wantError(t, err, resource.Invalid, "name: ends like the name of a copy")
	}
	put(t, w, `{type: Secret, mesh: m, name: `+other.LongerKey().Name+`, data: eA==}`) // its copies keep their names
}

// TestAZoneTakesALongerKey: a zone that leaves global and joins again gives a policy with a longer key back.
func TestAZoneTakesALongerKey(t *testing.T) {
	w, rows := newWriterWithMesh(t, admission.Options{Zone: "east", Joined: true})
	deny := received(global, kind.MeshTrafficPermissions, "deny", `{"rules":[]}`)
	put(t, w, `{type: MeshTrafficPermission, mesh: m, name: `+deny.Key().Name+`, spec: {rules: [{default: {}}]}}`)
	if err := w.Receive(t.Context(), deny); err != nil {
		t.Fatal(err)
	}
	alone := admission.New(rows, admission.Options{Zone: "east"})
	if done := adopt(t, alone, rows); done != (admission.Adopted{Taken: 1}) {
		t.Errorf("alone: %+v", done)
	}
	joined := admission.New(rows, admission.Options{Zone: "east", Joined: true})
	if done := adopt(t, joined, rows); done != (admission.Adopted{Given: 1}) {
		t.Errorf("joined again: %+v", done)
	}
	if err := joined.RemoveReceived(t.Context(), deny); err != nil {
		t.Fatal(err)
	}
	wantGone(t, rows, deny.LongerKey())
	read(t, rows, deny.Key())
}
