package identity

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// moves returns the certificates of a proxy that changes from one SPIFFE ID to another.
func moves(name, from, to string) *resource.Object[kind.DataplaneCertificates] {
	return kind.DataplaneCertificatesList.Make("default", name, kind.DataplaneCertificates{
		Certificates: []kind.WorkloadCertificate{{SpiffeIDs: kind.SpiffeIDsOf(from)}},
		Next:         &kind.NextIdentity{SpiffeIDs: kind.SpiffeIDsOf(to)},
	})
}

// While workloads change their SPIFFE IDs, a rule about one ID, or about several by a prefix, applies to the others.
func TestARuleAppliesToBothSPIFFEIDsOfAWorkload(t *testing.T) {
	tables := state.New("east")
	s := New(tables)
	exact := callers{"default", kind.IDPattern{Exact: "spiffe://d/a/1"}}
	prefix := callers{"default", kind.IDPattern{Prefix: "spiffe://d/b/"}}
	s.OtherIDs.Pin(exact)
	s.OtherIDs.Pin(prefix)
	s.Aliases.Pin("default")
	commit := func(rows ...resource.Any) {
		tables.DB.Commit(func(tx *table.Tx) {
			for _, row := range rows {
				tables.Put(tx, row)
			}
		})
	}
	wants := func(when string, sets int, ofExact, ofPrefix []string) {
		t.Helper()
		if own, _ := s.Aliases.Value("default"); len(own) != sets {
			t.Errorf("%s: the proxies of this zone have %q, want %d sets", when, own, sets)
		}
		for rule, want := range map[callers][]string{exact: ofExact, prefix: ofPrefix} {
			if also, _ := s.OtherIDs.Value(rule); !slices.Equal(also, want) {
				t.Errorf("%s: the rule %v matches %q too, want %q", when, rule, also, want)
			}
		}
	}
	wants("no workload changes", 0, nil, nil)
	commit(moves("one", "spiffe://d/a/1", "spiffe://d/b/1"), moves("two", "spiffe://d/a/2", "spiffe://d/b/2"))
	wants("two change", 2, []string{"spiffe://d/b/1"}, []string{"spiffe://d/a/1", "spiffe://d/a/2"})
	other := kind.ChangingIdentitiesList.Make("default", "east",
		kind.ChangingIdentities{Workloads: [][]string{{"spiffe://d/a/1", "spiffe://d/c/1"}}})
	other.Labels = map[string]string{kind.ZoneLabel: "east", kind.OriginLabel: kind.OriginZone}
	commit(other)
	wants("a zone states another", 2, []string{"spiffe://d/b/1", "spiffe://d/c/1"},
		[]string{"spiffe://d/a/1", "spiffe://d/a/2"})
	commit(moves("one", "spiffe://d/a/1", "spiffe://d/a/1"), moves("two", "spiffe://d/a/3", "spiffe://d/b/2"))
	wants("one has changed, and two has another", 1, []string{"spiffe://d/c/1"}, []string{"spiffe://d/a/3"})
}

// BenchmarkACertificateWhileTenThousandChange measures the renewal of one certificate while 10,000 proxies change their
// SPIFFE IDs, for 300 rules.
func BenchmarkACertificateWhileTenThousandChange(b *testing.B) {
	tables := state.New("east")
	s := New(tables)
	changing := func(i int) *resource.Object[kind.DataplaneCertificates] {
		return moves(fmt.Sprint("d-", i), fmt.Sprintf("spiffe://d/a/s-%d", i%300), fmt.Sprintf("spiffe://d/b/%d", i))
	}
	tables.DB.Commit(func(tx *table.Tx) {
		for i := range 10_000 {
			tables.Put(tx, changing(i))
		}
	})
	for i := range 300 {
		s.OtherIDs.Pin(callers{"default", kind.IDPattern{Exact: fmt.Sprintf("spiffe://d/a/s-%d", i)}})
	}
	for i := 0; b.Loop(); i++ {
		row := changing(i % 10_000)
		row.Spec.Certificates[0].Until = kind.Time{Time: time.Unix(int64(i), 0)}
		tables.DB.Commit(func(tx *table.Tx) { tables.Put(tx, row) })
	}
}
