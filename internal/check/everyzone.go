package check

import (
	"slices"

	"weft/kind"
)

// maxFindings is the number of findings of all zones in a report of global. Each zone has an equal share, errors first.
const maxFindings = 20_000

// EveryZone adds the findings of other replicas, and on global of zones, to a report, each finding once.
type EveryZone struct {
	report *Report
	share  int
	seen   map[finding]int  // the index in the report
	about  map[subject]bool // of the findings of this control plane and of the other replicas
}

// finding is what two reports have in common about one problem.
type finding struct {
	problem  string
	severity Severity
	object   Object
	detail   string
	zone     string // of an object that global does not know; two zones may have one of the name
}

// NewEveryZone returns a report without the findings of a number of zones.
func NewEveryZone(report *Report, zones int) *EveryZone {
	e := &EveryZone{report: report, share: maxFindings / max(zones, 1), seen: map[finding]int{},
		about: map[subject]bool{}}
	for i := range report.Findings {
		f := &report.Findings[i]
		e.seen[finding{f.Problem, f.Severity, f.Object, f.Detail, ""}] = i
		e.about[subject{f.Problem, f.Object}] = true
	}
	return e
}

// Add adds the findings of a zone. here returns the object of this control plane that the zone names, or the zone's own
// and false. The zone decides what it found and not what to do: a known problem has the advice of this release.
func (e *EveryZone) Add(zone string, findings []Finding, here func(Object) (Object, bool)) {
	for i := range findings {
		f := findings[i]
		if i == e.share {
			e.report.More += len(findings) - i
			return
		}
		if at := problemIndex(f.Problem); at >= 0 {
			f.Advice, f.Docs = problems[at].Advice, problems[at].docs()
		} else {
			f.Advice = "Run `weft check` at the control plane of the zone: this release does not know the problem."
			f.Docs = ""
		}
		if f.Severity != Warning {
			f.Severity = Error
		}
		of, known := here(f.Object)
		f.Object, f.Zones = of, []string{zone}
		identity := finding{f.Problem, f.Severity, of, f.Detail, zone}
		if known {
			identity.zone = ""
		}
		if at, ok := e.seen[identity]; ok {
			if same := &e.report.Findings[at]; len(same.Zones) > 0 && same.Zones[len(same.Zones)-1] != zone {
				same.Zones = append(same.Zones, zone)
			}
			continue
		}
		e.seen[identity] = len(e.report.Findings)
		e.report.Findings = append(e.report.Findings, f)
	}
}

// AddReplica adds the findings of another replica that it alone can find.
func (e *EveryZone) AddReplica(instance string, findings []Finding) {
	for i := range findings {
		f := &findings[i]
		if f.Object == controlPlane {
			f.Object.Name = instance
		}
		ofReplica := slices.ContainsFunc(ofReplicas, func(p *Problem) bool { return p.ID == f.Problem })
		if known := e.about[subject{f.Problem, f.Object}]; ofReplica && !known {
			e.about[subject{f.Problem, f.Object}] = true
			e.seen[finding{f.Problem, f.Severity, f.Object, f.Detail, ""}] = len(e.report.Findings)
			e.report.Findings = append(e.report.Findings, *f)
		}
	}
}

// UnknownReplica adds that another replica has not responded.
func (e *EveryZone) UnknownReplica(instance, reason string) {
	e.unknown(replicaUnknown, Object{Type: controlPlane.Type, Name: instance}, reason)
}

// Unknown adds that a zone has not responded, unless the report has it from the zone's connection.
func (e *EveryZone) Unknown(zone, reason string) {
	e.unknown(zoneUnknown, objectOf(kind.Zones.Key("", zone)), reason)
}

func (e *EveryZone) unknown(p *Problem, object Object, reason string) {
	if e.about[subject{p.ID, object}] {
		return
	}
	e.about[subject{p.ID, object}] = true
	e.report.Findings = append(e.report.Findings, Finding{Problem: p.ID, Severity: p.Severity, Object: object,
		Detail: reason, Advice: p.Advice, Docs: p.docs()})
}

// Report returns the whole report, sorted as that of [Run].
func (e *EveryZone) Report() *Report {
	sortFindings(e.report.Findings)
	for i := range e.report.Findings {
		slices.Sort(e.report.Findings[i].Zones)
	}
	return e.report
}

// IsUnknownSource reports whether the finding is that the findings of a zone or a replica are missing.
func (f *Finding) IsUnknownSource() bool {
	return f.Problem == zoneUnknown.ID || f.Problem == replicaUnknown.ID
}

// MissesOnly reports whether all errors of a report are zones and replicas that have not responded, at least one.
func (r *Report) MissesOnly() bool {
	missing := false
	for i := range r.Findings {
		switch f := &r.Findings[i]; {
		case f.IsUnknownSource():
			missing = true
		case f.Severity == Error:
			return false
		}
	}
	return missing
}
