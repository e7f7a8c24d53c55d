package reconcile

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"weft/internal/graph"
	"weft/internal/table"
	"weft/kind"
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
func (p *Plan) egressIdentities(r *table.Reader, _ Unit) (w Writes) {
	wanted := p.egressSays.Get(r, p.State.Zone)
	egresses := p.ownEgresses(r)
	for _, name := range egresses {
		stored, _ := p.State.ZoneEgressStatuses.Find(r, "", name)
		put(&w, soon, stored, kind.ZoneEgressStatuses.Make("", name, kind.ZoneEgressStatus{Conditions: wanted}))
	}
	if len(egresses) == 0 {
		return w
	}
	for _, said := range wanted {
		if advice, ok := egressAdvice[said.Reason]; ok {
			w.Notices = append(w.Notices, Notice{advice.level, advice.says, []any{"zoneEgress", strings.Join(egresses, ", "), "problem", said.Message}})
		}
	}
	return w
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

// egressLeaves forgets the leaves of a ZoneEgress that nobody can be shown any more.
func (p *Plan) egressLeaves(r *table.Reader, u Unit) (w Writes) {
	row, ok := p.State.EgressCertificates.Find(r, u.Mesh, u.Name)
	if !ok {
		return w
	}
	changed := *row
	changed.Spec.Certificates = counting(r, row.Spec.Certificates)
	egress := kind.ZoneEgresses.Key("", u.Name)
	if _, there := p.State.ZoneEgresses.Find(r, "", u.Name); !there {
		w.add(calmly, Write{Delete: row, Gone: egress})
	} else if len(changed.Spec.Certificates) == 0 {
		w.add(calmly, Write{Delete: row})
	} else {
		put(&w, calmly, row, &changed)
	}
	return w
}
