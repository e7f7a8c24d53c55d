package proxy_test

import (
	"fmt"
	"strings"
	"testing"

	"weft/internal/proxy"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// faults is a MeshFaultInjection of the mesh m with one rule for each of the texts: "555,556 spiffe://m/ns/*", the
// statuses of its aborts and its matches.
func faults(name string, target *kind.TargetRef, rules ...string) resource.Any {
	spec := kind.MeshFaultInjection{TargetRef: target}
	for _, text := range rules {
		words := strings.Fields(text)
		var conf kind.FaultConf
		for status := range strings.SplitSeq(words[0], ",") {
			var code uint32
			if _, err := fmt.Sscan(status, &code); err != nil {
				panic(err)
			}
			all := kind.Decimal(100)
			conf.HTTP = append(conf.HTTP, kind.HTTPFault{Abort: &kind.FaultAbort{HTTPStatus: &code, Percentage: &all}})
		}
		spec.Rules = append(spec.Rules, kind.RuleItem[kind.FaultConf]{Default: conf,
			Matches: from(kind.TimeoutConf{}, words[1:]...).Matches})
	}
	return kind.MeshFaultInjections.Make("m", name, spec)
}

// TestFaults: every rule that matches a caller injects its faults, once, those of the most specific match first, and
// among equal matches those of the most specific policy.
func TestFaults(t *testing.T) {
	const a, b, ns = "spiffe://m/ns/a", "spiffe://m/ns/b", "spiffe://m/ns/*"
	web := dataplanes(map[string]string{"app": "web"}, "")
	for _, c := range []struct {
		name string
		rows []resource.Any
		snis []string
		want string
	}{
		{"no policy", nil, nil, ""},
		{"one rule", []resource.Any{faults("p", nil, "501,502")}, nil, "every caller: 501 p[0], 502 p[0]"},
		{"two rules", []resource.Any{faults("p", nil, "501,502", "503")}, nil,
			"every caller: 503 p[1], 501 p[0], 502 p[0]"},
		{"two policies", []resource.Any{faults("aa", nil, "501"), faults("bb", web, "502"),
			faults("cc", nil, "503")}, nil, "every caller: 502 bb[0], 501 aa[0], 503 cc[0]"},
		{"by caller", []resource.Any{faults("p", nil, "501 "+a, "502 "+ns, "503")}, nil,
			a + ": 501 p[0], 502 p[1], 503 p[2]; " + ns + ": 502 p[1], 503 p[2]; every caller: 503 p[2]"},
		{"alternatives", []resource.Any{faults("p", nil, "501 "+a+" "+b+" "+ns)}, nil,
			b + ": 501 p[0]; " + a + ": 501 p[0]; " + ns + ": 501 p[0]"},
		{"an SNI at an inbound", []resource.Any{faults("p", nil, "501 sni:x.y")}, nil, ""},
		{"an SNI at its chain", []resource.Any{faults("p", nil, "501 sni:x.y", "502", "503 sni:other")},
			[]string{"x.y"}, "every caller: 501 p[0], 502 p[1]"},
		{"shadow", []resource.Any{shadow(faults("p", nil, "501"))}, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := timeoutWorld(c.rows...)
			r := table.Eval(s.Tables.DB.Snapshot())
			at := proxy.PlaceOf(dataplaneKey("web-1"), "m", "http", c.snis)
			var all []string
			for _, callers := range s.Proxies.MergedAt(r, at)[kind.MeshFaultInjections.Name] {
				var items []string
				i := 0
				for path, origin := range callers.Origins.All() {
					if want := fmt.Sprintf("http[%d]", i); path.String() != want {
						t.Errorf("the path of an origin is %s, want %s", path, want)
					}
					items = append(items, fmt.Sprintf("%d %s[%d]",
						*callers.Conf.(*kind.FaultConf).HTTP[i].Abort.HTTPStatus, origin.Policy.Name, origin.Part))
					i++
				}
				all = append(all, callers.Match.String()+": "+strings.Join(items, ", "))
			}
			if got := strings.Join(all, "; "); got != c.want {
				t.Errorf("the faults are %s, want %s", got, c.want)
			}
			if got := len(proxy.ReceivedOf(s.Proxies.Received.Get(r, at)).Faults); got != strings.Count(c.want, ": ") {
				t.Errorf("%d confs by caller, want those of %s", got, c.want)
			}
		})
	}
}
