// Package check finds problems of a running system. A finding has an object, a severity, a reason and advice.
//
// [Run] is a function of one snapshot of the table and of the proxies' insights. It changes nothing and sends no
// request. [Problems] lists all problems; docs/troubleshooting.md has a section for each.
package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"weft/internal/access"
	"weft/internal/graph"
	"weft/internal/inspect"
	"weft/internal/proxy"
	"weft/internal/service"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// World is the input of Look.
type World struct {
	State    *graph.State
	Snapshot *table.Snapshot
	// Modifying counts what MeshProxyPatches change; nil: nothing is counted.
	Modifying inspect.Modifying
	Known
	// Global is the status of a zone's connection to global. It is nil where the zone joined none.
	Global *inspect.GlobalLink
	// Pending returns the start of the oldest pending ACK of a proxy that is connected to this replica, or false
	// without one. Optional.
	Pending func(state.ProxyKey) (since time.Time, ok bool)
	// StoreOutage is set while the store takes no writes.
	StoreOutage *Failure
	Replica     Replica
	// Mesh is the only mesh that is checked. Empty: all, and what belongs to none.
	Mesh string
	// OperatorsUnset are the missing settings where the given ones say who may write and not who are the operators.
	OperatorsUnset []string
	Now            time.Time
}

// Failure is a failure of a part of the control plane that goes on.
type Failure struct {
	Since  time.Time
	Reason string // for users
}

// Known has the insights of proxies and zones. Subscriptions to former replicas are closed.
type Known struct {
	// Insight returns that of a proxy, of any kind; nil, or without a subscription: it has not connected. Without the
	// function, no proxy has.
	Insight func(state.ProxyKey) *kind.DataplaneInsight
	// ZoneInsights has the insights of the zones that have connected to a global control plane.
	ZoneInsights map[string]*kind.ZoneInsight
}

// Report is the result of Look. Findings are sorted by severity, errors first.
type Report struct {
	Dataplanes int `json:"dataplanes"` // number of checked Dataplanes
	Services   int `json:"services"`
	// Meshes are the meshes of the report, where its reader may not read all of them.
	Meshes   []string  `json:"meshes,omitempty"`
	Findings []Finding `json:"findings"`
	// More is the number of findings of zones beyond the bound of a report.
	More int `json:"more,omitempty"`
}

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

// in reports whether the object is a mesh or belongs to it.
func (o *Object) in(mesh string) bool {
	return o.Mesh == mesh || o.Type == kind.Meshes.Name && o.Name == mesh
}

func objectOf(key resource.Key) Object { return Object{key.Kind, key.Mesh, key.Name} }

// Run returns all findings.
func Run(w World) *Report {
	l := newChecker(w)
	if w.Mesh == "" {
		l.storeOutage()
		l.operatorsUnset()
		l.zones()
		l.zoneProxies()
		l.sidecars()
	}
	l.replica()
	l.ownWrites()
	l.longerNames()
	l.zoneProxyNamespaces()
	l.hostNames()
	for mesh := range w.State.Tables.Meshes.All(w.Snapshot) {
		if w.Mesh == "" || w.Mesh == mesh.Name {
			l.mesh(mesh.Name)
		}
	}
	if w.Mesh != "" {
		l.report.Findings = slices.DeleteFunc(l.report.Findings, func(f Finding) bool { return !f.Object.in(w.Mesh) })
	}
	l.report.sort()
	return l.report
}

// Limit leaves out the findings that a reader of some meshes may not read. It keeps those that concern every mesh, and
// name nothing of one.
func (r *Report) Limit(meshes access.MeshSet) {
	if meshes.IsAll() {
		return
	}
	r.Meshes = meshes.Names()
	r.Findings = slices.DeleteFunc(r.Findings, func(f Finding) bool {
		object := resource.Key{Kind: f.Object.Type, Mesh: f.Object.Mesh, Name: f.Object.Name}
		general := f.Mesh == "" && slices.ContainsFunc(ofEveryMesh, func(p *Problem) bool { return p.ID == f.Problem })
		return !general && !meshes.Has(f.Mesh) && !meshes.Permits(access.WriteScope(object))
	})
}

func (r *Report) sort() {
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return cmp.Or(
			cmp.Compare(rank(a.Severity), rank(b.Severity)),
			cmp.Compare(problemIndex(a.Problem), problemIndex(b.Problem)),
			strings.Compare(a.Object.String(), b.Object.String()),
		)
	})
}

// Written returns the findings about a policy or a MeshService that a write would store, as far as they need no other
// policy: targets that do not exist, and selectors that match nothing. A mesh without Dataplanes has none.
func Written(w World, o resource.Any) []Finding {
	w.Snapshot = w.Snapshot.Fork(func(tx *table.Tx) { w.State.Tables.Put(tx, o) }).Snapshot
	l := newChecker(w)
	if len(l.State.Tables.DataplanesBySelector.List(l.r, state.MeshKey(o.Envelope().Mesh))) == 0 {
		return nil
	}
	if _, policy := kind.ByName(o.Key().Kind).(kind.Policy); policy {
		object, effect := objectOf(o.Key()), l.effects.Targets(o)
		l.targets(object, effect)
		if effect.Reason == kind.CostTooHigh {
			l.found(policyNotAccepted, object, "%s: %s", effect.Reason, effect.Message)
		}
		if effect.Reason == inspect.NoProxySelected || effect.Reason == inspect.NoSectionSelected {
			l.found(selectorMatchesNothing, object, "%s", effect.Message)
		}
	}
	if service, ok := o.(*resource.Object[kind.MeshService]); ok && !l.isGlobal() {
		l.matches(service, slices.Collect(l.State.Services.Members(l.r, service)))
	}
	return l.report.Findings
}

func newChecker(w World) *checker {
	reports := inspect.NewReports(w.State, w.Snapshot)
	reports.Modifying = w.Modifying
	return &checker{World: w, r: reports.Reader(), reports: reports,
		effects: reports.PolicyEffects(), report: &Report{Findings: []Finding{}}}
}

// checker is a run in progress.
type checker struct {
	World
	r       *table.Reader
	reports *inspect.Reports
	effects *inspect.PolicyEffects
	report  *Report
}

// found adds a finding with the default severity of its problem.
func (l *checker) found(p *Problem, object Object, format string, args ...any) {
	l.add(p, p.Severity, object, format, args...)
}

// foundIn adds a finding about an object of no mesh that concerns one mesh.
func (l *checker) foundIn(mesh string, p *Problem, object Object, format string, args ...any) {
	l.addIn(mesh, p, p.Severity, object, format, args...)
}

func (l *checker) addIn(mesh string, p *Problem, severity Severity, object Object, format string, args ...any) {
	l.add(p, severity, object, format, args...)
	l.report.Findings[len(l.report.Findings)-1].Mesh = mesh
}

func (l *checker) add(p *Problem, severity Severity, object Object, format string, args ...any) {
	l.report.Findings = append(l.report.Findings, Finding{
		Problem: p.ID, Severity: severity, Object: object, Detail: fmt.Sprintf(format, args...), Advice: p.Advice,
		Docs: p.docs(),
	})
}

// checkedProxy is the proxy of a Dataplane, a ZoneIngress or a ZoneEgress, with the time at which this was written.
type checkedProxy struct {
	proxy   *proxy.Proxy
	created time.Time
}

func (c checkedProxy) object() Object { return objectOf(c.proxy.Key.Resource()) }

// member is one Dataplane of a mesh, with the input of its checks.
type member struct {
	checkedProxy
	dataplane *resource.Object[kind.Dataplane]
}

func (l *checker) mesh(mesh string) {
	l.crossZone(mesh)
	l.excludedMembers(mesh)
	l.exemption(mesh)
	l.owners(mesh)
	l.policies(mesh)
	l.faults(mesh)
	if l.isGlobal() {
		l.countAll(mesh) // each zone checks its own
		return
	}
	var members []member
	for _, dp := range l.State.Tables.DataplanesBySelector.List(l.r, state.MeshKey(mesh)) {
		of := l.State.Proxies.Proxy.Get(l.r, state.ProxyKey{Mesh: mesh, Name: dp.Name})
		m := member{checkedProxy{of, dp.Created}, dp}
		members = append(members, m)
		l.proxy(m)
	}
	calls := callsOf(members)
	services := slices.DeleteFunc(
		slices.Clone(l.State.Tables.ServicesByMesh.List(l.r, state.MeshKey(mesh))),
		func(o *resource.Object[kind.MeshService]) bool {
			remote := l.State.Tables.IsRemote(o)
			if remote {
				l.serviceStatus(o, objectOf(o.Key())) // the rest is its zone's
			}
			return remote
		},
	)
	for _, service := range services {
		l.service(service, calls)
	}
	l.fullNamespaces(mesh, services)
	l.fullOfPolicies(mesh)
	if n := l.State.Services.GeneratedCount(l.r, mesh); n >= service.MaxGenerated {
		l.found(generatedServicesFull, objectOf(kind.Meshes.Key("", mesh)),
			"%d MeshServices are generated in this zone, the maximum is %d: a new value of %s gets none", n,
			service.MaxGenerated, kind.ServiceTag)
	}
	l.egressRoute(mesh)
	l.external(mesh)
	l.retained(mesh)
	l.identities(mesh, members)
	l.signingKey(mesh, members)
	l.callerDomains(mesh)
	l.report.Dataplanes += len(members)
	l.report.Services += len(services)
}

func (l *checker) countAll(mesh string) {
	l.report.Dataplanes += len(l.State.Tables.DataplanesBySelector.List(l.r, state.MeshKey(mesh)))
	l.report.Services += len(l.State.Tables.ServicesByMesh.List(l.r, state.MeshKey(mesh)))
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
