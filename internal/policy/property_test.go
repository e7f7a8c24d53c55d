package policy

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"weft/kind"
	"weft/resource"
)

// TestEngineEqualsNaive: for random policies, selection, order and merging give what a scan, a sort by text and a merge
// of JSON objects give.
func TestEngineEqualsNaive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var naive []naivePolicy
		for i := range rapid.IntRange(0, 12).Draw(t, "policies") {
			naive = append(naive, drawPolicy(t, fmt.Sprintf("p%d", i)))
		}
		w := &world{parts: map[resource.Key][]Part{}}
		var policies []*Policy
		for _, n := range naive {
			p := New(resource.Key{Kind: "MeshTest", Name: n.meta.Name}, &n.meta, n.target)
			policies = append(policies, p)
			for i, item := range n.items {
				c := &conf{}
				if err := json.Unmarshal([]byte(item.conf), c); err != nil {
					t.Fatal(err)
				}
				w.parts[p.Key] = append(w.parts[p.Key], Part{Index: i, To: &item.to, Conf: c})
			}
		}
		w.list = NewList(policies)
		proxy, d := drawProxy(t),
			parseDestination(rapid.SampledFrom([]string{"b:http", "b1:grpc", "r/b:http", "multi:http"}).Draw(t,
				"destination"))
		merged := plan.Merge(Outbound(w.applying(proxy, ""), d))
		got, err := json.Marshal(merged.Conf)
		if err != nil {
			t.Fatal(err)
		}
		want, by := naiveEffective(naive, proxy, d)
		if string(got) != want {
			t.Errorf("the conf is %s, want %s", got, want)
		}
		var gotBy []string
		for _, origin := range merged.Parts {
			gotBy = append(gotBy, fmt.Sprint(origin.Policy.Name, origin.Part))
		}
		if !slices.Equal(gotBy, by) {
			t.Errorf("the parts are %s, want %s", gotBy, by)
		}
		for path, origin := range merged.Origins.All() {
			if !slices.Contains(merged.Parts, origin) {
				t.Errorf("%s is from %s, which was not merged", path, origin)
			}
		}
	})
}

type naivePolicy struct {
	meta   resource.Meta
	target Target
	items  []naiveItem
}

type naiveItem struct {
	to   To
	conf string
}

func drawPolicy(t *rapid.T, name string) naivePolicy {
	p := naivePolicy{meta: resource.Meta{Name: name, Labels: map[string]string{}}}
	label := func(name string, values ...string) {
		if v := rapid.SampledFrom(values).Draw(t, name); v != "" {
			p.meta.Labels[name] = v
		}
	}
	label(kind.OriginLabel, "", "global", "zone")
	label(resource.ZoneLabel, "", "east", "west")
	label(RoleLabel, "", "system", "producer", "consumer", "workload-owner")
	label(resource.NamespaceLabel, "a", "b")
	label(resource.DisplayName, "", "x", "y")
	p.target.Kind = rapid.SampledFrom([]TargetKind{WholeMesh, Dataplane, Dataplane, MeshSubset, MeshService,
		MeshServiceSubset}).Draw(t, "target")
	switch p.target.Kind {
	case WholeMesh:
	case Dataplane:
		p.target.Name = rapid.SampledFrom([]string{"", "", "web-1", "web-2"}).Draw(t, "name")
		p.target.Section = rapid.SampledFrom([]string{"", "", "http", "nope"}).Draw(t, "section")
		if p.target.Name == "" {
			p.target.Labels = drawPairs(t, "labels")
		}
	default:
		p.target.Tags = drawPairs(t, "tags")
	}
	for range rapid.IntRange(0, 3).Draw(t, "items") {
		item := naiveItem{to: To{
			Kind: rapid.SampledFrom([]ToKind{ToMesh, ToMeshService, ToMeshMultiZoneService, ToMeshHTTPRoute}).Draw(t,
				"kind"),
			Section: rapid.SampledFrom([]string{"", "", "http", "9090"}).Draw(t, "port"),
		}}
		item.to.Labels = rapid.SampledFrom([]map[string]string{nil, {resource.DisplayName: "b"}, {"env": "dev"},
			{resource.DisplayName: "r"}}).Draw(t, "to")
		item.conf = rapid.SampledFrom([]string{
			`{}`, `{"idle":1}`, `{"idle":2,"request":2}`, `{"connect":3,"detectors":{"totalFailures":3}}`,
			`{"detectors":{"gatewayFailures":4}}`, `{"retryOn":["A","B"]}`, `{"retryOn":["C"],"appendMatch":["c"]}`,
			`{"appendMatch":["d","e"]}`,
		}).Draw(t, "conf")
		p.items = append(p.items, item)
	}
	return p
}

func drawPairs(t *rapid.T, what string) map[string]string {
	return rapid.MapOfN(rapid.SampledFrom([]string{"app", "env"}), rapid.SampledFrom([]string{"1", "2"}), 0, 2).Draw(t,
		what)
}

func drawProxy(t *rapid.T) *Proxy {
	p := &Proxy{Name: "web-1", Labels: drawPairs(t, "proxy")}
	p.Zone = rapid.SampledFrom([]string{"", "east", "west"}).Draw(t, "zone")
	p.Labels[resource.NamespaceLabel] = rapid.SampledFrom([]string{"a", "b"}).Draw(t, "namespace")
	for _, name := range []string{"http", "admin"} {
		p.Sections = append(p.Sections, Section{Name: name, Tags: drawPairs(t, name)})
	}
	return p
}

// naiveEffective sorts all parts by a text, which it compares character by character, and merges JSON objects.
func naiveEffective(policies []naivePolicy, proxy *Proxy, d *Destination) (string, []string) {
	type sortable struct{ key, by, conf string }
	var sorted []sortable
	for _, p := range policies {
		if !naiveApplies(&p, proxy) {
			continue
		}
		for i, item := range p.items {
			if item.to.Matches(d) {
				sorted = append(sorted, sortable{naiveKey(&p, &item.to, i), fmt.Sprint(p.meta.Name, i), item.conf})
			}
		}
	}
	slices.SortFunc(sorted, func(a, b sortable) int { return strings.Compare(a.key, b.key) })
	merged, by := map[string]any{}, []string(nil)
	for _, s := range sorted {
		var patch map[string]any
		_ = json.Unmarshal([]byte(s.conf), &patch)
		naiveMerge(merged, patch)
		by = append(by, s.by)
	}
	raw, _ := json.Marshal(merged)
	var ordered conf // for the order of the fields
	_ = json.Unmarshal(raw, &ordered)
	raw, _ = json.Marshal(ordered)
	return string(raw), by
}

func naiveApplies(p *naivePolicy, proxy *Proxy) bool {
	role, labels := p.meta.Labels[RoleLabel], p.meta.Labels
	if zone := labels[resource.ZoneLabel]; labels[kind.OriginLabel] == "zone" && role != "producer" && zone != "" &&
		proxy.Zone != "" && zone != proxy.Zone {
		return false
	}
	if (role == "consumer" || role == "workload-owner") &&
		labels[resource.NamespaceLabel] != proxy.Labels[resource.NamespaceLabel] {
		return false
	}
	contains := func(have, want map[string]string) bool {
		both := maps.Clone(have)
		maps.Copy(both, want)
		return maps.Equal(both, have)
	}
	section := func(matches func(s Section) bool) bool { return slices.ContainsFunc(proxy.Sections, matches) }
	switch t := p.target; t.Kind {
	case WholeMesh:
		return true
	case Dataplane:
		return (t.Name == "" || t.Name == proxy.Name) && contains(proxy.Labels, t.Labels) &&
			(t.Section == "" || section(func(s Section) bool { return s.Name == t.Section }))
	default:
		return section(func(s Section) bool { return contains(s.Tags, t.Tags) })
	}
}

// naiveKey is a text whose order is that of the parts; the letters of names are turned around.
func naiveKey(p *naivePolicy, to *To, index int) string {
	turned := func(name string) string {
		b := []byte(fmt.Sprintf("%-4s", name))
		for i := range b {
			b[i] = 255 - b[i]
		}
		return string(b)
	}
	place := func(value string, order ...string) string { return fmt.Sprint(slices.Index(order, value)) }
	labels, t := p.meta.Labels, p.target
	display := labels[resource.DisplayName]
	if display == "" {
		display = p.meta.Name
	}
	role := labels[RoleLabel]
	if role == "" {
		role = "system"
	}
	return strings.Join([]string{
		fmt.Sprint(t.Kind, t.Name != "", t.Section != ""),
		place(labels[kind.OriginLabel], "global", "", "zone"),
		place(role, "system", "producer", "consumer", "workload-owner"),
		fmt.Sprint(to.Kind, to.Kind == ToMeshService && to.Section != ""),
		turned(display), turned(labels[resource.NamespaceLabel]), turned(labels[resource.ZoneLabel]),
		turned(p.meta.Name), fmt.Sprint(index),
	}, "|")
}

func naiveMerge(into, patch map[string]any) {
	for name, value := range patch {
		had, both := into[name].(map[string]any)
		object, isObject := value.(map[string]any)
		switch {
		case both && isObject:
			naiveMerge(had, object)
		case strings.HasPrefix(name, "append"):
			list, _ := into[name].([]any)
			into[name] = append(list, value.([]any)...)
		default:
			into[name] = value
		}
	}
}
