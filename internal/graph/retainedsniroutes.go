package graph

import (
	"slices"
	"time"

	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// retainedSNIRoutes returns the retained SNI routes of a mesh: services have lost these SNIs, and zone proxies still
// forward them.
func (s *State) retainedSNIRoutes(r *table.Reader, mesh string) []SNIRoute {
	var routes []SNIRoute
	for _, row := range s.RetainedSNIRoutesByMesh.List(r, state.MeshKey(mesh)) {
		to := DestinationKey{Mesh: mesh, Zone: s.Zone, Service: row.Spec.Service, Port: row.Spec.Port}
		if row.Spec.Kind == kind.MeshMultiZoneServices.Name {
			to = multiZoneKey(mesh, row.Spec.Service).At(row.Spec.Port).On(LocalLocality)
		}
		for _, sni := range row.Spec.SNIs {
			routes = append(routes, SNIRoute{SNI: sni, Destination: to})
		}
	}
	return routes
}

// retainedForwardable returns the former servers of a destination to which zone proxies still forward.
func (s *State) retainedForwardable(r *table.Reader, key DestinationKey) []Endpoint {
	var endpoints []Endpoint
	if row, ok := s.RetainedSNIRoutes.Find(r, key.Mesh, SNIRouteName(key)); ok {
		endpoints = s.stillServing(r, key.Mesh, row.Spec.Endpoints)
	}
	if key.Kind == MeshService {
		return endpoints
	}
	for _, row := range s.RetainedSNIRoutesByMesh.List(r, state.MeshKey(key.Mesh)) {
		if row.Spec.Port == key.Port && slices.Contains(row.Spec.MultiZone, key.Service) {
			endpoints = append(endpoints, s.stillServing(r, key.Mesh, row.Spec.Endpoints)...)
		}
	}
	return endpoints
}

// RetainSNIRoutes returns the rows of SNI routes to retain after services lost SNIs. before and after are the tables at
// both times. A route without an endpoint that still serves is omitted, and so is a route that was only a retained one.
// Rows keep what they have of the same port.
func (s *State) RetainSNIRoutes(before, after *table.Reader, had, has []SNIRoute,
	now time.Time) []*resource.Object[kind.RetainedSNIRoute] {
	gone := map[DestinationKey][]string{}
	for _, p := range had {
		_, stays := slices.BinarySearchFunc(has, p, CompareSNIRoutes)
		if !stays && slices.Contains(s.serviceSNIRoutes(before, p.Destination.Of()), p) {
			gone[p.Destination] = append(gone[p.Destination], p.SNI)
		}
	}
	var rows []*resource.Object[kind.RetainedSNIRoute]
	for key, snis := range gone {
		if row := s.retainSNIRoute(before, after, key, snis, now); row != nil {
			rows = append(rows, row)
		}
	}
	return rows
}

func (s *State) retainSNIRoute(before, after *table.Reader, key DestinationKey, snis []string,
	now time.Time) *resource.Object[kind.RetainedSNIRoute] {
	spec := kind.RetainedSNIRoute{Kind: key.Kind.String(), Service: key.Service, Port: key.Port, SNIs: snis,
		Since: kind.Time{Time: now}}
	for _, e := range s.Forwardable.Get(before, key) {
		retained := kind.RetainedEndpoint{Dataplane: e.Proxy.Name, Address: e.Address, Port: e.Port}
		if s.stillServes(after, key.Mesh, &retained) {
			spec.Endpoints = append(spec.Endpoints, retained)
		}
	}
	if len(spec.Endpoints) == 0 {
		return nil
	}
	for _, service := range s.MultiZoneServicesByMesh.List(before, state.MeshKey(key.Mesh)) {
		if key.Kind == MeshService && s.isSelected(before, key, multiZoneKey(key.Mesh, service.Name).At(key.Port)) {
			spec.MultiZone = append(spec.MultiZone, service.Name)
		}
	}
	if row, ok := s.RetainedSNIRoutes.Find(after, key.Mesh, SNIRouteName(key)); ok {
		spec.SNIs = slices.Compact(slices.Sorted(slices.Values(slices.Concat(row.Spec.SNIs, snis))))
		spec.MultiZone = slices.Compact(slices.Sorted(slices.Values(slices.Concat(row.Spec.MultiZone, spec.MultiZone))))
	}
	return kind.RetainedSNIRoutes.Make(key.Mesh, SNIRouteName(key), spec)
}

// SNIRouteName returns the name of the row with the retained SNI routes of a destination.
func SNIRouteName(key DestinationKey) string {
	name := RetainedEndpointsName(key.Service, key.Port)
	if key.Kind == MultiZoneService {
		name += ".mzms" // no name of a MeshService's row, which ends in a number
	}
	return name
}

// isSelected returns whether a MeshService's port belongs to a MeshMultiZoneService's port.
func (s *State) isSelected(r *table.Reader, member, in DestinationKey) bool {
	_, selected := s.selectedServices(r, in)
	return slices.ContainsFunc(selected, func(t SelectedService) bool { return t.Service == member })
}
