package check

import (
	"iter"
	"slices"
	"time"

	"weft/internal/graph"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// Stage has the findings of objects as derived values, and what they have in common. Nothing keeps them but what asks
// for them. It reads every stage of a state.
type Stage struct {
	*graph.State
	// lost are the replicas whose lease has expired while a stored subscription to them is open.
	lost table.Input[lostReplica]
	// dataplanes and services are the numbers of checked objects by mesh.
	dataplanes, services table.Sum

	common
	// findings are what the objectChecks find about one row; nil where there is none.
	findings table.Derived[resource.Key, *result]
}

// lostReplica is a replica that can't close its subscriptions any more.
type lostReplica struct {
	id      string
	renewed time.Time // its lease, the last time
}

// NewStage adds the stage to the tables of a state, before their first commit.
func NewStage(g *graph.State) *Stage {
	s := &Stage{State: g}
	s.lost = table.NewInput(g.Tables.DB, func(l lostReplica) string { return l.id })
	s.dataplanes = table.NewSum(g.Tables.Dataplanes, func(o *resource.Object[kind.Dataplane]) (string, int) {
		return o.Mesh, 1
	})
	s.services = table.NewSum(g.Tables.Services, func(o *resource.Object[kind.MeshService]) (string, int) {
		if !s.isGlobal() && g.Tables.IsRemote(o) {
			return "", 0 // its zone checks it
		}
		return o.Mesh, 1
	})
	s.addCommon()
	s.findings = table.NewDerived(g.Tables.DB, "findings", s.findingsOf, (*result).equal)
	return s
}

// objectCheck is a check of the rows of a kind that reads the table alone.
type objectCheck struct {
	kind string // empty: every kind with copies
	at   place
	// concerns reports whether a row can have a finding, by the row alone; nil: each can.
	concerns func(*Stage, resource.Any) bool
	run      func(*checker, resource.Any)
}

// place is the control planes that run a check.
type place int

const (
	inZones place = 1 << iota
	onGlobal
	anywhere = inZones | onGlobal
)

// about returns a check of the rows of a kind.
func about[S any](k *resource.Kind[S], at place, run func(*checker, *resource.Object[S])) objectCheck {
	return objectCheck{kind: k.Name, at: at,
		run: func(l *checker, o resource.Any) { run(l, o.(*resource.Object[S])) }}
}

// objectChecks are the checks about one row. A check that lists a mesh would run for every change in it.
var objectChecks = []objectCheck{
	{"", anywhere, (*Stage).hasLongerName, (*checker).longerName},
	{kind.Dataplanes.Name, anywhere, (*Stage).isUnlistedZoneProxy, (*checker).zoneProxyNamespace},
	about(kind.Dataplanes, inZones, (*checker).dataplane),
	about(kind.ZoneIngresses, inZones, (*checker).zoneIngress),
	about(kind.ZoneEgresses, inZones, (*checker).zoneEgress),
	about(kind.MeshServices, inZones, (*checker).meshService),
	about(kind.MeshServices, anywhere, (*checker).crossZone),
	about(kind.MeshServices, inZones, (*checker).remoteDomains),
	about(kind.MeshExternalServices, inZones, (*checker).external),
	about(kind.MeshMultiZoneServices, anywhere, (*checker).excludedMembers),
	about(kind.RetainedEndpointsList, inZones, (*checker).retained),
	about(kind.MeshZoneAddresses, anywhere, (*checker).ingresses),
	about(kind.ResolvedNames, anywhere, (*checker).hostName),
	about(kind.PodReports, anywhere, (*checker).pod),
	about(kind.FailedWritesList, anywhere, (*checker).ownWrites),
	about(kind.Meshes, anywhere, (*checker).exemption),
	about(kind.Meshes, anywhere, (*checker).owners),
	about(kind.Meshes, inZones, (*checker).mesh),
	about(kind.MeshIdentities, inZones, (*checker).meshIdentity),
	about(kind.MeshTrusts, inZones, (*checker).trustWithoutEffect),
	about(kind.DataplaneCertificatesList, inZones, (*checker).certificateRoot),
	about(&kind.MeshTrafficPermissions.Kind, inZones, (*checker).callerDomains),
	about(&kind.MeshFaultInjections.Kind, anywhere, (*checker).faults),
}

// checksOf returns the checks that concern a row here.
func (s *Stage) checksOf(o resource.Any) iter.Seq[*objectCheck] {
	at, info := inZones, kind.ByName(o.Key().Kind).Describe()
	if s.isGlobal() {
		at = onGlobal
	}
	return func(yield func(*objectCheck) bool) {
		for i := range objectChecks {
			c := &objectChecks[i]
			ofKind := c.kind == info.Name || c.kind == "" && kind.HasSyncedName(info) && !info.Hidden && !info.ReadOnly
			if ofKind && c.at&at != 0 && (c.concerns == nil || c.concerns(s, o)) && !yield(c) {
				return
			}
		}
	}
}

// isChecked reports whether a row can have a finding.
func (s *Stage) isChecked(o resource.Any) bool {
	for range s.checksOf(o) {
		return true
	}
	return false
}

// findingsOf are the values of findings.
func (s *Stage) findingsOf(r *table.Reader, key resource.Key) *result {
	o, ok := s.Tables.Find(r, key)
	if !ok {
		return nil
	}
	return s.find(r, o)
}

// find returns what the checks of a row find.
func (s *Stage) find(r *table.Reader, o resource.Any) *result {
	l := s.checker(r)
	for c := range s.checksOf(o) {
		c.run(l, o)
	}
	return &l.result
}

// checkedRows returns every row that can have a finding.
func (s *Stage) checkedRows(snapshot *table.Snapshot) iter.Seq[resource.Any] {
	return func(yield func(resource.Any) bool) {
		for _, of := range s.Tables.Kinds() {
			for o := range s.Tables.ResourcesAfter(snapshot, of, "", "") {
				if s.isChecked(o) && !yield(o) {
					return
				}
			}
		}
	}
}

// withLost returns a snapshot with the lost replicas of open subscriptions.
func (s *Stage) withLost(snapshot *table.Snapshot, ended func(string) (time.Time, bool)) *table.Snapshot {
	var replicas []string
	for _, insights := range []state.Rows[kind.DataplaneInsight]{s.Tables.Insights, s.Tables.ZoneIngressInsights,
		s.Tables.ZoneEgressInsights} {
		for o := range insights.All(snapshot) {
			replicas = append(replicas, openReplicas(&o.Spec)...)
		}
	}
	slices.Sort(replicas)
	return snapshot.Fork(func(tx *table.Tx) {
		for _, id := range slices.Compact(replicas) {
			if renewed, lost := ended(id); lost {
				s.lost.Put(tx, lostReplica{id, renewed})
			}
		}
	}).Snapshot
}
