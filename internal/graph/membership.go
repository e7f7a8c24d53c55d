package graph

import (
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// UnreachableOutbounds returns the inbounds that a service's selector matches and that are not members, because the
// mesh does not admit their Dataplanes.
func (s *State) UnreachableOutbounds(r *table.Reader, service *resource.Object[kind.MeshService]) []Member {
	var notAdmitted []Member
	for dp, in := range s.Selected(r, service) {
		if !s.Admits(r, dp) {
			notAdmitted = append(notAdmitted, Member{Dataplane: dp, Inbound: in})
		}
	}
	return notAdmitted
}
