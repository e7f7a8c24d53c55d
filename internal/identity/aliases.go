package identity

import (
	"slices"

	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
)

// aliases are sets of SPIFFE IDs, each of one workload that changes its SPIFFE ID. Many workloads may change at once,
// so they are derived in parts, and a changed workload recomputes one part.
type aliases struct {
	sets [][]string
	byID map[string][][]string // the sets that contain a SPIFFE ID
}

func newAliases(sets [][]string) *aliases {
	if len(sets) == 0 {
		return nil
	}
	a := &aliases{sets: sets, byID: map[string][][]string{}}
	for _, set := range sets {
		for _, id := range set {
			a.byID[id] = append(a.byID[id], set)
		}
	}
	return a
}

func (a *aliases) equal(b *aliases) bool {
	return a == b || a != nil && b != nil && sameSets(a.sets, b.sets)
}

func sameSets(a, b [][]string) bool { return slices.EqualFunc(a, b, slices.Equal) }

// otherIDs returns the SPIFFE IDs that a pattern does not match, of the sets with an ID that it matches.
func (a *aliases) otherIDs(ids kind.IDPattern) (others []string) {
	sets := a.sets
	if !ids.IsPrefix() {
		sets = a.byID[ids.Exact]
	}
	for _, set := range sets {
		if slices.ContainsFunc(set, ids.Has) {
			others = append(others, slices.DeleteFunc(slices.Clone(set), ids.Has)...)
		}
	}
	return others
}

// isChanging returns whether any proxy of a mesh changes its SPIFFE IDs.
func (s *Stage) isChanging(r *table.Reader, mesh string) bool {
	return s.state.CertificatesChanging.Any(r, state.MeshKey(mesh))
}

// shardAliases returns the aliases of this zone's proxies in a shard.
func (s *Stage) shardAliases(r *table.Reader, shard state.Shard) *aliases {
	var sets [][]string
	for _, row := range s.state.CertificatesChanging.List(r, shard.String()) {
		sets = append(sets, row.Spec.Aliases()...)
	}
	return newAliases(sets)
}

// zoneAliases returns the aliases that a zone states and may state, by the key of its row.
func (s *Stage) zoneAliases(r *table.Reader, row state.IdentityKey) *aliases {
	zone, ok := s.state.ChangingIdentities.Find(r, row.Mesh, row.Name)
	if !ok {
		return nil
	}
	return newAliases(slices.DeleteFunc(slices.Clone(zone.Spec.Workloads), func(ids []string) bool {
		return !s.mayRename(r, row.Mesh, s.state.OwnerOf(&zone.Meta).Zone, ids)
	}))
}

// shardsOf returns the aliases of this zone's proxies, in parts.
func (s *Stage) shardsOf(r *table.Reader, mesh string) (parts []*aliases) {
	if !s.Changing.Get(r, mesh) {
		return nil
	}
	for n := range state.Shards {
		if part := s.ofShard.Get(r, state.Shard{Mesh: mesh, Number: n}); part != nil {
			parts = append(parts, part)
		}
	}
	return parts
}

// meshAliases returns the aliases of all zones, in parts.
func (s *Stage) meshAliases(r *table.Reader, mesh string) []*aliases {
	parts := s.shardsOf(r, mesh)
	for _, row := range s.state.ChangingIdentitiesByMesh.List(r, state.MeshKey(mesh)) {
		if part := s.ofZone.Get(r, state.IdentityKey{Mesh: row.Mesh, Name: row.Name}); part != nil {
			parts = append(parts, part)
		}
	}
	return parts
}

// ownAliases returns the aliases of this zone's proxies.
func (s *Stage) ownAliases(r *table.Reader, mesh string) (sets [][]string) {
	for _, part := range s.shardsOf(r, mesh) {
		sets = append(sets, part.sets...)
	}
	slices.SortFunc(sets, slices.Compare)
	return slices.CompactFunc(sets, slices.Equal)
}

// callers are the callers of a mesh that a rule matches.
type callers struct {
	mesh string
	ids  kind.IDPattern
}

// otherIDs returns the SPIFFE IDs that a rule does not match, of workloads with an ID that it matches: while a workload
// changes its ID, a rule about one ID applies to the other, in any zone.
func (s *Stage) otherIDs(r *table.Reader, rule callers) []string {
	var others []string
	for _, part := range s.inMesh.Get(r, rule.mesh) {
		others = append(others, part.otherIDs(rule.ids)...)
	}
	slices.Sort(others)
	return slices.Compact(others)
}
