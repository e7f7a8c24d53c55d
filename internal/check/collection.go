package check

import (
	"iter"
	"maps"
	"slices"
	"time"

	"weft/kind"
	"weft/resource"
)

// record is an observation with the time since which it has been made.
type record struct {
	*observation
	since time.Time
	// atLeast states that it may be older.
	atLeast bool
}

// callers are the numbers of proxies that call services.
type callers struct {
	named       map[resource.Key]int // with an outbound for a service, by mesh and name
	transparent map[string]int       // that may reach every service at its virtual IP, by mesh
}

func newCallers() callers { return callers{map[resource.Key]int{}, map[string]int{}} }

// count adds a number of proxies of a mesh, each with the result of its checks. It returns whether a service has its
// first caller, or lost its last one.
func (c callers) count(mesh string, of *result, n int) (decides bool) {
	for _, service := range of.callees {
		decides = addTo(c.named, resource.Key{Mesh: mesh, Name: service}, n) || decides
	}
	if of.transparent {
		decides = addTo(c.transparent, mesh, n) || decides
	}
	return decides
}

// addTo adds to a number, and returns whether it was 0 or is 0 now.
func addTo[K comparable](numbers map[K]int, key K, n int) bool {
	former := numbers[key]
	numbers[key] += n
	if numbers[key] == 0 {
		delete(numbers, key)
	}
	return former == 0 || former+n == 0
}

func (c callers) clone() callers { return callers{maps.Clone(c.named), maps.Clone(c.transparent)} }

// severity returns the severity of an observation, or false where it is no finding: no proxy calls the service.
func (c callers) severity(o *observation) (Severity, bool) {
	switch key := (resource.Key{Mesh: o.object.Mesh, Name: o.callee}); {
	case o.callee == "" || c.named[key] > 0:
		return o.severity, true
	case c.transparent[key.Mesh] > 0:
		return Warning, true
	}
	return "", false
}

// merged is a finding that several objects may have observed.
type merged struct {
	record
	severity Severity
	by       []string // sorted
}

// identity is what equal observations have in common.
type identity struct {
	problem  *Problem
	severity Severity
	object   Object
	detail   string
}

// findingSet is all findings at one time.
type findingSet struct {
	revision uint64
	all      []*merged
	known    map[identity]*merged
}

// newFindingSet returns the findings of observations, equal ones as one. While the store takes no writes, the
// certificates that are renewed meanwhile are not recorded, so they are no findings.
func newFindingSet(records iter.Seq[record], c callers, revision uint64, outage bool) *findingSet {
	s := &findingSet{revision: revision, known: map[identity]*merged{}}
	for r := range records {
		severity, found := c.severity(r.observation)
		if found && !(outage && (r.problem == certificateExpired || r.problem == certificateExpiring)) {
			s.add(r, severity)
		}
	}
	for _, m := range s.all {
		slices.Sort(m.by)
	}
	return s
}

func (s *findingSet) add(r record, severity Severity) {
	key := identity{r.problem, severity, r.object, r.detail}
	m := s.known[key]
	if m == nil {
		m = &merged{record: r, severity: severity}
		s.known[key] = m
		s.all = append(s.all, m)
	} else if r.since.Before(m.since) {
		m.since, m.atLeast = r.since, r.atLeast
	}
	if r.by != "" {
		m.by = append(m.by, r.by)
	}
}

// without returns the findings that another set lacks.
func (s *findingSet) without(other *findingSet) []*merged {
	var all []*merged
	for key, m := range s.known {
		if other.known[key] == nil {
			all = append(all, m)
		}
	}
	return all
}

// finding returns a merged finding as a report has it.
func (m *merged) finding(now time.Time) Finding {
	f := Finding{Problem: m.problem.ID, Severity: m.severity, Object: m.object, Mesh: m.mesh,
		Detail: m.text(now, m.by), Advice: m.problem.Advice, Docs: m.problem.docs(), Cause: m.cause, AtLeast: m.atLeast}
	if !m.since.IsZero() {
		f.Since = &kind.Time{Time: m.since}
	}
	return f
}

// findingsOf returns the findings of a report, sorted.
func findingsOf(all []*merged, now time.Time) []Finding {
	findings := make([]Finding, 0, len(all))
	for _, m := range all {
		findings = append(findings, m.finding(now))
	}
	sortFindings(findings)
	return findings
}

// undated returns observations without times.
func undated(observations []*observation) iter.Seq[record] {
	return func(yield func(record) bool) {
		for _, o := range observations {
			if !yield(record{observation: o}) {
				return
			}
		}
	}
}

// subject is a problem and its object: what has one time since which it exists.
type subject struct {
	problem string
	object  Object
}

// dated returns observations with the times of former ones about the same problem and object. Others exist since now,
// or at least since now.
func dated(former []record, observations []*observation, now time.Time, atLeast bool) []record {
	known := make(map[subject]record, len(former))
	for _, r := range former {
		known[subject{r.problem.ID, r.object}] = r
	}
	records := make([]record, 0, len(observations))
	for _, o := range observations {
		r, ok := known[subject{o.problem.ID, o.object}]
		if !ok {
			r = record{since: now, atLeast: atLeast}
		}
		records = append(records, record{o, r.since, r.atLeast})
	}
	return records
}

// equalRecords reports whether records have the same texts up to ages.
func equalRecords(a, b []record) bool {
	return slices.EqualFunc(a, b, func(a, b record) bool {
		return a.problem == b.problem && a.severity == b.severity && a.object == b.object && a.detail == b.detail
	})
}
