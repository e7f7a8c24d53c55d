package proxy

import (
	"cmp"
	"maps"
	"slices"

	"weft/internal/policy"
	"weft/internal/service"
	"weft/internal/state"
	"weft/internal/table"
	"weft/resource"
)

// Conflict is a to item that has no effect on a destination, because the effective conf would be invalid with it.
type Conflict struct {
	policy.Rejected
	Destination service.DestinationKey
}

// conflicts returns the conflicts of the policies of a kind in a mesh, for all Dataplanes and destinations of the mesh,
// by policy and item. It merges confs only where policies of the kind leave fields of a [kind.Combination] to each
// other.
func (s *Stage) conflicts(r *table.Reader, key PoliciesKey) []Conflict {
	rows := s.state.PolicyRows[key.Kind]
	if rows.Plan.Combination == nil || !s.leaveFields(r, key) && !(key.Kind == balancing && s.mayExclude(r, key.Mesh)) {
		return nil
	}
	found := map[Conflict]bool{}
	for _, set := range s.OutboundSets.Get(r, key.Mesh) {
		for _, of := range s.services.Destinations.Get(r, key.Mesh) {
			for _, port := range s.services.Ports.Get(r, of) {
				to := of.WithPort(port)
				for _, rejected := range s.MergedConfs(r, EffectiveKey{set, to})[key.Kind].Rejected {
					found[Conflict{rejected, to}] = true
				}
			}
		}
	}
	return slices.SortedFunc(maps.Keys(found), func(a, b Conflict) int {
		return cmp.Or(cmp.Compare(a.Origin.String(), b.Origin.String()),
			service.CompareDestinations(a.Destination, b.Destination), cmp.Compare(a.Reason, b.Reason))
	})
}

// ConflictsOf returns the conflicts of one policy.
func (s *Stage) ConflictsOf(r *table.Reader, of resource.Key) []Conflict {
	var conflicts []Conflict
	for _, c := range s.Conflicts.Get(r, PoliciesKey{of.Kind, of.Mesh}) {
		if c.Origin.Policy == of {
			conflicts = append(conflicts, c)
		}
	}
	return conflicts
}

// leaveFields reports whether a policy of a kind leaves a field of a combination to others.
func (s *Stage) leaveFields(r *table.Reader, key PoliciesKey) bool {
	rows := s.state.PolicyRows[key.Kind]
	for _, p := range rows.List(r, key.Mesh) {
		for _, part := range rows.Parts(r, key.Mesh, p.Key.Name) {
			if rows.Plan.Combination.Partial(part.Conf) {
				return true
			}
		}
	}
	return false
}

// outboundSets returns the value of [Stage.OutboundSets].
func (s *Stage) outboundSets(r *table.Reader, mesh string) []PolicySet {
	sets := map[PolicySet]bool{}
	for part := range uint32(state.MeshParts) {
		for _, set := range s.partialSets.Get(r, meshPart{mesh, part}) {
			sets[set] = true
		}
	}
	return sortedSets(sets)
}

// meshPart is a part of the Dataplanes of a mesh.
type meshPart struct {
	mesh string
	part uint32
}

// outboundSetsOf returns the sets of outbound policies of the Dataplanes in a part of a mesh.
func (s *Stage) outboundSetsOf(r *table.Reader, of meshPart) []PolicySet {
	sets := map[PolicySet]bool{}
	for _, dp := range s.state.DataplanesBySelector.List(r, state.PartKey(of.mesh, of.part)) {
		sets[s.outboundPolicies(r, state.ProxyKey{Mesh: of.mesh, Name: dp.Name})] = true
	}
	return sortedSets(sets)
}

func sortedSets(sets map[PolicySet]bool) []PolicySet {
	return slices.SortedFunc(maps.Keys(sets), func(a, b PolicySet) int { return cmp.Compare(a.String(), b.String()) })
}
