package redirect

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// rules are ours, by table.
type rules map[string]*table

// table is weft's part of one table. Rules are written as iptables-save does.
type table struct {
	chains map[string][]string // each rule without "-A CHAIN"
	jumps  []string            // "OUTPUT -p tcp ... -j WEFT_OUTBOUND", from the kernel's chains
}

func newTable() *table { return &table{chains: map[string][]string{}} }

func (r rules) table(name string) *table {
	if r[name] == nil {
		r[name] = newTable()
	}
	return r[name]
}

func (r rules) add(name, chain string, rules ...string) {
	t := r.table(name)
	t.chains[chain] = append(t.chains[chain], rules...)
}

// jump leads from one of the kernel's chains to one of ours.
func (r rules) jump(name, from, match, to string) {
	t := r.table(name)
	t.chains[to] = []string{}
	t.jumps = append(t.jumps, fmt.Sprintf("%s %s -m comment --comment %s -j %s", from, match, jumpMark, to))
}

// seal begins each chain with a rule that does nothing but carry the sum of the others.
func (r rules) seal() {
	for _, t := range r {
		for chain, rules := range t.chains {
			t.chains[chain] = slices.Insert(rules, 0, sealOf(rules))
		}
	}
}

func sealOf(rules []string) string {
	sum := sha256.Sum256([]byte(strings.Join(rules, "\n")))
	return fmt.Sprintf("-m comment --comment %s-%s", jumpMark, hex.EncodeToString(sum[:8]))
}

// sealed returns whether a chain is unchanged since it was installed.
func sealed(rules []string) bool { return len(rules) > 0 && rules[0] == sealOf(rules[1:]) }

func (t *table) equal(other *table) bool {
	sorted := func(lines []string) []string { return slices.Sorted(slices.Values(lines)) }
	return maps.EqualFunc(t.chains, other.chains, slices.Equal[[]string]) &&
		slices.Equal(sorted(t.jumps), sorted(other.jumps))
}

func (r rules) equal(other rules) bool {
	for name := range union(r, other) {
		if !r.table(name).equal(other.table(name)) {
			return false
		}
	}
	return true
}

func union[V any](a, b map[string]V) map[string]bool {
	names := map[string]bool{}
	for name := range a {
		names[name] = true
	}
	for name := range b {
		names[name] = true
	}
	return names
}

// change returns the input of iptables-restore --noflush that changes the present rules into the wanted ones; "": none.
// A jump that remains is not touched, so it keeps its place among the rules of other programs.
func change(is, wanted rules) string {
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(union(is, wanted))) {
		is, wanted := is.table(name), wanted.table(name)
		if is.equal(wanted) {
			continue
		}
		fmt.Fprintf(&text, "*%s\n", name)
		for _, jump := range subtract(is.jumps, wanted.jumps) {
			fmt.Fprintf(&text, "-D %s\n", jump)
		}
		is.changeChains(&text, wanted)
		for _, jump := range subtract(wanted.jumps, is.jumps) {
			fmt.Fprintf(&text, "-A %s\n", jump)
		}
		text.WriteString("COMMIT\n")
	}
	return text.String()
}

// changeChains creates the missing chains, then fills those that differ, and then removes the unwanted ones after all
// of them are empty: chains jump to each other.
func (t *table) changeChains(text *strings.Builder, wanted *table) {
	var filled, gone []string
	for _, chain := range slices.Sorted(maps.Keys(union(t.chains, wanted.chains))) {
		rules, wants := wanted.chains[chain]
		switch {
		case !wants:
			gone = append(gone, chain)
		case !slices.Equal(rules, t.chains[chain]):
			filled = append(filled, chain)
			fmt.Fprintf(text, ":%s - [0:0]\n", chain) // makes it, or empties it
		}
	}
	for _, chain := range filled {
		for _, rule := range wanted.chains[chain] {
			fmt.Fprintf(text, "-A %s %s\n", chain, rule)
		}
	}
	for _, verb := range []string{"-F", "-X"} {
		for _, chain := range gone {
			fmt.Fprintf(text, "%s %s\n", verb, chain)
		}
	}
}

// subtract returns the lines of one list that the other lacks, with multiplicity.
func subtract(lines, others []string) []string {
	others = slices.Clone(others)
	var left []string
	for _, line := range lines {
		if i := slices.Index(others, line); i >= 0 {
			others = slices.Delete(others, i, i+1)
			continue
		}
		left = append(left, line)
	}
	return left
}
