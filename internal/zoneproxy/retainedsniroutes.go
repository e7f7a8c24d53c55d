package zoneproxy

import (
	"slices"
	"time"

	"weft/internal/service"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// retainedSNIRoutes returns the retained SNI routes of a mesh: services have lost these SNIs, and zone proxies still
// forward them.
func (s *Stage) retainedSNIRoutes(r *table.Reader, mesh string) []SNIRoute {
	var routes []SNIRoute
	for _, row := range s.state.RetainedSNIRoutesByMesh.List(r, state.MeshKey(mesh)) {
		to := service.DestinationKey{Mesh: mesh, Zone: s.state.Zone, Service: row.Spec.Service, Port: row.Spec.Port}
		if row.Spec.Kind == kind.MeshMultiZoneServices.Name {
			to = service.MultiZoneKey(mesh, row.Spec.Service).WithPort(row.Spec.Port).
				WithLocality(service.LocalLocality)
		}
		for _, sni := range row.Spec.SNIs {
			routes = append(routes, SNIRoute{SNI: sni, Destination: to})
		}
	}
	return routes
}

// retainedForwardable returns the former servers of a destination to which zone proxies still forward.
func (s *Stage) retainedForwardable(r *table.Reader, key service.DestinationKey) []service.Endpoint {
	var endpoints []service.Endpoint
	if row, ok := s.state.RetainedSNIRoutes.Find(r, key.Mesh, SNIRouteName(key)); ok {
		endpoints = s.services.StillServing(r, key, row.Spec.Endpoints)
	}
	if key.Kind == service.MeshService {
		return endpoints
	}
	for _, row := range s.state.RetainedSNIRoutesByMesh.List(r, state.MeshKey(key.Mesh)) {
		if row.Spec.Port == key.Port && slices.Contains(row.Spec.MultiZone, key.Service) {
			endpoints = append(endpoints, s.services.StillServing(r, key, row.Spec.Endpoints)...)
		}
	}
	return endpoints
}

// RetainSNIRoutes returns the rows of SNI routes to retain after services lost SNIs. before and after are the tables at
// both times. A route without an endpoint that still serves is omitted, and so is a route that was only a retained one.
// Rows keep what they have of the same port.
func (s *Stage) RetainSNIRoutes(before, after *table.Reader, had, has []SNIRoute,
	now time.Time) []*resource.Object[kind.RetainedSNIRoute] {
	gone := map[service.DestinationKey][]string{}
	for _, p := range had {
		_, stays := slices.BinarySearchFunc(has, p, CompareSNIRoutes)
		if !stays && slices.Contains(s.serviceSNIRoutes(before, p.Destination.ServiceKey()), p) {
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

func (s *Stage) retainSNIRoute(before, after *table.Reader, key service.DestinationKey, snis []string,
	now time.Time) *resource.Object[kind.RetainedSNIRoute] {
	spec := kind.RetainedSNIRoute{Kind: key.Kind.String(), Service: key.Service, Port: key.Port, SNIs: snis,
		Since: kind.Time{Time: now}}
	for _, e := range s.Forwardable.Get(before, key) {
		retained := kind.RetainedEndpoint{Dataplane: e.Proxy.Name, Address: e.Address, Port: e.Port}
		if s.services.StillServes(after, key, &retained) {
			spec.Endpoints = append(spec.Endpoints, retained)
		}
	}
	if len(spec.Endpoints) == 0 {
		return nil
	}
	for _, multiZone := range s.state.MultiZoneServicesByMesh.List(before, state.MeshKey(key.Mesh)) {
		if key.Kind == service.MeshService &&
			s.services.IsSelected(before, key, service.MultiZoneKey(key.Mesh, multiZone.Name).WithPort(key.Port)) {
			spec.MultiZone = append(spec.MultiZone, multiZone.Name)
		}
	}
	if row, ok := s.state.RetainedSNIRoutes.Find(after, key.Mesh, SNIRouteName(key)); ok {
		spec.SNIs = slices.Compact(slices.Sorted(slices.Values(slices.Concat(row.Spec.SNIs, snis))))
		spec.MultiZone = slices.Compact(slices.Sorted(slices.Values(slices.Concat(row.Spec.MultiZone, spec.MultiZone))))
	}
	return kind.RetainedSNIRoutes.Make(key.Mesh, SNIRouteName(key), spec)
}

// SNIRouteName returns the name of the row with the retained SNI routes of a destination.
func SNIRouteName(key service.DestinationKey) string {
	name := service.RetainedEndpointsName(key.Service, key.Port)
	if key.Kind == service.MultiZoneService {
		name += ".mzms" // no name of a MeshService's row, which ends in a number
	}
	return name
}
