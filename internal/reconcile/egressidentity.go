package reconcile

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
)

// hasIdentity is the type of the condition for the identity of a ZoneEgress.
const hasIdentity = "Identity"

// Reasons of the condition Identity.
const (
	identityChosen = "Chosen"
	noDefaultMesh  = "NoDefaultMesh"
	noIdentity     = "NoIdentity"
)

// egressIdentities writes the statuses of the ZoneEgresses of this zone. (Zone Egress Identity.)
func (p *Plan) egressIdentities(r *table.Reader, _ Request) (w Writes) {
	wanted := p.egressStatus.Get(r, p.State.Tables.Zone)
	egresses := p.ownEgresses(r)
	for _, name := range egresses {
		stored, _ := p.State.Tables.ZoneEgressStatuses.Find(r, "", name)
		putIfDifferent(&w, servingDelay, stored,
			kind.ZoneEgressStatuses.Make("", name, kind.ZoneEgressStatus{Conditions: wanted}))
	}
	if len(egresses) == 0 {
		return w
	}
	for _, said := range wanted {
		if advice, ok := egressAdvice[said.Reason]; ok {
			w.Notices = append(w.Notices,
				Notice{advice.level, advice.says, []any{"zoneEgress", strings.Join(egresses, ", "), "problem",
					said.Message}})
		}
	}
	return w
}

// ownEgresses returns the names of the ZoneEgresses of this zone, sorted.
func (p *Plan) ownEgresses(r *table.Reader) []string {
	var names []string
	for _, egress := range p.State.Tables.ZoneEgressesByScope.List(r, state.MeshKey("")) {
		if p.State.Tables.ZoneOf(&egress.Meta) == p.State.Tables.Zone {
			names = append(names, egress.Name)
		}
	}
	slices.Sort(names)
	return names
}

// egressConditions returns the conditions that all ZoneEgresses of the zone share.
func (p *Plan) egressConditions(r *table.Reader, _ string) []kind.Condition {
	conditions := []kind.Condition{p.egressIdentity(r)}
	if meshes := p.State.Identity.MeshesWithoutEgressTrust(r); len(meshes) > 0 {
		conditions = append(conditions, kind.Condition{Type: compatible, Status: "False", Reason: mixedProviders,
			Message: fmt.Sprintf(
				"proxies of the meshes %s and it can't connect to each other: of these two, one has certificates "+
					"from SPIRE "+
					"and the other has not, and SPIRE's roots can't be joined with others; use SPIRE in all meshes "+
					"or in none, or give these meshes egresses of their own",
				strings.Join(meshes, ", "))})
	}
	return conditions
}

func (p *Plan) egressIdentity(r *table.Reader) kind.Condition {
	choice := p.State.Identity.EgressChoice.Get(r, p.State.Tables.Zone)
	problem := choice.Problem
	if id := p.State.Identity.EgressIdentity.Get(r, choice.Chosen); problem == "" && id != nil && id.Problem != "" {
		problem = kind.IdentitySource(choice.Chosen.Mesh, choice.Chosen.Name) + ", which zone egresses are to have: " +
			id.Problem
	}
	if problem != "" {
		return kind.Condition{Type: hasIdentity, Status: "False", Reason: noIdentity, Message: problem}
	}
	said := kind.Condition{Type: hasIdentity, Status: "True", Reason: identityChosen,
		Message: "it presents the identity of " + kind.IdentitySource(choice.Chosen.Mesh, choice.Chosen.Name)}
	if len(choice.Own) > 1 {
		said.Message += ", and to the proxies of each mesh with mtls that mesh's own"
	}
	if choice.Notice != "" {
		said.Reason, said.Message = noDefaultMesh, choice.Notice
	}
	return said
}

// egressAdvice has the level and the message of the log line for a condition of a ZoneEgress, by reason.
var egressAdvice = map[string]struct {
	level slog.Level
	says  string
}{
	noIdentity:     {slog.LevelError, "a zone egress has no identity and serves no proxy"},
	noDefaultMesh:  {slog.LevelWarn, "no operator has chosen the identity of a zone egress"},
	mixedProviders: {slog.LevelWarn, "a zone egress can't serve some meshes"},
}

// egressCertificates removes expired certificates of a ZoneEgress, and the row with the last one.
func (p *Plan) egressCertificates(r *table.Reader, u Request) (w Writes) {
	row, ok := p.State.Tables.EgressCertificates.Find(r, u.Mesh, u.Name)
	if !ok {
		return w
	}
	changed := *row
	changed.Spec.Certificates = p.unexpired(r, row.Spec.Certificates)
	egress := kind.ZoneEgresses.Key("", u.Name)
	if _, there := p.State.Tables.ZoneEgresses.Find(r, "", u.Name); !there {
		w.addWrite(statusDelay, Write{Delete: row, UnlessStored: egress})
	} else if len(changed.Spec.Certificates) == 0 {
		w.addWrite(statusDelay, Write{Delete: row})
	} else {
		putIfDifferent(&w, statusDelay, row, &changed)
	}
	return w
}
