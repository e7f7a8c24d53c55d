package reconcile

import (
	"slices"
	"time"

	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// ExemptionKind is the kind of the Requests that decide about the members of a mesh without a voucher.
const ExemptionKind = "unvouched members"

// exempt completes a Mesh of this control plane that an earlier release wrote: it gets unvouchedMembers if it has a
// Dataplane that would lose its membership in services or its SPIFFE ID. The field ends by
// itself, or an operator removes it.
func (p *Plan) exempt(r *table.Reader, u Request) (w Writes) {
	mesh, ok := p.State.Tables.Meshes.Find(r, "", u.Mesh)
	if !ok || mesh.Vouched.Complete || p.State.Tables.OwnerOf(&mesh.Meta).Zone != p.State.Tables.Zone {
		return w
	}
	completed := *mesh
	completed.Vouched.Complete = true
	unvouched := p.hasUnvouched(r, mesh.Name)
	if mesh.Spec.UnvouchedMembers == nil && (unvouched || p.hasStatedIdentity(r, mesh.Name)) {
		until := r.Now().Add(kind.UnvouchedMembersTime).UTC().Truncate(24 * time.Hour)
		completed.Spec.UnvouchedMembers = &kind.UnvouchedMembers{Tags: true, Addresses: unvouched,
			Until: kind.Time{Time: until}}
	}
	w.addWrite(servingDelay, Write{Put: &completed})
	return w
}

// hasUnvouched reports whether a mesh has a Dataplane that an agent registered under an earlier release. The records of
// Dataplanes of other zones are those of their control planes, which may be of an earlier release too.
func (p *Plan) hasUnvouched(r *table.Reader, mesh string) bool {
	return slices.ContainsFunc(p.State.Tables.DataplanesBySelector.List(r, state.MeshKey(mesh)),
		func(dp *resource.Object[kind.Dataplane]) bool {
			return len(podOf(dp)) == 0 && !dp.Vouched.Complete && !kind.WrittenByOperator(&dp.Vouched, dp.Name)
		})
}

// hasStatedIdentity reports whether a mesh has a Pod whose SPIFFE ID rests on what the owner of its namespace states.
func (p *Plan) hasStatedIdentity(r *table.Reader, mesh string) bool {
	return slices.ContainsFunc(p.State.Tables.DataplanesBySelector.List(r, state.MeshKey(mesh)),
		func(dp *resource.Object[kind.Dataplane]) bool { return p.State.Identity.NamespaceProblem(r, dp) != "" })
}
