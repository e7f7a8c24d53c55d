// Package check finds problems of a running system. A finding has an object, a severity, a reason and advice.
//
// A check is a function of a [checker]. There are three lists of checks, by what they read:
//
//   - objectChecks read the table alone, about one row: the findings of an object are a derived value ([Stage]), which
//     the table evaluates again where something that it has read has changed. They read with the checker's Reader and
//     compare times with [checker.past]. Their texts have no age: [checker.age] is a place in the text that is filled
//     in when a report is written.
//   - controlChecks read what no table has, see [World]. They run for each report, so they cost little.
//   - policyChecks are about policies. Their effects are evaluated in one pass.
//
// A [Tracker] has all of them at a cost that follows the findings and the changes, and the time since which each
// finding exists. [Tracker.Subscribe] is for those who follow the findings: a wakeup, and what came and went since the
// last one. [Run] evaluates all checks from nothing. Both have equal results.
//
// Nothing of a mesh is changed and no request is sent. [Problems] lists all problems; docs/troubleshooting.md has a
// section for each.
package check

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"weft/internal/access"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// Report is the result of a check. Findings are sorted by severity, errors first.
type Report struct {
	Dataplanes int `json:"dataplanes"` // number of checked Dataplanes
	Services   int `json:"services"`
	// Meshes are the meshes of the report, where its reader may not read all of them.
	Meshes   []string  `json:"meshes,omitempty"`
	Findings []Finding `json:"findings"`
	// More is the number of findings of zones beyond the bound of a report.
	More int `json:"more,omitempty"`
	// PoliciesAt is the time of the state whose policies were evaluated, where that is not the present one.
	PoliciesAt *kind.Time `json:"policiesAt,omitempty"`

	meshes map[string]checked // by name
}

// checked are the numbers of a mesh's checked objects.
type checked struct{ dataplanes, services int }

// Finding is one problem of one object.
type Finding struct {
	Problem  string   `json:"problem"` // the ID of one of [Problems]
	Severity Severity `json:"severity"`
	Object   Object   `json:"object"`
	// Mesh is the mesh that a finding about an object of no mesh concerns; empty: it concerns no mesh, or all.
	Mesh   string `json:"mesh,omitempty"`
	Detail string `json:"detail"`
	Advice string `json:"advice"`
	Docs   string `json:"docs"` // the documentation's section
	// Cause is what findings of several objects with one problem have in common. Empty: the problem alone.
	Cause string `json:"cause,omitempty"`
	// Since is the commit with which this replica had the finding first; with AtLeast, it may have had it before. Both
	// are absent where it has only now been evaluated.
	Since   *kind.Time `json:"since,omitempty"`
	AtLeast bool       `json:"atLeast,omitempty"`
	// Zones are the zones that report the finding, on global; empty: this control plane does.
	Zones []string `json:"zones,omitempty"`
}

// Object is a resource. For the control plane itself, Type is "ControlPlane" and the other fields are empty.
type Object struct {
	Type string `json:"type"`
	Mesh string `json:"mesh,omitempty"`
	Name string `json:"name,omitempty"`
}

// String returns the object in the form of resource keys.
func (o Object) String() string {
	return resource.Key{Kind: o.Type, Mesh: o.Mesh, Name: o.Name}.String()
}

var controlPlane = Object{Type: "ControlPlane"}

// isIn reports whether the object is a mesh or belongs to it.
func (o *Object) isIn(mesh string) bool {
	return o.Mesh == mesh || o.Type == kind.Meshes.Name && o.Name == mesh
}

func objectOf(key resource.Key) Object { return Object{key.Kind, key.Mesh, key.Name} }

// Run returns all findings, evaluated from nothing.
func Run(s *Stage, snapshot *table.Snapshot, w World) *Report {
	snapshot = s.withLost(snapshot, w.Ended).AtTime(w.Now)
	r, c := table.Eval(snapshot), newCallers()
	var observations []*observation
	for o := range s.checkedRows(snapshot) {
		of := s.find(r, o)
		observations = append(observations, of.observations...)
		c.count(o.Key().Mesh, of, 1)
	}
	control, policies := s.controlChecker(snapshot, w), s.policyChecker(snapshot, w.Modifying)
	control.run()
	policies.run()
	observations = slices.Concat(observations, control.observations, policies.observations)
	set := newFindingSet(undated(observations), c, snapshot.Revision, w.StoreOutage != nil)
	return s.report(snapshot, findingsOf(set.all, w.Now))
}

// Limit leaves out the findings that a reader of some meshes may not read. It keeps those that concern every mesh, and
// name nothing of one.
func (r *Report) Limit(meshes access.MeshSet) {
	if meshes.IsAll() {
		return
	}
	r.Meshes = meshes.Names()
	if r.meshes != nil {
		r.count(r.Meshes...)
	}
	r.Findings = slices.DeleteFunc(slices.Clone(r.Findings), func(f Finding) bool {
		object := resource.Key{Kind: f.Object.Type, Mesh: f.Object.Mesh, Name: f.Object.Name}
		general := slices.ContainsFunc(ofEveryMesh, func(p *Problem) bool { return p.ID == f.Problem })
		return !general && !meshes.Has(f.Mesh) && !meshes.Permits(access.WriteScope(object))
	})
}

// report returns a report with findings and the numbers of what was checked.
func (s *Stage) report(snapshot *table.Snapshot, findings []Finding) *Report {
	report := &Report{Findings: findings, meshes: map[string]checked{}}
	r := table.Eval(snapshot)
	for o := range s.Tables.Meshes.All(snapshot) {
		report.meshes[o.Name] = checked{s.dataplanes.Get(r, o.Name), s.services.Get(r, o.Name)}
	}
	report.count(slices.Collect(maps.Keys(report.meshes))...)
	return report
}

// count sets the numbers of checked objects to those of some meshes.
func (r *Report) count(meshes ...string) {
	r.Dataplanes, r.Services = 0, 0
	for _, mesh := range meshes {
		r.Dataplanes += r.meshes[mesh].dataplanes
		r.Services += r.meshes[mesh].services
	}
}

// Part returns the part of a report that is about one mesh, or the whole for an empty name.
func (r *Report) Part(mesh string) *Report {
	if mesh == "" {
		return r
	}
	of := r.meshes[mesh]
	return &Report{Dataplanes: of.dataplanes, Services: of.services,
		Findings: slices.DeleteFunc(slices.Clone(r.Findings), func(f Finding) bool { return !f.Object.isIn(mesh) })}
}

func sortFindings(findings []Finding) {
	slices.SortStableFunc(findings, func(a, b Finding) int {
		return cmp.Or(
			cmp.Compare(rank(a.Severity), rank(b.Severity)),
			cmp.Compare(problemIndex(a.Problem), problemIndex(b.Problem)),
			strings.Compare(a.Object.String(), b.Object.String()),
		)
	})
}
