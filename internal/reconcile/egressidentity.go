package reconcile

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"weft/internal/graph"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// hasIdentity is the type of the condition that says which identity a ZoneEgress presents, or why it has none.
const hasIdentity = "Identity"

// Reasons of that condition.
const (
	identityChosen = "Chosen"
	noDefaultMesh  = "NoDefaultMesh"
	noIdentity     = "NoIdentity"
)

// egressIdentities keeps what the ZoneEgresses of this zone say about their identity. (Zone Egress Identity.)
func (p *Plan) egressIdentities(r *table.Reader) []Step {
	var steps []Step
	wanted := p.egressSays.Get(r, p.State.Zone)
	for _, name := range p.ownEgresses(r) {
		stored, ok := p.State.ZoneEgressStatuses.Find(r, "", name)
		if !ok || !slices.Equal(stored.Spec.Conditions, wanted) {
			steps = append(steps, Step{Put: kind.ZoneEgressStatuses.Make("", name, kind.ZoneEgressStatus{Conditions: wanted})})
		}
	}
	return steps
}

// ownEgresses returns the names of the ZoneEgresses of this zone, sorted.
func (p *Plan) ownEgresses(r *table.Reader) []string {
	var names []string
	for _, egress := range p.State.ZoneEgressesByScope.List(r, graph.MeshKey("")) {
		if p.State.ZoneOf(&egress.Meta) == p.State.Zone {
			names = append(names, egress.Name)
		}
	}
	slices.Sort(names)
	return names
}

// egressConditions are the same for all ZoneEgresses of the zone, by its name.
func (p *Plan) egressConditions(r *table.Reader, _ string) []kind.Condition {
	conditions := []kind.Condition{p.egressIdentity(r)}
	if meshes := p.State.StrangersToEgresses(r); len(meshes) > 0 {
		conditions = append(conditions, kind.Condition{Type: compatible, Status: "False", Reason: mixedProviders, Message: fmt.Sprintf(
			"proxies of the meshes %s and it refuse each other: of these two, one has certificates from SPIRE and the other has not, and SPIRE's roots can't be joined with others; use SPIRE in all meshes or in none, or give these meshes egresses of their own",
			strings.Join(meshes, ", "))})
	}
	return conditions
}

func (p *Plan) egressIdentity(r *table.Reader) kind.Condition {
	choice := p.State.EgressChoice.Get(r, p.State.Zone)
	problem := choice.Problem
	if id := p.State.EgressIdentity.Get(r, choice.Chosen); problem == "" && id != nil && id.Problem != "" {
		problem = kind.IdentitySource(choice.Chosen.Mesh, choice.Chosen.Name) + ", which zone egresses are to have: " + id.Problem
	}
	if problem != "" {
		return kind.Condition{Type: hasIdentity, Status: "False", Reason: noIdentity, Message: problem}
	}
	said := kind.Condition{Type: hasIdentity, Status: "True", Reason: identityChosen, Message: "it presents the identity of " + kind.IdentitySource(choice.Chosen.Mesh, choice.Chosen.Name)}
	if len(choice.Own) > 1 {
		said.Message += ", and to the proxies of each mesh with mtls that mesh's own"
	}
	if choice.Notice != "" {
		said.Reason, said.Message = noDefaultMesh, choice.Notice
	}
	return said
}

// egressAdvice is what the log says of a condition of a ZoneEgress, by its reason, and how loud.
var egressAdvice = map[string]struct {
	level slog.Level
	says  string
}{
	noIdentity:     {slog.LevelError, "a zone egress has no identity and serves nobody"},
	noDefaultMesh:  {slog.LevelWarn, "whose identity a zone egress has was not decided by an operator"},
	mixedProviders: {slog.LevelWarn, "a zone egress can't serve some meshes"},
}

// logEgresses logs what an operator has to do about the zone's ZoneEgresses, which all have the same conditions: once
// for as long as a condition holds and this instance leads, whatever is stored.
func (rc *Reconciler) logEgresses(r *table.Reader) {
	egresses := rc.plan.ownEgresses(r)
	if len(egresses) == 0 {
		rc.logged = nil
		return
	}
	before := rc.logged
	rc.logged = rc.plan.egressSays.Get(r, rc.plan.State.Zone)
	for _, said := range rc.logged {
		if advice, ok := egressAdvice[said.Reason]; ok && !slices.Contains(before, said) {
			rc.log.Log(context.Background(), advice.level, advice.says, "zoneEgress", strings.Join(egresses, ", "), "problem", said.Message)
		}
	}
}

// egressLeaves forgets the leaves of a ZoneEgress that nobody can be shown any more.
func (p *Plan) egressLeaves(r *table.Reader, mesh, name string, now time.Time) (steps []Step, again time.Time) {
	row, ok := p.State.EgressCertificates.Find(r, mesh, name)
	if !ok {
		return nil, time.Time{}
	}
	kept, again := counting(row.Spec.Certificates, now)
	_, there := p.State.ZoneEgresses.Find(r, "", name)
	switch {
	case !there || len(kept) == 0:
		gone := row.Key()
		return []Step{{Delete: &gone}}, time.Time{}
	case len(kept) == len(row.Spec.Certificates):
		return nil, again
	}
	changed := *row
	changed.Spec.Certificates = kept
	return []Step{{Put: &changed}}, again
}

func (rc *Reconciler) observeEgressLeaves(o *resource.Object[kind.DataplaneCertificates], now time.Time) {
	rc.ask(Unit(o.Key()), now.Add(calmly))
	if used := o.Spec.InUse(); used != nil && len(o.Spec.Certificates) > 1 {
		rc.ask(Unit{kind.MeshIdentities.Name, o.Mesh, used.MeshIdentity}, now.Add(calmly))
	}
}

func (rc *Reconciler) askEgressIdentities(now time.Time) {
	rc.ask(Unit{kind.ZoneEgresses.Name, "", ""}, now.Add(soon))
}
