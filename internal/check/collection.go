package check

import (
	"iter"
	"slices"
	"time"

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

// count adds a number of proxies of a mesh, each with the result of its checks.
func (c callers) count(mesh string, of *result, n int) {
	if of == nil {
		return
	}
	for _, service := range of.callees {
		key := resource.Key{Mesh: mesh, Name: service}
		if c.named[key] += n; c.named[key] == 0 {
			delete(c.named, key)
		}
	}
	if of.transparent {
		c.transparent[mesh] += n
	}
}

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

// merge returns the findings of observations, equal ones as one, sorted by severity, problem and object.
func merge(records iter.Seq[record], c callers) []*merged {
	type identity struct {
		problem  *Problem
		severity Severity
		object   Object
		detail   string
	}
	var all []*merged
	known := map[identity]*merged{}
	for r := range records {
		severity, found := c.severity(r.observation)
		if !found {
			continue
		}
		key := identity{r.problem, severity, r.object, r.detail}
		m := known[key]
		if m == nil {
			m = &merged{record: r, severity: severity}
			known[key] = m
			all = append(all, m)
		} else if r.since.Before(m.since) {
			m.since, m.atLeast = r.since, r.atLeast
		}
		if r.by != "" {
			m.by = append(m.by, r.by)
		}
	}
	for _, m := range all {
		slices.Sort(m.by)
	}
	return all
}

// finding returns a merged finding as a report has it.
func (m *merged) finding(now time.Time) Finding {
	return Finding{Problem: m.problem.ID, Severity: m.severity, Object: m.object, Mesh: m.mesh,
		Detail: m.text(now, m.by), Advice: m.problem.Advice, Docs: m.problem.docs(), Cause: m.cause}
}

// isCertificate reports whether a finding is about a certificate that the store's outage keeps from being recorded.
func (m *merged) isCertificate() bool {
	return m.problem == certificateExpired || m.problem == certificateExpiring
}

// findingsOf returns the findings of a report, sorted.
func findingsOf(all []*merged, w World) []Finding {
	findings := make([]Finding, 0, len(all))
	for _, m := range all {
		if w.StoreOutage == nil || !m.isCertificate() {
			findings = append(findings, m.finding(w.Now))
		}
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
