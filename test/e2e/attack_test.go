package e2e

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"testing"
	"text/tabwriter"

	"weft/internal/traffic"
)

// showAttacks is set by `make hostile`: it prints the table, and runs the long attacks.
var showAttacks = flag.Bool("hostile", false,
	"run the long attacks too, and print what every attack tried, and what held and fell")

// attack is an attempt of an attacker with a known credential, in one form or in several. Tests of attacks have the
// prefix TestHostile.
type attack struct {
	t    *testing.T
	name string

	mu    sync.Mutex
	tried int
	fell  int
}

// newAttack starts the count of an attack, unless attacks are left out. The name states attacker and attempt, as
// docs/security.md lists them.
func newAttack(t *testing.T, name string) *attack {
	t.Helper()
	skipAttacks(t)
	a := &attack{t: t, name: name}
	t.Cleanup(func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.tried == 0 && !t.Skipped() {
			t.Errorf("%s: nothing was tried", name)
		}
		attacks.mu.Lock()
		defer attacks.mu.Unlock()
		attacks.results = append(attacks.results, attackResult{a.name, a.tried, a.fell})
	})
	return a
}

// skipAttacks skips a test of attacks in `make test`, which sets WEFT_SKIP_ATTACKS.
func skipAttacks(t *testing.T) {
	t.Helper()
	if os.Getenv("WEFT_SKIP_ATTACKS") != "" {
		t.Skip("nothing was tested: WEFT_SKIP_ATTACKS is set; `make hostile` runs the attacks")
	}
}

// repelled counts an attempt that gained the attacker nothing.
func (a *attack) repelled() { a.count(nil) }

// fellTo counts an attempt that succeeded, and fails the test with the attacker's gain.
func (a *attack) fellTo(format string, args ...any) {
	a.t.Helper()
	a.count(fmt.Errorf(format, args...))
}

// count counts an attempt. gained is nil for an attempt that gained nothing.
func (a *attack) count(gained error) {
	a.t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tried++
	if gained != nil {
		a.fell++
		a.t.Errorf("%s: %v", a.name, gained)
	}
}

// costs counts the requests of other clients during the attack, which must not fail.
func (a *attack) costs(tally traffic.Tally) {
	failed, _ := tally.Failures()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tried, a.fell = a.tried+tally.Sent, a.fell+failed
}

// forms is the number of forms of an attack to try: all with -hostile, and a few, with a note in the log, without it.
func forms(t *testing.T, short, long int) int {
	t.Helper()
	if *showAttacks {
		return long
	}
	t.Logf("%d of %d forms of the attack are tried: make hostile", short, long)
	return short
}

type attackResult struct {
	name        string
	tried, fell int
}

var attacks struct {
	mu      sync.Mutex
	results []attackResult
}

func printAttacks(to io.Writer) {
	slices.SortFunc(attacks.results, func(a, b attackResult) int { return cmp.Compare(a.name, b.name) })
	out := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "ATTACK\tTRIED\tHELD\tFELL")
	tried, fell := 0, 0
	for _, r := range attacks.results {
		fmt.Fprintf(out, "%s\t%d\t%d\t%d\n", r.name, r.tried, r.tried-r.fell, r.fell)
		tried, fell = tried+r.tried, fell+r.fell
	}
	fmt.Fprintf(out, "all\t%d\t%d\t%d\n", tried, tried-fell, fell)
	out.Flush()
}
