package reconcile

import (
	"cmp"
	"slices"

	"weft/internal/table"
	"weft/kind"
)

// addReferenceGrants adds the writes of the ReferenceGrants of this zone, one row for each mesh.
func (p *Plan) addReferenceGrants() {
	grants := p.addFamily(kind.ReferenceGrantsList.Name, p.referenceGrants, kind.ReferenceGrantsList.Name)
	table.KeepFor(p.State.Tables.Meshes, grants.Derived, perMesh[kind.Mesh](kind.ReferenceGrantsList.Name))
	table.KeepFor(p.State.Tables.ReferenceGrants, grants.Derived,
		perMesh[kind.ReferenceGrants](kind.ReferenceGrantsList.Name))
}

// referenceGrants writes the ReferenceGrants of this zone that concern producers' routes, so that all zones know them.
// Until the objects of the cluster are known, the stored grants stay.
func (p *Plan) referenceGrants(r *table.Reader, u Request) (w Writes) {
	if !p.kubernetes.Objects.IsSynced(r) {
		return w
	}
	t := p.State.Tables
	stored, ok := t.ReferenceGrants.Find(r, u.Mesh, t.Zone)
	var wanted []kind.ReferenceGrant
	if _, exists := t.Meshes.Find(r, "", u.Mesh); exists {
		for _, grant := range p.kubernetes.Objects.AllGrants(r) {
			wanted = append(wanted, grant.OfPolicies(t.SystemNamespace)...)
		}
	}
	slices.SortFunc(wanted, func(a, b kind.ReferenceGrant) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.FromNamespace, b.FromNamespace),
			cmp.Compare(a.FromKind, b.FromKind), cmp.Compare(a.ToKind, b.ToKind), cmp.Compare(a.ToName, b.ToName))
	})
	wanted = slices.Compact(wanted)
	wanted = wanted[:min(len(wanted), kind.MaxReferenceGrants)]
	switch {
	case len(wanted) > 0:
		putIfDifferent(&w, 0, stored,
			kind.ReferenceGrantsList.Make(u.Mesh, t.Zone, kind.ReferenceGrants{Grants: wanted}))
	case ok:
		w.addWrite(0, Write{Delete: stored})
	}
	return w
}
