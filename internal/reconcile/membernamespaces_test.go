package reconcile

import (
	"slices"
	"testing"
	"time"

	"weft/internal/graph"
	"weft/internal/table"
	"weft/kind"
)

// The control plane that owns a MeshMultiZoneService lists the namespace of its oldest member, once, and all namespaces
// of one that an earlier release wrote.
func TestNamespacesOfMembersAreListed(t *testing.T) {
	for _, c := range []struct {
		what     string
		zone     string
		listed   []string
		selector map[string]string
		complete bool
		want     []string // nil: nothing is written
	}{
		{"a new one", "", nil, map[string]string{kind.DisplayName: "web"}, true, []string{"shop"}},
		{"of an earlier release", "", nil, map[string]string{kind.DisplayName: "web"}, false, []string{"shop", "pay"}},
		{"listed", "", []string{"pay"}, map[string]string{kind.DisplayName: "web"}, true, nil},
		{"listed under an earlier release", "", []string{"pay"}, map[string]string{kind.DisplayName: "web"}, false,
			[]string{"pay"}},
		{"without members", "", nil, map[string]string{kind.DisplayName: "api"}, true, nil},
		{"of a namespace", "", nil, map[string]string{kind.NamespaceLabel: "pay"}, true, nil},
		{"of global, in a zone", "east", nil, map[string]string{kind.DisplayName: "web"}, true, nil},
	} {
		t.Run(c.what, func(t *testing.T) {
			w := newWorld(t, "243.0.0.0/8")
			w.plan = NewPlan(graph.NewState(c.zone), w.plan.Ranges, nil)
			service := kind.MeshMultiZoneServices.Make("default", "web", kind.MeshMultiZoneService{
				Selector: kind.MultiZoneSelector{MeshService: &kind.LabelSelector{MatchLabels: c.selector},
					Namespaces: c.listed},
				Ports: []kind.ServicePort{{Port: 80}}})
			service.Vouched.Complete = c.complete
			service.Labels = map[string]string{kind.OriginLabel: kind.OriginGlobal}
			w.commit(func(tx *table.Tx) {
				w.plan.State.Tables.Put(tx, service)
				for i, namespace := range []string{"shop", "pay"} {
					member := remoteService("west", "web."+namespace)
					member.Labels[kind.NamespaceLabel], member.Labels[kind.DisplayName] = namespace, "web"
					member.Created = time.Unix(int64(i), 0)
					w.plan.State.Tables.Put(tx, member)
				}
			})
			written := w.plan.withNamespaces(w.reader(), service)
			var got []string
			if written != nil {
				got = written.Spec.Selector.Namespaces
			}
			if !slices.Equal(got, c.want) || written != nil && !written.Vouched.Complete {
				t.Errorf("it writes %+v, want the namespaces %q", written, c.want)
			}
		})
	}
}
