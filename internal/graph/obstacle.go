package graph

import (
	"slices"

	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// Unreachable is why clients of other zones don't reach a service, as words.
type Unreachable string

const (
	// NoIdentity: what is plain is known by its address alone, and that ends at the zone's ingress.
	NoIdentity Unreachable = "its servers have no identity: other zones reach mutual TLS only"
	// NoSNI: the ingress has nothing to tell it by.
	NoSNI Unreachable = "a port of it has no server name (SNI) yet"
	// NoIngress: the zone has no door.
	NoIngress Unreachable = "its zone has no zone ingress"
	// NoHealthyIngress: the doors are all closed, as far as the zone knows.
	NoHealthyIngress Unreachable = "no zone ingress of its zone is healthy"
)

// Unreachable say why clients of other zones don't reach a service; none where nothing stands in their way.
func (s *State) Unreachable(r *table.Reader, o *resource.Object[kind.MeshService]) []Unreachable {
	var obstacles []Unreachable
	if len(spiffeIDs(&o.Spec)) == 0 {
		obstacles = append(obstacles, NoIdentity)
	}
	if slices.ContainsFunc(o.Spec.Ports, func(p kind.ServicePort) bool { return p.SNI() == "" }) {
		obstacles = append(obstacles, NoSNI)
	}
	doors := s.reportIngresses(r, o.Mesh, s.ZoneOf(&o.Meta))
	switch {
	case len(doors) == 0:
		obstacles = append(obstacles, NoIngress)
	case !slices.ContainsFunc(doors, func(door IngressReport) bool { return door.Healthy }):
		obstacles = append(obstacles, NoHealthyIngress)
	}
	return obstacles
}

// ManyZones says whether the services of a mesh live in several zones, this one counted in.
func (s *State) ManyZones(r *table.Reader, mesh string) bool {
	one := s.Zone
	for _, o := range s.ServicesByMesh.List(r, MeshKey(mesh)) {
		zone := s.ZoneOf(&o.Meta)
		if one != "" && zone != one {
			return true
		}
		one = zone
	}
	return false
}
