package resource_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"weft/internal/testwait"
	"weft/kind"
	"weft/resource"
)

// bomb returns YAML whose aliases expand to many times its size.
func bomb(levels, times int) string {
	var b strings.Builder
	b.WriteString("type: Mesh\nname: a\na0: &a0 {x: y}\n")
	for i := range levels {
		fmt.Fprintf(&b, "a%d: &a%d [%s]\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i), times),
			","))
	}
	return b.String()
}

func labeled(n int) string {
	var b strings.Builder
	b.WriteString("type: Mesh\nname: a\nlabels:\n")
	for i := range n {
		fmt.Fprintf(&b, "  l%d: v\n", i)
	}
	return b.String()
}

// hostile are documents that are expensive to parse, and their errors.
var hostile = map[string]struct{ doc, says string }{
	"100,000 labels": {labeled(100_000), "at most 16384 are read"},
	"65 labels":      {labeled(65), "labels: has 65 entries, want 64 at most"},
	"60,000 inbounds": {"type: Dataplane\nname: a\nnetworking: {inbound: [" + strings.Repeat("{port: 1},",
		60_000) + "]}", "at most 16384 are read"},
	"60,000 in JSON": {`{"type":"Dataplane","name":"a","networking":{"inbound":[` + strings.Repeat(`{"port":1},`,
		60_000) + `{"port":1}]}}`, "at most 16384 are read"},
	"257 inbounds": {"type: Dataplane\nname: a\nnetworking: {inbound: [" + strings.Repeat("{port: 1},",
		257) + "]}", "networking.inbound: has 257 items, want 256 at most"},
	"a long name": {"type: Mesh\nname: " + strings.Repeat("a", 100_000),
		"name: has 100000 characters, want 253 at most"},
	"a long label": {"type: Mesh\nname: a\nlabels: {a: " + strings.Repeat("a", 100_000) + "}",
		"labels[a]: has 100000 characters"},
	"a long label's name": {"type: Mesh\nname: a\nlabels: {" + strings.Repeat("a", 1000) + ": b}",
		"labels: has a name of 1000 characters"},
	"a long field's name": {"type: Mesh\nname: a\n? " + strings.Repeat("a", 100_000) + "\n: b",
		"is not a known field"},
	"deep lists": {"type: Mesh\nname: a\nx: " + strings.Repeat("[", 5000) + strings.Repeat("]", 5000),
		"is nested 5001 deep, at most 32"},
	"deep JSON": {`{"x":` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + `}`,
		"is nested 9001 deep, at most 32"},
	"deep block lists":   {"type: Mesh\nname: a\nx:\n  " + strings.Repeat("- ", 5000) + "a", "is nested 5001 deep"},
	"a bomb":             {bomb(9, 9), "the aliases of YAML in the resource stand for more than"},
	"a wide bomb":        {bomb(1, 5000) + "b: [" + strings.Repeat("*a1,", 4000) + "]", "the aliases of YAML"},
	"an alias of itself": {"type: Mesh\nname: a\nx: &x [*x]", "or for themselves"},
	"an endless number": {"type: Dataplane\nname: a\nnetworking: {inbound: [{port: 1" + strings.Repeat("0",
		1000) + "}]}", "networking.inbound[0].port: is a"},
	"a number of exponent": {"type: Dataplane\nname: a\nnetworking: {inbound: [{port: 1e400}]}", "want a whole number"},
	"a key twice":          {"type: Mesh\nname: a\nname: b", "name"},
	"too many bytes": {"type: Mesh\nname: a # " + strings.Repeat("a", resource.MaxBytes),
		"at most 1048576 are read"},
	"far too many bytes": {strings.Repeat("#", 50<<20), "at most 4194304 are read"},
}

// TestHostileDocuments: each document is rejected with an error that states the limit, before it is parsed: without the
// limit, some of them take hours.
func TestHostileDocuments(t *testing.T) {
	for name, test := range hostile {
		t.Run(name, func(t *testing.T) {
			doc := []byte(test.doc)
			begin := time.Now()
			_, err := resource.Parse(doc, kind.ByName)
			took := time.Since(begin)
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%.300v, want an error that says %q", err, test.says)
			}
			if took > testwait.Timeout {
				t.Errorf("it took %s", took)
			}
			if err != nil && len(err.Error()) > 32<<10 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
		})
	}
}

// Aliases with a small expansion are accepted.
func TestAFewAliasesAreRead(t *testing.T) {
	o, err := resource.Parse([]byte("type: Dataplane\nname: a\nnetworking:\n  address: 10.0.0.1\n  inbound:\n  - "+
		"{port: 80, tags: &t {a: b}}\n  - {port: 81, tags: *t}\n"), kind.ByName)
	if err != nil {
		t.Fatal(err)
	}
	if dp := resource.SpecOf(o).(*kind.Dataplane); dp.Networking.Inbound[1].Tags["a"] != "b" {
		t.Errorf("the alias stands for %v", dp.Networking.Inbound[1].Tags)
	}
}

// TestBodiesOfOtherZonesAreBounded: items of zone sync have the same limits, including fields of later releases.
func TestBodiesOfOtherZonesAreBounded(t *testing.T) {
	list := func(n int, item string) string {
		return "[" + strings.TrimSuffix(strings.Repeat(item+",", n), ",") + "]"
	}
	for body, says := range map[string]string{
		`{"spec":{"networking":{"inbound":` + list(256, `{"port":1}`) + `},"later":{"a":[1]}}}`: "",
		`{"spec":{"networking":{"inbound":` + list(257,
			`{"port":1}`) + `}}}`: "networking.inbound: has 257 items, want 256 at most",
		`{"labels":{"a":"` + strings.Repeat("a",
			254) + `"},"spec":{}}`: "labels[a]: has 254 characters, want 253 at most",
		`{"spec":{"later":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}}`: "is nested 102 deep",
		`{"spec":{"later":"` + strings.Repeat("a", resource.MaxBytes) + `"}}`:            "at most 262144 are taken",
	} {
		err := resource.CheckBody(kind.Dataplanes, []byte(body))
		if says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("%.80s: %v, want %q", body, err, says)
		}
	}
}

// BenchmarkWorstAccepted parses the most expensive documents within the limits.
func BenchmarkWorstAccepted(b *testing.B) {
	var tags strings.Builder
	for i := range 60 {
		fmt.Fprintf(&tags, "t%d: v,", i)
	}
	for name, doc := range map[string]string{
		"Dataplane": "type: Dataplane\nname: a\nmesh: m\nnetworking:\n  address: 10.0.0.1\n  inbound:\n" +
			strings.Repeat("  - {port: 80, servicePort: 81, tags: {"+tags.String()+"}}\n", 220),
		"MeshTrafficPermission": "type: MeshTrafficPermission\nname: a\nmesh: m\nspec:\n  rules:\n  - default:\n   " +
			"   allow:\n" +
			strings.Repeat("      - spiffeID: {type: Exact, value: spiffe://a/b}\n", 4000),
		"Secret": "type: Secret\nname: a\nmesh: m\ndata: " + strings.Repeat("AAAA", 1<<20/3),
		"Mesh": "type: Mesh\nname: a\ndataplaneProxyMembership:\n  allowed:\n" +
			strings.Repeat("  - tags: {"+tags.String()+"}\n", 220),
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				o, err := resource.Parse([]byte(doc), kind.ByName)
				if err != nil {
					b.Fatal(err)
				}
				kind.ByName(o.Key().Kind).Prepare(o)
			}
		})
	}
}

// FuzzScan finds documents that pass the scan and are too expensive, and panics.
func FuzzScan(f *testing.F) {
	for _, test := range hostile {
		if len(test.doc) < 10_000 {
			f.Add([]byte(test.doc))
		}
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		begin := time.Now()
		_, err := resource.Parse(doc, kind.ByName)
		if took := time.Since(begin); took > testwait.Timeout {
			t.Errorf("%d bytes took %s: %v", len(doc), took, err)
		}
		_ = resource.CheckBody(kind.Dataplanes, doc)
	})
}
