package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"weft/kind"
	"weft/resource"
)

// TestSelects says for each policy to which sections of the proxy web-1 it applies.
func TestSelects(t *testing.T) {
	for _, c := range []struct{ policy, want string }{
		{"p: Mesh", "all"},
		{"p: Dataplane", "all"},
		{"p: Dataplane app=web env=prod", "all"},
		{"p: Dataplane app=web env=dev", ""},
		{"p: Dataplane missing=web", ""},
		{"p: Dataplane name=web-1", "all"},
		{"p: Dataplane name=web-2", ""},
		{"p: Dataplane name=web-1 app=api", ""},
		{"p: Dataplane name=web-1 ns=a", "all"},
		{"p: Dataplane name=web-1 ns=b", ""},
		{"p: Dataplane section=admin", "admin"},
		{"p: Dataplane app=web section=http", "http"},
		{"p: Dataplane app=api section=http", ""},
		{"p: Dataplane section=nope", ""},
		{"p: MeshSubset version=v1", "http+admin"},
		{"p: MeshSubset version=v1 kuma.io/service=web", "http"},
		{"p: MeshSubset version=v2", ""},
		{"p: MeshSubset", "http+admin"},
		{"p: MeshService kuma.io/service=web-admin", "admin"},
		{"p: MeshServiceSubset kuma.io/service=web version=v1", "http"},
		{"p zone: Mesh", "all"},
		{"p kuma.io/origin=zone kuma.io/zone=west: Mesh", ""},
		{"p kuma.io/origin=global kuma.io/zone=west: Mesh", "all"},
		{"p kuma.io/origin=zone kuma.io/zone=west producer ns=b: Mesh", "all"},
		{"p ns=b: Mesh", "all"},
		{"p producer ns=b: Mesh", "all"},
		{"p consumer ns=b: Mesh", ""},
		{"p consumer ns=a: Mesh", "all"},
		{"p workload-owner ns=b: Mesh", ""},
		{"p workload-owner ns=a: Mesh", "all"},
	} {
		got := ""
		for _, s := range newWorld(t, c.policy+" = {}", false).list.Select(web()) {
			if got = strings.Join(s.Sections, "+"); s.Sections == nil {
				got = "all"
			}
		}
		if got != c.want {
			t.Errorf("%s selects %q, want %q", c.policy, got, c.want)
		}
	}
}

// TestSelectsInNoZone: the rows of a zone are those of its own proxies, so a proxy without a zone has all policies.
func TestSelectsInNoZone(t *testing.T) {
	w, p := newWorld(t, "p zone: Mesh = {}", false), web()
	p.Zone = ""
	if got := w.list.Select(p); len(got) != 1 {
		t.Errorf("%d policies apply, want 1", len(got))
	}
}

// TestSelectsOnce: a policy that the tags of several sections lead to is in the selection once.
func TestSelectsOnce(t *testing.T) {
	p := web()
	p.Sections = append(p.Sections, p.Sections[0])
	got := newWorld(t, "p: MeshService kuma.io/service=web = {}", false).list.Select(p)
	if len(got) != 1 || fmt.Sprint(got[0].Sections) != "[http]" {
		t.Errorf("the selection is %v, want one policy for http", got)
	}
}

func TestTargetOf(t *testing.T) {
	labels := map[string]string{"app": "web"}
	for _, c := range []struct {
		ref  *kind.TargetRef
		want Target
	}{
		{nil, Target{}},
		{&kind.TargetRef{Kind: "Mesh"}, Target{}},
		{&kind.TargetRef{Kind: "Dataplane", Labels: labels, SectionName: "http"},
			Target{Kind: Dataplane, Labels: labels, Section: "http"}},
		{&kind.TargetRef{Kind: "Dataplane", Name: "web-1", Namespace: "a"},
			Target{Kind: Dataplane, Name: "web-1", Namespace: "a"}},
	} {
		if got := TargetOf(c.ref); !got.equal(&c.want) {
			t.Errorf("the target of %+v is %+v, want %+v", c.ref, got, c.want)
		}
	}
}

func TestAppliesTo(t *testing.T) {
	for _, c := range []struct {
		sections []string
		section  string
		want     bool
	}{
		{nil, "http", true},
		{[]string{"http"}, "http", true},
		{[]string{"http"}, "admin+http", true},
		{[]string{"http"}, "https", false},
		{[]string{}, "http", false},
	} {
		if got := (&Selected{Sections: c.sections}).AppliesTo(c.section); got != c.want {
			t.Errorf("a policy for %q applies to %q: %t, want %t", c.sections, c.section, got, c.want)
		}
	}
}

// TestListsAreEqual: a list differs where a selection or the order may differ, and not for a changed conf.
func TestListsAreEqual(t *testing.T) {
	list := func(policy string) *List { return newWorld(t, policy, false).list }
	of := list("p: Dataplane app=web section=http = {}")
	for policy, want := range map[string]bool{
		`p: Dataplane app=web section=http = {"idle": 1}`:               true,
		"p kuma.io/zone=: Dataplane app=web section=http = {}":          true,
		"q: Dataplane app=web section=http = {}":                        false,
		"p: Dataplane app=api section=http = {}":                        false,
		"p: Dataplane app=web section=admin = {}":                       false,
		"p global: Dataplane app=web section=http = {}":                 false,
		"p consumer: Dataplane app=web section=http = {}":               false,
		"p consumer ns=a: Dataplane app=web section=http = {}":          false,
		"p zone: Dataplane app=web section=http = {}":                   false,
		"p kuma.io/display-name=x: Dataplane app=web section=http = {}": false,
	} {
		if got := of.Equal(list(policy)); got != want {
			t.Errorf("the list of %s is equal: %t, want %t", policy, got, want)
		}
	}
}

// TestNamed: the name of a to item is the display name, in the namespace and the zone of the policy.
func TestNamed(t *testing.T) {
	for _, c := range []struct{ policy, namespace, want string }{
		{"", "", "map[kuma.io/display-name:b]"},
		{"ns=a", "", "map[k8s.kuma.io/namespace:a kuma.io/display-name:b]"},
		{"ns=a", "c", "map[k8s.kuma.io/namespace:c kuma.io/display-name:b]"},
		{"zone", "", "map[kuma.io/display-name:b kuma.io/zone:east]"},
		{"kuma.io/origin=global kuma.io/zone=east", "", "map[kuma.io/display-name:b]"},
	} {
		meta := &resource.Meta{Name: "p", Labels: labelsOf(strings.Fields(c.policy))}
		if got := fmt.Sprint(named(meta, "b", c.namespace)); got != c.want {
			t.Errorf("in a policy with %q the name selects %s, want %s", c.policy, got, c.want)
		}
	}
}

// TestInboundOrder: the first match of a caller decides, and a match inherits from those that cover it.
func TestInboundOrder(t *testing.T) {
	w := newWorld(t, `
		a: Mesh < spiffe://m/ns/a sni {}
		a: Mesh < sni {}
		a: Mesh < spiffe://m/ns/* {}
		a: Mesh < spiffe://m/* {}
		a: Mesh < {}
		a: Mesh < spiffe://m/* sni {}
		a: Mesh < spiffe://m/ns/a {}`, false)
	var got []string
	for _, m := range Inbound(w.applying(web(), "http")) {
		var covering []int
		for _, part := range m.Parts {
			covering = append(covering, part.Index)
		}
		got = append(got, fmt.Sprint(covering))
	}
	want := "[4 1 3 2 5 6 0] [4 3 2 6] [4 1 3 5] [4 3 2] [4 3] [4 1] [4]"
	if strings.Join(got, " ") != want {
		t.Errorf("the matches inherit from %s, want %s", got, want)
	}
}

func TestCovers(t *testing.T) {
	for _, c := range []struct {
		wide, narrow string
		want         bool
	}{
		{"", "", true},
		{"", "spiffe://m/a sni", true},
		{"sni", "spiffe://m/a", false},
		{"sni", "spiffe://m/a sni", true},
		{"spiffe://m/a", "spiffe://m/a", true},
		{"spiffe://m/a", "spiffe://m/a*", false},
		{"spiffe://m/a", "", false},
		{"spiffe://m/a*", "spiffe://m/a", true},
		{"spiffe://m/a*", "spiffe://m/ab*", true},
		{"spiffe://m/ab*", "spiffe://m/a*", false},
		{"spiffe://m/a*", "", false},
	} {
		if got := parseMatch(strings.Fields(c.wide)).covers(parseMatch(strings.Fields(c.narrow))); got != c.want {
			t.Errorf("%q covers %q: %t, want %t", c.wide, c.narrow, got, c.want)
		}
	}
}

// TestSelectionsAscend: a selection has the order of the list, whatever index led to its policies.
func TestSelectionsAscend(t *testing.T) {
	w := newWorld(t, `
		a: Dataplane name=web-1 = {}
		b: Mesh = {}
		c: MeshSubset version=v1 = {}
		d: Dataplane team=shop = {}
		e zone: Mesh = {}
		f: Dataplane app=web = {}`, false)
	names := ""
	for _, s := range w.list.Select(web()) {
		names += s.Key.Name
	}
	if want := "befdac"; names != want {
		t.Errorf("the selection is %s, want %s", names, want)
	}
}

// TestIndexIsByRarestLabel: proxies that share a common label with a policy are no candidates of it.
func TestIndexIsByRarestLabel(t *testing.T) {
	l := newWorld(t, `
		a: Dataplane app=web env=prod = {}
		b: Dataplane app=api env=prod = {}
		c: Dataplane env=prod team=shop = {}
		d: Dataplane team=shop zone=1 = {}
		e: Dataplane team=shop zone=1 = {}`, false).list
	var got []string
	for p, policies := range l.labels {
		got = append(got, fmt.Sprint(p.name, "=", p.value, " ", len(policies)))
	}
	slices.Sort(got)
	if want := "app=api 1, app=web 1, env=prod 1, zone=1 2"; strings.Join(got, ", ") != want {
		t.Errorf("the index is %s, want %s", strings.Join(got, ", "), want)
	}
}

// TestSelectionsAreEqual: a proxy group is woken by another policy or section, not by another list with the same ones.
func TestSelectionsAreEqual(t *testing.T) {
	const policies = "p: Dataplane section=http = {}\nq: Mesh = {}\n"
	selection := func(text string) []Selected { return newWorld(t, text, false).list.Select(web()) }
	of := selection(policies)
	for text, want := range map[string]bool{
		policies:                                            true,
		policies + "r: Dataplane app=api = {}":              true,
		policies + "r: Mesh = {}":                           false,
		"p: Dataplane section=admin = {}\nq: Mesh = {}":     false,
		"p: Dataplane = {}\nq: Mesh = {}":                   false,
		"p: Dataplane section=http = {}\nq zone: Mesh = {}": false,
	} {
		if got := EqualSelections(of, selection(text)); got != want {
			t.Errorf("the selection from %q is equal: %t, want %t", text, got, want)
		}
	}
	if EqualSelections([]Selected{{of[0].Policy, nil}}, []Selected{{of[0].Policy, []string{}}}) {
		t.Error("the whole proxy equals no section")
	}
}

// TestPartsOf: a written policy is its to items, its rules once for each match, and its default.
func TestPartsOf(t *testing.T) {
	meta := &resource.Meta{Mesh: "m", Name: "p", Labels: labelsOf([]string{"ns=a"})}
	p := New(resource.Key{Kind: "MeshTest", Mesh: "m", Name: "p"}, meta, Target{})
	exact, prefix := &kind.IDMatch{Type: "Exact", Value: "spiffe://m/a"},
		&kind.IDMatch{Type: "Prefix", Value: "spiffe://m"}
	parts := PartsOf(p, meta, kind.Parts{
		To: []kind.ToPart{
			{TargetRef: kind.DestinationRef{Kind: "Mesh"}, Conf: "to 0"},
			{TargetRef: kind.DestinationRef{Kind: "MeshService", Name: "b", SectionName: "http"}, Conf: "to 1"},
			{TargetRef: kind.DestinationRef{Kind: "MeshExternalService", Labels: labelsOf([]string{"env=dev"})},
				Conf: "to 2"},
			{TargetRef: kind.DestinationRef{Kind: "MeshOfTheFuture"}, Conf: "to 3"},
		},
		Rules: []kind.RulePart{
			{Conf: "rule 0"},
			{Matches: []kind.RuleMatch{{SpiffeID: exact}, {SpiffeID: prefix, SNI: &kind.SNIMatch{Value: "sni"}}},
				Conf: "rule 1"},
		},
		Default: "default",
	})
	var got []string
	for _, part := range parts {
		to := "-"
		if part.To != nil {
			to = fmt.Sprint(*part.To)
		}
		got = append(got, fmt.Sprint(part.Conf, " ", part.Index, " ", to, " ", part.Match))
	}
	want := []string{
		"to 0 0 {1 map[] } every caller",
		"to 1 1 {2 map[k8s.kuma.io/namespace:a kuma.io/display-name:b] http} every caller",
		"to 2 2 {3 map[env:dev] } every caller",
		"to 3 3 {0 map[] } every caller",
		"rule 0 0 - every caller",
		"rule 1 1 - spiffe://m/a",
		"rule 1 1 - spiffe://m/* SNI sni",
		"default 0 - every caller",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the parts are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if parts[3].To.Matches(parseDestination("b:http")) {
		t.Error("a to item of an unknown kind matches a destination")
	}
}

// TestNamespacesOutsideKubernetes: proxies have no namespace there, so a target with one selects none of them, and the
// write is rejected.
func TestNamespacesOutsideKubernetes(t *testing.T) {
	for _, ref := range []*kind.TargetRef{
		{Kind: "Dataplane", Name: "web-1", Namespace: "a"},
		{Kind: "Dataplane", Namespace: "a", Labels: labelsOf([]string{"app=web"})},
	} {
		o := kind.MeshTrafficPermissions.Make("m", "p", kind.MeshTrafficPermission{TargetRef: ref})
		problems := kind.MeshTrafficPermissions.Prepare(o)
		if len(problems) != 1 || problems[0].Field != "spec.targetRef.namespace" {
			t.Errorf("the problems of %+v are %v, want one of its namespace", *ref, problems)
		}
		target := TargetOf(ref)
		if _, all := target.Selects(&Proxy{Name: "web-1", Labels: labelsOf([]string{"app=web"})}); all {
			t.Errorf("%+v selects a proxy without a namespace", *ref)
		}
	}
}
