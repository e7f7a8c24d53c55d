package proxy_test

import (
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"weft/internal/graph"
	"weft/internal/policy"
	"weft/internal/proxy"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// passthrough is a MeshPassthrough of the mesh m with a mode, and matches of IP addresses.
func passthrough(name string, target *kind.TargetRef, mode string, addresses ...string) resource.Any {
	conf := kind.PassthroughConf{PassthroughMode: mode}
	for _, address := range addresses {
		conf.AppendMatch = append(conf.AppendMatch, kind.PassthroughMatch{Type: kind.PassthroughIP, Value: address})
	}
	return kind.MeshPassthroughs.Make("m", name, kind.MeshPassthrough{TargetRef: target, Default: conf})
}

// TestConfsOfWholeProxies: lists of the policies that apply are appended in the order of precedence, and the most
// specific policy with another field decides it. The origin of each item is known, the proxy group stays the same, and
// an edited conf runs no selection.
func TestConfsOfWholeProxies(t *testing.T) {
	s := graph.NewState("east")
	put := func(rows ...resource.Any) {
		s.Tables.DB.Commit(func(tx *table.Tx) {
			for _, o := range rows {
				s.Tables.Put(tx, o)
			}
		})
	}
	web := state.ProxyKey{Mesh: "m", Name: "web-1"}
	dp := kind.Dataplanes.Make("m", "web-1", kind.Dataplane{Networking: kind.Networking{Address: "10.0.0.1",
		TransparentProxying: &kind.TransparentProxying{}}})
	dp.Labels = map[string]string{"app": "web"}
	put(kind.Meshes.Make("", "m", kind.Mesh{}), dp)
	s.Proxies.Proxy.Pin(web)
	plain, _ := s.Proxies.Proxy.Value(web)
	if conf := proxy.PassthroughOf(plain.Capture.Passthrough); conf != nil {
		t.Fatalf("without a policy the conf is %+v", conf)
	}
	some := &kind.TargetRef{Kind: "Dataplane", Labels: map[string]string{"app": "web"}}
	other := &kind.TargetRef{Kind: "Dataplane", Labels: map[string]string{"app": "api"}}
	for _, c := range []struct {
		name   string
		change resource.Any
		conf   string
		from   string
	}{
		{"of the mesh", passthrough("all", nil, "None", "192.0.2.1"),
			`{"passthroughMode":"None","appendMatch":[{"type":"IP","value":"192.0.2.1"}]}`,
			"appendMatch[0] all, passthroughMode all"},
		{"of others", passthrough("api", other, "All"),
			`{"passthroughMode":"None","appendMatch":[{"type":"IP","value":"192.0.2.1"}]}`,
			"appendMatch[0] all, passthroughMode all"},
		{"of some, without a mode", passthrough("web", some, "", "192.0.2.2", "192.0.2.3"),
			`{"passthroughMode":"None","appendMatch":[{"type":"IP","value":"192.0.2.1"},{"type":"IP","value":"192.0.2.2"},` +
				`{"type":"IP","value":"192.0.2.3"}]}`,
			"appendMatch[0] all, appendMatch[1] web, appendMatch[2] web, passthroughMode all"},
		{"an edited mode", passthrough("web", some, "Matched"),
			`{"passthroughMode":"Matched","appendMatch":[{"type":"IP","value":"192.0.2.1"}]}`,
			"appendMatch[0] all, passthroughMode web"},
		{"a shadow", shadow(passthrough("web", some, "All")),
			`{"passthroughMode":"None","appendMatch":[{"type":"IP","value":"192.0.2.1"}]}`,
			"appendMatch[0] all, passthroughMode all"},
	} {
		put(c.change)
		p, _ := s.Proxies.Proxy.Value(web)
		text, err := json.Marshal(proxy.PassthroughOf(p.Capture.Passthrough))
		if err != nil || string(text) != c.conf {
			t.Errorf("%s: %s, %v; want %s", c.name, text, err, c.conf)
		}
		if p.Group != plain.Group {
			t.Errorf("%s: the group is %+v", c.name, p.Group)
		}
		r := table.Eval(s.Tables.DB.Snapshot())
		merged := s.Proxies.MergedWhole(r, proxy.WholeOf(web))[kind.MeshPassthroughs.Name]
		if from := originsByPath(merged.Origins.All()); from != c.from {
			t.Errorf("%s: the origins are %s, want %s", c.name, from, c.from)
		}
	}
	egress := s.Proxies.MergedWhole(table.Eval(s.Tables.DB.Snapshot()), proxy.WholeKey{Mesh: "m",
		Proxy: state.ZoneEgressProxy("e")})
	if len(egress) > 0 {
		t.Errorf("a ZoneEgress, which redirects no connection, has %+v", fmt.Sprint(egress))
	}
}

// originsByPath returns the names of the policies that fields are from, sorted by field.
func originsByPath(origins iter.Seq2[policy.Path, policy.Origin]) string {
	var texts []string
	for path, origin := range origins {
		texts = append(texts, path.String()+" "+origin.Policy.Name)
	}
	slices.Sort(texts)
	return strings.Join(texts, ", ")
}
