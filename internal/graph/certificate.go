package graph

import (
	"weft/internal/match"
	"weft/internal/state"
	"weft/internal/table"
)

// permissions returns the joined rules of a section of a proxy.
func (s *State) permissions(r *table.Reader, key state.ProxyKey, section string) *match.Permissions {
	joined := match.Permit(s.PermissionsOf(r, key.Mesh, key, section))
	s.ExtendRules(r, key.Mesh, joined)
	return joined
}
