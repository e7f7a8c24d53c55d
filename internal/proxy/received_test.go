package proxy_test

import (
	"fmt"
	"strings"
	"testing"

	"weft/internal/graph"
	"weft/internal/graph/graphtest"
	"weft/internal/proxy"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// received is a MeshTimeout of the mesh m with one rule for each of the confs.
func received(name string, target *kind.TargetRef, rules ...kind.RuleItem[kind.TimeoutConf]) resource.Any {
	return kind.MeshTimeouts.Make("m", name, kind.MeshTimeout{TargetRef: target, Rules: rules})
}

// from is a rule about the callers of any of the matches: an ID, a prefix with a final "*", or an SNI after "sni:".
func from(conf kind.TimeoutConf, matches ...string) kind.RuleItem[kind.TimeoutConf] {
	rule := kind.RuleItem[kind.TimeoutConf]{Default: conf}
	for _, text := range matches {
		id, name, _ := strings.Cut(text, "sni:")
		var m kind.RuleMatch
		if prefix, found := strings.CutSuffix(id, "*"); found {
			m.SpiffeID = &kind.IDMatch{Type: "Prefix", Value: prefix}
		} else if id != "" {
			m.SpiffeID = &kind.IDMatch{Type: "Exact", Value: id}
		}
		if name != "" {
			m.SNI = &kind.SNIMatch{Type: "Exact", Value: name}
		}
		rule.Matches = append(rule.Matches, m)
	}
	return rule
}

func request(n int) kind.TimeoutConf {
	return kind.TimeoutConf{HTTP: &kind.HTTPTimeouts{RequestTimeout: seconds(n)}}
}

func streamIdle(n int) kind.TimeoutConf {
	return kind.TimeoutConf{HTTP: &kind.HTTPTimeouts{StreamIdleTimeout: seconds(n)}}
}

// TestReceivedTimeouts: the rules about a caller are merged in the order of precedence and then of the specificity of
// their matches, and each field is from the last rule that has it.
func TestReceivedTimeouts(t *testing.T) {
	const a, b, ns = "spiffe://m/ns/a", "spiffe://m/ns/b", "spiffe://m/ns/*"
	for _, c := range []struct {
		name    string
		rows    []resource.Any
		section string
		snis    []string
		want    string
	}{
		{"no policy", nil, "http", nil, ""},
		{"to items only", []resource.Any{timeouts("p", nil, about("Mesh", idle(1)))}, "http", nil, ""},
		{"every caller", []resource.Any{received("p", nil, from(idle(1)))}, "http", nil, "every caller: idle 1 p[0]"},
		{"another proxy", []resource.Any{received("p", dataplanes(map[string]string{"app": "api"}, ""), from(idle(1)))},
			"http", nil, ""},
		{"the section", []resource.Any{received("bb", dataplanes(nil, "http"), from(idle(1))),
			received("aa", nil, from(idle(2)))}, "http", nil, "every caller: idle 1 bb[0]"},
		{"another section", []resource.Any{received("bb", dataplanes(nil, "http"), from(idle(1))),
			received("aa", nil, from(idle(2)))}, "9090", nil, "every caller: idle 2 aa[0]"},
		{"sections that share a listener", []resource.Any{received("bb", dataplanes(nil, "http"), from(idle(1))),
			received("aa", nil, from(idle(2)))}, "9090+http", nil, "every caller: idle 1 bb[0]"},
		{"the later rule of one policy", []resource.Any{received("p", nil, from(idle(1)), from(idle(2)))}, "http", nil,
			"every caller: idle 2 p[1]"},
		{"by caller", []resource.Any{received("p", nil, from(request(10)), from(streamIdle(5)), from(request(3), ns),
			from(streamIdle(1), a))}, "http", nil,
			"spiffe://m/ns/a: request 3 p[2], stream 1 p[3]; spiffe://m/ns/*: request 3 p[2], stream 5 p[1]; " +
				"every caller: request 10 p[0], stream 5 p[1]"},
		{"a less specific policy about a more specific caller", []resource.Any{received("aa", nil, from(request(1))),
			received("zz", nil, from(request(2), a))}, "http", nil,
			"spiffe://m/ns/a: request 2 zz[0]; every caller: request 1 aa[0]"},
		{"alternatives", []resource.Any{received("p", nil, from(request(1), a, b, ns))}, "http", nil,
			"spiffe://m/ns/b: request 1 p[0]; spiffe://m/ns/a: request 1 p[0]; spiffe://m/ns/*: request 1 p[0]"},
		{"an SNI at an inbound", []resource.Any{received("p", nil, from(idle(1), "sni:x.y"))}, "http", nil, ""},
		{"an SNI at its chain", []resource.Any{received("p", nil, from(request(1), "sni:x.y"), from(request(2)),
			from(request(3), a), from(request(4), a+"sni:x.y"), from(request(5), "sni:other"))}, "http",
			[]string{"old.x", "x.y"}, "spiffe://m/ns/a: request 4 p[3]; every caller: request 1 p[0]"},
		{"from", []resource.Any{prepared(kind.MeshTimeouts.Make("m", "p", kind.MeshTimeout{
			From: []kind.FromItem[kind.TimeoutConf]{{TargetRef: kind.FromRef{Kind: "Mesh"}, Default: idle(1)}}}))},
			"http", nil, "every caller: idle 1 p[0]"},
		{"inbounds by their tags", []resource.Any{received("bb", tagged("MeshSubset", "", "version", "v1"),
			from(idle(1))), received("aa", nil, from(idle(2)))}, "http", nil, "every caller: idle 1 bb[0]"},
		{"another inbound by its tags", []resource.Any{received("bb", tagged("MeshSubset", "", "version", "v1"),
			from(idle(1))), received("aa", nil, from(idle(2)))}, "9090", nil, "every caller: idle 2 aa[0]"},
		{"inbounds of a service before those with a tag", []resource.Any{
			received("aa", tagged("MeshSubset", "", "version", "v1"), from(idle(1))),
			received("bb", tagged("MeshService", "web"), from(idle(2)))}, "http", nil, "every caller: idle 2 bb[0]"},
		{"inbounds of a service with a tag", []resource.Any{
			received("bb", tagged("MeshServiceSubset", "web", "version", "v1"), from(idle(1))),
			received("aa", tagged("MeshServiceSubset", "web", "version", "v2"), from(idle(2)))}, "http", nil,
			"every caller: idle 1 bb[0]"},
		{"inbounds of another service", []resource.Any{received("p", tagged("MeshService", "api"), from(idle(1)))},
			"http", nil, ""},
		{"shadow", []resource.Any{shadow(received("p", nil, from(idle(1))))}, "http", nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := timeoutWorld(c.rows...)
			r := table.Eval(s.Tables.DB.Snapshot())
			at := proxy.PlaceOf(dataplaneKey("web-1"), "m", c.section, c.snis)
			if got := shownCallers(s, r, at); got != c.want {
				t.Errorf("the effective timeouts are %s, want %s", got, c.want)
			}
			if got := len(proxy.ReceivedOf(s.Proxies.Received.Get(r, at)).Timeout); got != strings.Count(c.want, ": ") {
				t.Errorf("%d confs by caller, want those of %s", got, c.want)
			}
		})
	}
}

// tagged is a target of an older kind, with tags as pairs.
func tagged(of, name string, tags ...string) *kind.TargetRef {
	ref := &kind.TargetRef{Kind: of, Name: name, Tags: map[string]string{}}
	for i := 0; i+1 < len(tags); i += 2 {
		ref.Tags[tags[i]] = tags[i+1]
	}
	return ref
}

func prepared(o resource.Any) resource.Any {
	kind.ByName(o.Key().Kind).Prepare(o)
	return o
}

// shownCallers lists the values of the effective timeouts of each match, each with the rule that it is from.
func shownCallers(s *graph.State, r *table.Reader, at proxy.PlaceKey) string {
	var all []string
	for _, callers := range s.Proxies.MergedAt(r, at)[kind.MeshTimeouts.Name] {
		conf := callers.Conf.(*kind.TimeoutConf)
		values := map[string]*kind.Duration{"idleTimeout": conf.IdleTimeout,
			"http.requestTimeout":    conf.Requests().RequestTimeout,
			"http.streamIdleTimeout": conf.Requests().StreamIdleTimeout}
		var fields []string
		for path, origin := range callers.Origins.All() {
			name := strings.NewReplacer("http.", "", "IdleTimeout", "", "Timeout", "").Replace(path.String())
			from := fmt.Sprintf("%s[%d]", origin.Policy.Name, origin.Part)
			fields = append(fields, fmt.Sprintf("%s %d %s", name, *values[path.String()]/1e9, from))
		}
		all = append(all, callers.Match.String()+": "+strings.Join(fields, ", "))
	}
	return strings.Join(all, "; ")
}

// TestChangesOfReceivedTimeouts says for each change how many values of the stages it computes, and how many of them
// differ: the list of the mesh, the selections of the two proxies, the effective confs of their inbounds and of the
// chains of their zone egresses (4 and 3), and the proxies.
func TestChangesOfReceivedTimeouts(t *testing.T) {
	web := dataplanes(map[string]string{"app": "web"}, "")
	all := received("all", nil, from(idle(1)))
	ofWeb := received("web", web, from(request(2)))
	for _, c := range []struct {
		name   string
		change resource.Any
		want   string
	}{
		{"a conf", received("web", web, from(request(3))), "1/0 0/0 4/4 1/1"},
		{"a conf of both", received("all", nil, from(idle(2))), "1/0 0/0 7/7 2/2"},
		{"the same conf", received("web", web, from(request(2))), "1/0 0/0 4/0 0/0"},
		{"a match", received("web", web, from(request(2), "spiffe://m/a")), "1/0 0/0 4/4 1/1"},
		{"the endpoints of a service", kind.MeshServices.Make("m", "db", kind.MeshService{State: "Available"}),
			"0/0 0/0 0/0 0/0"},
		{"the status of a service", kind.MeshServiceStatuses.Make("m", "api", kind.MeshServiceStatus{}),
			"0/0 0/0 0/0 0/0"},
		{"a policy of no proxy", received("new", dataplanes(map[string]string{"app": "new"}, ""), from(idle(9))),
			"1/1 2/0 0/0 0/0"},
		{"a policy with to items", timeouts("new", nil, about("Mesh", idle(9))), "1/1 2/2 7/0 2/2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := timeoutWorld(all, ofWeb)
			s.Proxies.Proxy.Pin(dataplaneKey("web-1"))
			s.Proxies.Proxy.Pin(dataplaneKey("api-1"))
			stages := map[string]table.Stage{}
			s.Tables.DB.Observe(func(stage table.Stage) { stages[stage.Table] = stage })
			graphtest.Put(s, c.change)
			var got []string
			for _, name := range []string{s.Proxies.Policies.String(), s.Proxies.Selections.String(),
				s.Proxies.Received.String(), s.Proxies.Proxy.String()} {
				got = append(got, fmt.Sprintf("%d/%d", stages[name].Recomputed, stages[name].Changed))
			}
			if got := strings.Join(got, " "); got != c.want {
				t.Errorf("the stages computed and changed %s, want %s", got, c.want)
			}
		})
	}
	s := timeoutWorld(all, ofWeb)
	r := table.Eval(s.Tables.DB.Snapshot())
	l := s.Proxies.Proxy.Get(r, dataplaneKey("web-1")).Listeners[0]
	if proxy.ReceivedOf(l.Confs).Timeout.All().IdleTimeout == nil {
		t.Error("the inbound has no conf of the policies about it")
	}
}
