package preview_test

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"weft/internal/golden"
	"weft/internal/graph"
	"weft/internal/graph/graphtest"
	"weft/internal/preview"
	"weft/internal/push"
	"weft/resource"
)

// TestDiffs: each scenario has a change of the world in testdata (what is put, and a line "KIND MESH NAME" for each
// that is removed), and what it means to the proxies. The world may have more resources, and the section "options" may
// be "shadow".
func TestDiffs(t *testing.T) {
	golden.Run(t, "testdata/diffs/*.txtar", func(t *testing.T, scenario *txtar.Archive) {
		var change preview.Change
		if put := golden.Section(scenario, "put.yaml"); put != "" {
			change.Put = graphtest.Resources(t, put)
		}
		for line := range strings.Lines(golden.Section(scenario, "removed")) {
			words := strings.Fields(line)
			change.Removed = append(change.Removed, resource.Key{Kind: words[0], Mesh: words[1], Name: words[2]})
		}
		options := preview.Options{Shadow: strings.TrimSpace(golden.Section(scenario, "options")) == "shadow"}
		inspector := push.NewInspector(worldWith(t, golden.Section(scenario, "more.yaml")))
		diff, err := inspector.Diff(t.Context(), change, options)
		if err != nil {
			t.Fatal(err)
		}
		golden.Set(scenario, "diff", textOf(diff))
	})
}

// worldWith returns the state of the world in testdata with more resources.
func worldWith(t *testing.T, more string) *graph.State {
	t.Helper()
	world, err := txtar.ParseFile("testdata/world.txtar")
	if err != nil {
		t.Fatal(err)
	}
	if more != "" {
		golden.Set(world, "resources.yaml", golden.Section(world, "resources.yaml")+"---\n"+more)
	}
	return graphtest.Load(t, world)
}

// textOf returns a diff with a line for each entry.
func textOf(diff *preview.Diff) string {
	var text strings.Builder
	for i := range diff.Groups {
		g := &diff.Groups[i]
		fmt.Fprintf(&text, "%d of mesh %q: %s%s%s\n", g.Proxies, g.Mesh, strings.Join(g.Names, ", "),
			marked(g.Added, " (added)"), marked(g.Removed, " (removed)"))
		for _, v := range g.Values {
			fmt.Fprintf(&text, "  %s%s %s %s: %s -> %s\n", marked(v.To != "", "to "+v.To),
				marked(v.Section != "", "section "+v.Section), v.Kind, v.Field, settingText(v.Before),
				settingText(v.After))
		}
		for _, c := range g.Callers {
			fmt.Fprintf(&text, "  section %s, caller %s: %s -> %s\n", c.Section, c.SpiffeID, c.Before, c.After)
		}
		for _, r := range g.Requests {
			fmt.Fprintf(&text, "  to %s, requests %s: %q -> %q\n", r.To, r.Match, r.Before, r.After)
		}
		for _, r := range g.Resources {
			fmt.Fprintf(&text, "  %s %s %s\n", r.Change, r.Type, r.Name)
		}
	}
	return text.String()
}

func settingText(s *preview.Setting) string {
	if s == nil {
		return "default"
	}
	return fmt.Sprintf("%s by %s", s.Value, s.SetBy)
}

func marked(is bool, text string) string {
	if is {
		return text
	}
	return ""
}

// TestHostileDiffs: a diff of another control plane has no negative count, and no more bytes than the reader takes,
// also after its short forms are written out.
func TestHostileDiffs(t *testing.T) {
	const most = 300
	for name, document := range map[string]string{
		"not JSON":           `{`,
		"too many groups":    `{"more": -1}`,
		"too many proxies":   `{"groups": [{"proxies": -1}]}`,
		"too many entries":   `{"groups": [{"more": -1}]}`,
		"too many fields":    `{"groups": [{"resources": [{"more": -1}]}]}`,
		"too many bytes":     `{"zone": "` + strings.Repeat("x", most) + `"}`,
		"short forms of all": `{"groups": [{}, {}, {}, {}, {}]}`,
	} {
		if diff, err := preview.Read([]byte(document), most); err == nil {
			t.Errorf("%s: read as %+v", name, diff)
		}
	}
	if _, err := preview.Read([]byte(`{"groups": [{"proxies": 1}]}`), most); err != nil {
		t.Error(err)
	}
}
