package graph

import (
	"slices"
	"time"

	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

func heldPassageKeys(o *resource.Object[kind.RetainedSNIRoute]) []string {
	return proxiesOf(o.Mesh, o.Spec.Endpoints)
}

// heldPassages are the server names of a mesh that have gone and are passed on still.
func (s *State) heldPassages(r *table.Reader, mesh string) []SNIRoute {
	var passages []SNIRoute
	for _, row := range s.RetainedSNIRoutesByMesh.List(r, MeshKey(mesh)) {
		to := DestinationKey{Mesh: mesh, Zone: s.Zone, Service: row.Spec.Service, Port: row.Spec.Port}
		if row.Spec.Kind == kind.MeshMultiZoneServices.Name {
			to = multiZoneKey(mesh, row.Spec.Service).At(row.Spec.Port).On(LocalLocality)
		}
		for _, sni := range row.Spec.SNIs {
			passages = append(passages, SNIRoute{SNI: sni, Destination: to})
		}
	}
	return passages
}

// heldPassable are the former servers of a destination that are passed on to still.
func (s *State) heldPassable(r *table.Reader, key DestinationKey) []Endpoint {
	var endpoints []Endpoint
	if row, ok := s.RetainedSNIRoutes.Find(r, key.Mesh, SNIRouteName(key)); ok {
		endpoints = s.stillServing(r, key.Mesh, row.Spec.Endpoints)
	}
	if key.Kind == MeshService {
		return endpoints
	}
	for _, row := range s.RetainedSNIRoutesByMesh.List(r, MeshKey(key.Mesh)) {
		if row.Spec.Port == key.Port && slices.Contains(row.Spec.MultiZone, key.Service) {
			endpoints = append(endpoints, s.stillServing(r, key.Mesh, row.Spec.Endpoints)...)
		}
	}
	return endpoints
}

// RetainSNIRoutes answers what is to be passed on still when server names have gone from services, by the table before
// that and after: nothing where nobody was reached by them, or that was all that was left of them already. What is
// held of the same port stays with it.
func (s *State) RetainSNIRoutes(before, after *table.Reader, had, has []SNIRoute, now time.Time) []*resource.Object[kind.RetainedSNIRoute] {
	gone := map[DestinationKey][]string{}
	for _, p := range had {
		_, stays := slices.BinarySearchFunc(has, p, CompareSNIRoutes)
		if !stays && slices.Contains(s.serviceSNIRoutes(before, p.Destination.Of()), p) {
			gone[p.Destination] = append(gone[p.Destination], p.SNI)
		}
	}
	var rows []*resource.Object[kind.RetainedSNIRoute]
	for key, snis := range gone {
		if row := s.holdPassage(before, after, key, snis, now); row != nil {
			rows = append(rows, row)
		}
	}
	return rows
}

func (s *State) holdPassage(before, after *table.Reader, key DestinationKey, snis []string, now time.Time) *resource.Object[kind.RetainedSNIRoute] {
	spec := kind.RetainedSNIRoute{Kind: key.Kind.String(), Service: key.Service, Port: key.Port, SNIs: snis, Since: kind.Time{Time: now}}
	for _, e := range s.Forwardable.Get(before, key) {
		held := kind.RetainedEndpoint{Dataplane: e.Proxy.Name, Address: e.Address, Port: e.Port}
		if s.stillServes(after, key.Mesh, &held) {
			spec.Endpoints = append(spec.Endpoints, held)
		}
	}
	if len(spec.Endpoints) == 0 {
		return nil
	}
	for _, service := range s.MultiZoneServicesByMesh.List(before, MeshKey(key.Mesh)) {
		if key.Kind == MeshService && s.takesPart(before, key, multiZoneKey(key.Mesh, service.Name).At(key.Port)) {
			spec.MultiZone = append(spec.MultiZone, service.Name)
		}
	}
	if row, ok := s.RetainedSNIRoutes.Find(after, key.Mesh, SNIRouteName(key)); ok {
		spec.SNIs = slices.Compact(slices.Sorted(slices.Values(slices.Concat(row.Spec.SNIs, snis))))
		spec.MultiZone = slices.Compact(slices.Sorted(slices.Values(slices.Concat(row.Spec.MultiZone, spec.MultiZone))))
	}
	return kind.RetainedSNIRoutes.Make(key.Mesh, SNIRouteName(key), spec)
}

// SNIRouteName is the name of the row of what is passed on still of a destination.
func SNIRouteName(key DestinationKey) string {
	name := RetainedEndpointsName(key.Service, key.Port)
	if key.Kind == MultiZoneService {
		name += ".mzms" // no name of a MeshService's row, which ends in a number
	}
	return name
}

// takesPart says whether a MeshService's port is part of a MeshMultiZoneService's.
func (s *State) takesPart(r *table.Reader, member, in DestinationKey) bool {
	_, taking := s.taking(r, in)
	return slices.ContainsFunc(taking, func(t SelectedService) bool { return t.Service == member })
}
