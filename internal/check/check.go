// Package check looks at a running system and says what is wrong with it: which object, how bad, why, and
// what to do.
//
// [Look] is a function of one snapshot of the table and of what is known of the proxies beside it. It
// changes nothing and sends no request. What it can find is the list [Problems]; docs/troubleshooting.md has a
// section for each.
package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"weft/internal/graph"
	"weft/internal/insight"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// World is what is looked at.
type World struct {
	State    *graph.State
	Snapshot *table.Snapshot
	Known
	// Global is how a zone stands with the global control plane; nil where it is joined to none.
	Global *insight.GlobalLink
	// Pending answers since when a proxy, connected to this instance, has not taken something that it was
	// sent; false where it has it all. Optional.
	Pending func(graph.ProxyKey) (since time.Time, ok bool)
	// ServerCertificateExpires is when the certificate of the control plane's own servers does.
	ServerCertificateExpires time.Time
	Now                      time.Time
}

// Known is what is known beside the table, subscriptions to instances that are no more closed.
type Known struct {
	Insights map[graph.ProxyKey]*kind.DataplaneInsight // of the proxies that have connected
	// ZoneInsights are of the zones that have connected to a global control plane.
	ZoneInsights map[string]*kind.ZoneInsight
}

// Report is what a look found, the worst first.
type Report struct {
	Dataplanes int       `json:"dataplanes"` // that were looked at
	Services   int       `json:"services"`
	Findings   []Finding `json:"findings"`
}

// Finding is one thing that is wrong.
type Finding struct {
	Problem  string   `json:"problem"` // the ID of one of [Problems]
	Severity Severity `json:"severity"`
	Object   Object   `json:"object"`
	Detail   string   `json:"detail"`
	Advice   string   `json:"advice"`
	Docs     string   `json:"docs"` // where the documentation says more
}

// Object names a resource; Type is "ControlPlane" and the rest empty for the control plane itself.
type Object struct {
	Type string `json:"type"`
	Mesh string `json:"mesh,omitempty"`
	Name string `json:"name,omitempty"`
}

// String reads as keys of resources do.
func (o Object) String() string {
	return resource.Key{Kind: o.Type, Mesh: o.Mesh, Name: o.Name}.String()
}

var controlPlane = Object{Type: "ControlPlane"}

func objectOf(key resource.Key) Object { return Object{key.Kind, key.Mesh, key.Name} }

// Look answers everything that is wrong.
func Look(w World) *Report {
	l := &look{World: w, r: table.Eval(w.Snapshot), report: &Report{Findings: []Finding{}}}
	l.controlPlane()
	l.zones()
	l.hostNames()
	for mesh := range w.State.Meshes.All(w.Snapshot) {
		l.mesh(mesh.Name)
	}
	slices.SortStableFunc(l.report.Findings, func(a, b Finding) int {
		return cmp.Or(
			cmp.Compare(rank(a.Severity), rank(b.Severity)),
			cmp.Compare(problemIndex(a.Problem), problemIndex(b.Problem)),
			strings.Compare(a.Object.String(), b.Object.String()),
		)
	})
	return l.report
}

// look is one look under way.
type look struct {
	World
	r      *table.Reader
	report *Report
}

// found adds a finding of a problem's usual severity.
func (l *look) found(p *Problem, object Object, format string, args ...any) {
	l.add(p, p.Severity, object, format, args...)
}

func (l *look) add(p *Problem, severity Severity, object Object, format string, args ...any) {
	l.report.Findings = append(l.report.Findings, Finding{
		Problem: p.ID, Severity: severity, Object: object, Detail: fmt.Sprintf(format, args...), Advice: p.Advice, Docs: p.docs(),
	})
}

// member is one Dataplane of a mesh as the checks of the mesh see it.
type member struct {
	object *resource.Object[kind.Dataplane]
	proxy  *graph.Proxy
}

func (l *look) mesh(mesh string) {
	l.crossZone(mesh)
	l.leftOut(mesh)
	l.owners(mesh)
	if l.isGlobal() {
		l.countAll(mesh) // each zone looks at its own
		return
	}
	var members []member
	for _, dp := range l.State.DataplanesBySelector.List(l.r, graph.MeshKey(mesh)) {
		m := member{dp, l.State.Proxy.Get(l.r, graph.ProxyKey{Mesh: mesh, Name: dp.Name})}
		members = append(members, m)
		l.proxy(m)
	}
	calls := callsOf(members)
	services := slices.DeleteFunc(slices.Clone(l.State.ServicesByMesh.List(l.r, graph.MeshKey(mesh))), l.State.IsRemote)
	for _, service := range services {
		l.service(service, calls)
	}
	if n := l.State.Generated(l.r, mesh); n >= graph.MaxGenerated {
		l.found(generatedServicesFull, objectOf(kind.Meshes.Key("", mesh)), "%d MeshServices are generated in this zone, at most %d are: a new value of %s gets none", n, graph.MaxGenerated, kind.ServiceTag)
	}
	l.leaving(mesh)
	l.external(mesh)
	l.retained(mesh)
	l.identities(mesh, members)
	l.signingKey(mesh, len(members))
	l.permissions(mesh, members)
	l.report.Dataplanes += len(members)
	l.report.Services += len(services)
}

func (l *look) countAll(mesh string) {
	l.report.Dataplanes += len(l.State.DataplanesBySelector.List(l.r, graph.MeshKey(mesh)))
	l.report.Services += len(l.State.ServicesByMesh.List(l.r, graph.MeshKey(mesh)))
}

// someOf lists names, the first of them where there are many.
func someOf(names []string) string {
	const shown = 3
	if len(names) <= shown {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
}

func day(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }
