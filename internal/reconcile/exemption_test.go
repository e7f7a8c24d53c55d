package reconcile

import (
	"testing"
	"time"

	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// The control plane completes a Mesh of an earlier release once. It exempts members of the mesh for a while if one of
// them would be lost: a Dataplane that an agent registered.
func TestMembersOfAnEarlierReleaseAreExempt(t *testing.T) {
	machine := func(record resource.Vouched, labels map[string]string) *resource.Object[kind.Dataplane] {
		dp := kind.Dataplanes.Make("default", "web-1", kind.Dataplane{Networking: kind.Networking{Address: "10.0.0.1",
			Inbound: []kind.Inbound{{Port: 80, Tags: map[string]string{"app": "web"}}}}})
		dp.Labels, dp.Vouched = labels, record
		return dp
	}
	registered := resource.Vouched{Token: []string{kind.NameFact("web-1")}}
	complete := registered
	complete.Complete = true
	for _, c := range []struct {
		what           string
		zone           string
		dp             *resource.Object[kind.Dataplane]
		mesh           resource.Vouched
		origin         string
		writes, exempt bool
	}{
		{"registered", "east", machine(registered, nil), resource.Vouched{}, "", true, true},
		{"registered with a complete record", "east", machine(complete, nil), resource.Vouched{}, "", true, false},
		{"of an operator", "east", machine(resource.Vouched{Operator: []string{kind.NameFact("web-1")}}, nil),
			resource.Vouched{}, "", true, false},
		{"of a Pod", "east", machine(resource.Vouched{}, map[string]string{kind.PodUIDLabel: "uid"}),
			resource.Vouched{}, "", true, false},
		{"a complete Mesh", "east", machine(registered, nil), resource.Vouched{Complete: true}, "", false, false},
		{"a Mesh of global", "east", machine(registered, nil), resource.Vouched{}, kind.OriginGlobal, false, false},
		{"on global", "", machine(registered, nil), resource.Vouched{}, kind.OriginGlobal, true, true},
	} {
		t.Run(c.what, func(t *testing.T) {
			w := newWorldIn(t, c.zone, "241.0.0.0/8")
			mesh := kind.Meshes.Make("", "default", kind.Mesh{})
			mesh.Vouched = c.mesh
			if c.origin != "" {
				mesh.Labels = map[string]string{kind.OriginLabel: c.origin}
			}
			w.commit(func(tx *table.Tx) {
				w.plan.State.Tables.Put(tx, mesh)
				w.plan.State.Tables.Put(tx, c.dp)
			})
			do := w.writes(w.reader(), ExemptionKind, "").Do
			if len(do) > 0 != c.writes {
				t.Fatalf("the writes are %+v, want some: %t", do, c.writes)
			}
			if !c.writes {
				return
			}
			written := do[0].Put.(*resource.Object[kind.Mesh])
			exempt := written.Spec.UnvouchedMembers
			if !written.Vouched.Complete || c.exempt != (exempt != nil) {
				t.Errorf("it writes %+v, %+v, want an exemption: %t", written.Spec, written.Vouched, c.exempt)
			}
			if exempt != nil && !exempt.Until.After(w.now.Add(kind.UnvouchedMembersTime-25*time.Hour)) {
				t.Errorf("the exemption ends at %s", exempt.Until)
			}
		})
	}
}

// A mesh of an earlier release in which a Pod has its SPIFFE ID by a label of its own exempts tags and labels.
func TestIdentitiesOfAnEarlierReleaseAreExempt(t *testing.T) {
	for path, want := range map[string]bool{"/web": true, "/ns/{{ .Namespace }}/web": false} {
		w := newWorldIn(t, "east", "241.0.0.0/8")
		pod := kind.Dataplanes.Make("default", "web-1.shop", kind.Dataplane{Networking: kind.Networking{
			Address: "10.0.0.1"}})
		pod.Labels = map[string]string{kind.PodUIDLabel: "uid", kind.NamespaceLabel: "shop", "app": "web"}
		w.commit(func(tx *table.Tx) {
			w.plan.State.Tables.Put(tx, kind.Meshes.Make("", "default", kind.Mesh{}))
			w.plan.State.Tables.Put(tx, pod)
			w.plan.State.Tables.Put(tx, kind.MeshIdentities.Make("default", "id", kind.MeshIdentity{
				Selector: &kind.IdentitySelector{Dataplane: &kind.LabelSelector{
					MatchLabels: map[string]string{"app": "web"}}},
				SpiffeID: &kind.SpiffeIDTemplate{Path: path},
				Provider: kind.IdentityProvider{Type: kind.Bundled},
			}))
		})
		do := w.writes(w.reader(), ExemptionKind, "").Do
		if len(do) != 1 {
			t.Fatalf("%s: the writes are %+v, want one", path, do)
		}
		exempt := do[0].Put.(*resource.Object[kind.Mesh]).Spec.UnvouchedMembers
		if (exempt != nil) != want || want && (!exempt.Tags || exempt.Addresses) {
			t.Errorf("%s: the exemption is %+v, want one of tags: %t", path, exempt, want)
		}
	}
}
