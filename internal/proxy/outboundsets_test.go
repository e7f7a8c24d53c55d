package proxy_test

import (
	"fmt"
	"testing"

	"weft/internal/graph"
	"weft/internal/graph/graphtest"
	"weft/internal/proxy"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// TestOutboundSetsFollowTheChange: a Dataplane that changes reads the selections of a small part of the mesh again, and
// another set of policies is found in it. A Dataplane with a known set wakes no conflicts.
func TestOutboundSetsFollowTheChange(t *testing.T) {
	s := graph.NewState("east")
	timeoutOf := func(app string) resource.Any {
		return kind.MeshTimeouts.Make("m", app, kind.MeshTimeout{
			TargetRef: dataplanes(map[string]string{"app": app}, ""),
			To:        []kind.ToItem[kind.TimeoutConf]{{TargetRef: kind.DestinationRef{Kind: "Mesh"}}}})
	}
	named := func(i int, app string) resource.Any {
		o := ofApp(app, nil)
		o.Envelope().Name = fmt.Sprint("dp-", i)
		return o
	}
	rows := []resource.Any{kind.Meshes.Make("", "m", kind.Mesh{}), timeoutOf("web"), timeoutOf("api")}
	const dataplanes = 1000
	for i := range dataplanes {
		rows = append(rows, named(i, "web"))
	}
	graphtest.Put(s, rows...)
	if sets := s.Proxies.OutboundSets.Pin("m"); len(sets) != 1 {
		t.Fatalf("the sets are %v, want one", sets)
	}
	selections := func() int { return s.Proxies.Selections.Len() }
	computed := map[string]int{}
	s.Tables.DB.Observe(func(stage table.Stage) { computed[stage.Table] += stage.Recomputed })
	for _, c := range []struct {
		app   string
		sets  string
		woken int // values for the whole mesh
	}{
		{"web", "[MeshTimeout m/web]", 0},
		{"api", "[MeshTimeout m/api MeshTimeout m/web]", 1},
		{"other", "[ MeshTimeout m/web]", 1},
		{"web", "[MeshTimeout m/web]", 1},
	} {
		clear(computed)
		had := selections()
		graphtest.Put(s, named(7, c.app))
		sets, _ := s.Proxies.OutboundSets.Value("m")
		if got := fmt.Sprint(sets); got != c.sets {
			t.Errorf("with a Dataplane of %s, the sets are %s, want %s", c.app, got, c.sets)
		}
		part, mesh := computed["outbound policy sets of a part of a mesh"], computed[s.Proxies.OutboundSets.String()]
		if part != 1 || mesh != c.woken || selections() != had {
			t.Errorf("with a Dataplane of %s, %d parts and %d meshes are computed, want 1 and %d", c.app, part, mesh,
				c.woken)
		}
	}
	if sets := s.Proxies.OutboundSets.Get(table.Eval(s.Tables.DB.Snapshot()), "m"); len(sets) != 1 ||
		sets[0] == (proxy.PolicySet{}) {
		t.Errorf("a rebuild has the sets %v", sets)
	}
}
