package push

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"weft/internal/agent"
	"weft/internal/envoy/envoytest"
	"weft/internal/xds"
	"weft/kind"
)

var regexes = flag.Int("regexes", 2000, "number of random regular expressions that a real Envoy gets")

// TestEnvoyAcceptsEveryRegexThatAUserMayWrite: a real Envoy accepts random expressions which the API accepts, and all
// scripts and categories of Unicode that it accepts.
func TestEnvoyAcceptsEveryRegexThatAUserMayWrite(t *testing.T) {
	envoy := envoytest.New(t, agent.RuntimeFlags())
	var accepted []string
	names := slices.Concat(slices.Collect(maps.Keys(unicode.Categories)), slices.Collect(maps.Keys(unicode.Scripts)),
		slices.Collect(maps.Keys(unicode.CategoryAliases)), []string{"Any", "any", "ASCII", "Assigned", "greek"})
	for _, name := range names {
		for _, expression := range []string{`\p{` + name + `}`, `[^a\P{^` + name + `}]`} {
			if kind.RegexProblem(expression) == "" {
				accepted = append(accepted, expression)
			}
		}
	}
	if len(accepted) < 250 {
		t.Errorf("%d scripts and categories of Unicode are accepted", len(accepted))
	}
	random, rejected := rand.New(rand.NewPCG(1, uint64(*regexes))), 0
	for n := len(accepted) + *regexes; len(accepted) < n; {
		if expression := randomRegex(random, 4); kind.RegexProblem(expression) == "" && len(expression) <= 1024 {
			accepted = append(accepted, expression)
		} else {
			rejected++
		}
	}
	t.Logf("%d random expressions are rejected at the write", rejected)
	var resources []*xds.Resource
	for i, chunk := range slices.Collect(slices.Chunk(accepted, 100)) {
		resources = append(resources, regexRoute(fmt.Sprint(i), chunk...))
	}
	rejections, err := envoy.Rejections(resources)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rejections {
		t.Errorf("Envoy rejects expressions that the API accepts: %s", r.Reason)
	}
}

// TestEnvoyRejectsTheRegexesThatTheAPIRejects: what the API rejects because of Envoy is rejected by it.
func TestEnvoyRejectsTheRegexesThatTheAPIRejects(t *testing.T) {
	envoy := envoytest.New(t, agent.RuntimeFlags())
	for expression, accepts := range map[string]bool{
		`\p{ASCII}`: false, `\p{LC}`: false, `[\p{Letter}]`: false, `\x{100}`: false, `\x{10FFFF}`: false, `\777`: false,
		`\x{ff}`: true, `\377`: true, `\Q\p{ASCII}\E`: true, `\\p{ASCII}`: true, `é[Ā-ſ]`: true, `\pZ`: true, `\PZ`: true, `[!-é-K]`: false,
	} {
		rejections, err := envoy.Rejections([]*xds.Resource{regexRoute("r", expression)})
		if err != nil {
			t.Fatal(err)
		}
		if got := kind.RegexProblem(expression); (got == "") != accepts || (len(rejections) == 0) != accepts {
			t.Errorf("%s: the API says %q, and Envoy %v; want that both accept it: %v", expression, got, rejections,
				accepts)
		}
	}
}

func regexRoute(name string, expressions ...string) *xds.Resource {
	host := &routev3.VirtualHost{Name: "v", Domains: []string{"*"}}
	for _, expression := range expressions {
		host.Routes = append(host.Routes, &routev3.Route{
			Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_SafeRegex{
				SafeRegex: &matcherv3.RegexMatcher{Regex: expression}}},
			Action: &routev3.Route_DirectResponse{DirectResponse: &routev3.DirectResponseAction{Status: 200}},
		})
	}
	return xds.NewResource(xds.Route, name, &routev3.RouteConfiguration{Name: name,
		VirtualHosts: []*routev3.VirtualHost{host}})
}

// randomRegex returns an expression, most of which Go reads.
func randomRegex(r *rand.Rand, depth int) string {
	atoms := []string{"a", "Z", "0", ".", "é", "Ā", "€", "\x00", "\n", " ", `\.`, `\\`, `\/`, `\-`, `\d`, `\W`, `\s`, `\b`,
		`\B`, `\A`, `\z`, `\a`, `\f`, `\t`, `\n`, `\r`, `\v`, `\x41`, `\xFf`, `\x{0}`, `\x{0000ff}`, `\x{e9}`, `\x{100}`,
		`\0`, `\07`, `\123`, `\377`, `\400`, `\777`, `\pL`, `\PN`, `\p{Greek}`, `\p{^Lu}`, `\P{Any}`, `\p{ASCII}`, `\p{LC}`,
		`\p{Letter}`, `\p{Cn}`, `\p{Cs}`, `\Qa.\p{x}*\E`, `\Q\x{100}`, `[[:alpha:]]`, `[[:^word:]]`, `^`, `$`, `\C`, `\Z`, `\1`,
		`(?i)`, `(?s)`, `(?m)`, `(?U)`, `(?-s)`, `(?^i)`, `\E`, `]`, `}`, `{`, `,`, `#`, `\ `, `\_`, `(?i:K)`, `\x{212A}`, "ſ", "K"}
	pick := func(of []string) string { return of[r.IntN(len(of))] }
	if depth == 0 {
		return pick(atoms)
	}
	below := func() string { return randomRegex(r, depth-1) }
	switch r.IntN(9) {
	case 0, 1:
		return below() + below()
	case 2:
		return below() + "|" + below()
	case 3:
		return pick([]string{"(", "(?:", "(?P<n>", "(?<m>", "(?i:", "(?s-i:", "(?U:"}) + below() + ")"
	case 4:
		return below() + pick([]string{"*", "+", "?", "*?", "+?", "??", "{2}", "{0,3}", "{1,}", "{3,1}", "{50}",
			"{1000}", "{,5}"})
	case 5, 6:
		members := []string{"a", "-", "z", "^", "é", "Ā", "€", "ſ", `\d`, `\pN`, `\p{Han}`, `\P{LC}`, `\]`, `\x41`, `\xff`, `\x{17f}`,
			`\n`, "[:digit:]", "[:^punct:]", "a-z", "à-ÿ", "Ā-ſ", "!-é", `\x00-\xff`, `\0-\177`, `\b`, `\-`, "]", `\Q`, "&&", "K", "k"}
		var b strings.Builder
		b.WriteString(pick([]string{"[", "[^"}))
		for range 1 + r.IntN(4) {
			b.WriteString(pick(members))
		}
		return b.String() + "]"
	default:
		return pick(atoms)
	}
}
