package check

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"weft/internal/inspect"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// checker is the evaluation of checks, and collects what they find.
type checker struct {
	*Stage
	r       *table.Reader
	reports *inspect.Reports
	result
}

func (s *Stage) checker(r *table.Reader) *checker {
	return &checker{Stage: s, r: r, reports: inspect.ReportsBy(s.State, r)}
}

// result is what the checks of one object find.
type result struct {
	observations []*observation
	// callees are the services of the outbounds of a proxy, and transparent states that it may reach every service.
	callees     []string
	transparent bool
	// replicas are those to which a stored subscription of a proxy is open.
	replicas []string
}

func (r *result) equal(other *result) bool { return reflect.DeepEqual(r, other) }

// observation is a finding whose text has no time of reading in it. Equal observations of several objects are one
// finding.
type observation struct {
	problem  *Problem
	severity Severity
	object   Object
	mesh     string // see [Finding]
	detail   string // with marks
	cause    string
	ages     []time.Time // for each ageMark
	// by is the object that has observed it, one of those that namesMark lists and countMark counts.
	by string
	// callee is the service of this mesh whose callers decide the severity: without one, it is no finding.
	callee string
}

// Marks are places in the text of an observation that depend on the report. No argument of a text contains them.
const (
	ageMark   = "\x00"
	namesMark = "\x01" // the first objects that have observed it
	countMark = "\x02" // their number
)

var withoutMarks = strings.NewReplacer(ageMark, "", namesMark, "", countMark, "")

// age is an argument of [checker.found]: the report has the time since then, such as "5m".
type age time.Time

// observers and observerCount are arguments of [checker.found]: the first objects with an equal observation, and their
// number.
type (
	observers     struct{}
	observerCount struct{}
)

// past reports whether a time has come. A value that waits for it is evaluated again within the second after.
func (l *checker) past(t time.Time) bool {
	whole := t.Truncate(time.Second)
	if whole.Before(t) {
		whole = whole.Add(time.Second)
	}
	return l.r.Past(whole)
}

// found adds a finding with the default severity of its problem. The caller may set its cause.
func (l *checker) found(p *Problem, object Object, format string, args ...any) *observation {
	return l.add(p, p.Severity, object, format, args...)
}

func (l *checker) add(p *Problem, severity Severity, object Object, format string, args ...any) *observation {
	o, args := &observation{problem: p, severity: severity, object: object}, slices.Clone(args)
	for i, arg := range args {
		switch arg := arg.(type) {
		case age:
			o.ages = append(o.ages, time.Time(arg))
			args[i] = ageMark
		case observers:
			args[i] = namesMark
		case observerCount:
			args[i] = countMark
		case string:
			args[i] = withoutMarks.Replace(arg)
		case fmt.Stringer:
			args[i] = withoutMarks.Replace(arg.String())
		}
	}
	o.detail = fmt.Sprintf(format, args...)
	l.observations = append(l.observations, o)
	return o
}

// in states that an observation about an object of no mesh concerns one mesh.
func (o *observation) in(mesh string) *observation {
	o.mesh = mesh
	return o
}

// text returns the detail for a report.
func (o *observation) text(now time.Time, by []string) string {
	if len(o.ages) == 0 && !strings.ContainsAny(o.detail, namesMark+countMark) {
		return o.detail
	}
	text := o.detail
	for _, since := range o.ages {
		text = strings.Replace(text, ageMark, ago(now.Sub(since)), 1)
	}
	return strings.NewReplacer(namesMark, someOf(by), countMark, fmt.Sprint(len(by))).Replace(text)
}

// someOf lists the first names of a long list.
func someOf(names []string) string {
	const shown = 3
	if len(names) <= shown {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
}

func day(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }

// ago formats a duration in whole seconds, minutes, hours or days.
func ago(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours())/24)
}

// isGlobal reports whether the state is that of a global control plane, which has the proxies and services of all
// zones.
func (s *Stage) isGlobal() bool { return s.Tables.Zone == "" }

// everywhere reports whether a resource of global applies to the proxies of all zones. This zone has only some of them,
// and the proxies that it selects may be in another zone.
func (s *Stage) everywhere(meta *resource.Meta) bool {
	return !s.isGlobal() && meta.Label(kind.OriginLabel) == kind.OriginGlobal
}
