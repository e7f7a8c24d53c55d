package push

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"weft/internal/graph"
	"weft/internal/mirror"
	"weft/internal/preview"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// drawTimeout draws timeouts for some proxies to some destinations, also as a shadow policy.
func drawTimeout(t *rapid.T, name string) resource.Any {
	second := kind.Duration(time.Duration(rapid.IntRange(1, 3).Draw(t, "seconds")) * time.Second)
	conf := kind.TimeoutConf{ConnectionTimeout: &second}
	if rapid.Bool().Draw(t, "of requests") {
		conf = kind.TimeoutConf{HTTP: &kind.HTTPTimeouts{RequestTimeout: &second}}
	}
	o := kind.MeshTimeouts.Make(mesh, name, kind.MeshTimeout{
		TargetRef: &kind.TargetRef{Kind: "Dataplane", Name: pick(t, "proxy", proxyNames...)},
		To: []kind.ToItem[kind.TimeoutConf]{{
			TargetRef: kind.DestinationRef{Kind: "MeshService", Name: pick(t, "service", serviceNames...)},
			Default:   conf,
		}},
	})
	switch rapid.IntRange(0, 5).Draw(t, "target") {
	case 0:
		o.Spec.TargetRef = nil
	case 1:
		o.Spec.To[0].TargetRef = kind.DestinationRef{Kind: "Mesh"}
	case 2:
		o.Labels = map[string]string{"kuma.io/effect": "shadow"}
	}
	return o
}

// drawChange draws a change of policies alone, or of any rows.
func drawChange(t *rapid.T) mirror.Batch {
	if rapid.Bool().Draw(t, "any rows") {
		return drawBatch(t)
	}
	var b mirror.Batch
	for _, name := range policyNames {
		switch rapid.IntRange(0, 4).Draw(t, "policy") {
		case 0:
			b.Put = append(b.Put, drawTimeout(t, name))
		case 1:
			b.Removed = append(b.Removed, kind.MeshTimeouts.Key(mesh, name))
		case 2:
			b.Put = append(b.Put, drawPermission(t, name))
		case 3:
			b.Removed = append(b.Removed, kind.MeshTrafficPermissions.Key(mesh, name))
		}
	}
	return b
}

func commitBatch(g *graph.State, b mirror.Batch) {
	g.Tables.DB.Commit(func(tx *table.Tx) {
		for _, o := range b.Put {
			g.Tables.Put(tx, o)
		}
		for _, key := range b.Removed {
			g.Tables.Remove(tx, key)
		}
	})
}

// versions returns the versions of all resources of each proxy, by type and name.
func versions(i *Inspector) map[string]map[string]string {
	all := map[string]map[string]string{}
	for _, name := range proxyNames {
		if resources, ok := i.Config(state.ProxyKey{Mesh: mesh, Name: name}); ok {
			all[name] = map[string]string{}
			for _, r := range resources {
				all[name][r.Type.String()+" "+r.Name] = r.Version
			}
		}
	}
	return all
}

// changed returns the resources that differ, with the change.
func changed(before, after map[string]string) []string {
	lines := []string{}
	for name, version := range before {
		switch next, ok := after[name]; {
		case !ok:
			lines = append(lines, "removed "+name)
		case next != version:
			lines = append(lines, "changed "+name)
		}
	}
	for name := range after {
		if _, ok := before[name]; !ok {
			lines = append(lines, "added "+name)
		}
	}
	slices.Sort(lines)
	return lines
}

// TestDiffEqualsTheCommit: a diff names the proxies and the resources that the commit of the same change changes.
func TestDiffEqualsTheCommit(t *testing.T) {
	differing := 0
	rapid.Check(t, func(t *rapid.T) {
		g := graph.NewState("default")
		g.Tables.DB.Clock = func() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }
		inspector := NewInspector(g)
		for range rapid.IntRange(3, 12).Draw(t, "earlier changes") {
			commitBatch(g, drawChange(t))
		}
		b := drawChange(t)
		diff, err := inspector.Diff(t.Context(), preview.Change{Put: b.Put, Removed: b.Removed}, preview.Options{})
		if err != nil {
			t.Fatal(err)
		}
		before := versions(inspector)
		commitBatch(g, b)
		after := versions(inspector)
		want := map[string][]string{}
		for _, name := range proxyNames {
			if lines := changed(before[name], after[name]); len(lines) > 0 {
				want[name] = lines
			}
		}
		var named []string
		for _, group := range diff.Groups {
			var lines []string
			for _, r := range group.Resources {
				lines = append(lines, fmt.Sprintf("%s %s %s", r.Change, r.Type, r.Name))
			}
			slices.Sort(lines)
			if first := group.Names[0]; !slices.Equal(lines, want[first]) {
				t.Errorf("%s: the diff has %q, the commit changes %q", first, lines, want[first])
			}
			named = append(named, group.Names...)
		}
		slices.Sort(named)
		if changing := slices.Sorted(maps.Keys(want)); !slices.Equal(named, changing) {
			t.Errorf("the diff has %q, the commit changes %q", named, changing)
		}
		differing += len(want)
	})
	if differing == 0 {
		t.Error("no drawn change has an effect")
	}
}

// TestDiffOfEgressRules: a rule about the SNI of an external service changes the conf of its callers at an egress, and
// not that of another external service.
func TestDiffOfEgressRules(t *testing.T) {
	hub, _, _ := newHub(t, never{})
	put(hub, kind.Meshes.Make("", mesh, kind.Mesh{}), everybody(), zoneEgress("one", "10.0.0.1"),
		externalService("api", "192.0.2.1"), externalService("other", "192.0.2.2"))
	g := hub.Inspector.config.state
	egress := g.Proxies.Proxy.Get(table.Eval(g.Tables.DB.Snapshot()), state.ProxyKey{Mesh: mesh, Name: "one"})
	rules := func(name string, seconds time.Duration, matches ...kind.RuleMatch) resource.Any {
		timeout := kind.Duration(seconds * time.Second)
		return kind.MeshTimeouts.Make(mesh, name, kind.MeshTimeout{Rules: []kind.RuleItem[kind.TimeoutConf]{{
			Matches: matches, Default: kind.TimeoutConf{ConnectionTimeout: &timeout}}}})
	}
	put(hub, rules("all", 9))
	sni := kind.RuleMatch{SNI: &kind.SNIMatch{Type: "Exact", Value: egress.Chains[0].SNIs[0]}}
	diff, err := hub.Inspector.Diff(t.Context(), preview.Change{Put: []resource.Any{rules("api", 5, sni)}},
		preview.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var values []string
	for _, group := range diff.Groups {
		for _, v := range group.Values {
			values = append(values, fmt.Sprintf("%s %q %s %s, %s", v.Section, v.Match, v.Field, v.Before.SetBy,
				v.After.SetBy))
		}
	}
	want := `MeshExternalService api:443 "" connectionTimeout MeshTimeout default/all rules[0], ` +
		`MeshTimeout default/api rules[0]`
	if !slices.Equal(values, []string{want}) {
		t.Errorf("the values are %q, want %q", values, want)
	}
}
