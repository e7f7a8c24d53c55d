package zoneproxy

import (
	"cmp"
	"slices"
	"strings"

	"weft/internal/service"
	"weft/internal/table"
	"weft/kind"
)

// SNIRoute is an SNI that zone proxies forward, and its destination. (SNI in the resource definition.)
type SNIRoute struct {
	SNI         string
	Destination service.DestinationKey
	CrossZone   bool // to remote zones
}

// CompareSNIRoutes compares two SNI routes.
func CompareSNIRoutes(a, b SNIRoute) int {
	return cmp.Or(strings.Compare(a.SNI, b.SNI), service.CompareDestinations(a.Destination, b.Destination))
}

// serviceSNIRoutes returns the SNI routes of a service's ports, in no order. This zone's ingresses forward to its own
// services, and to the local members of MeshMultiZoneServices.
func (s *Stage) serviceSNIRoutes(r *table.Reader, key service.DestinationKey) []SNIRoute {
	var routes []SNIRoute
	for _, port := range s.services.PortsOf(r, key) {
		to := key.WithPort(port.Port)
		if key.Kind == service.MultiZoneService {
			to = to.WithLocality(service.LocalLocality)
		}
		for _, sni := range port.SNIs {
			routes = append(routes, SNIRoute{SNI: sni.Value, Destination: to})
		}
	}
	return routes
}

// sniRoutes returns the SNI routes of the zone ingresses of a mesh, sorted.
func (s *Stage) sniRoutes(r *table.Reader, mesh string) []SNIRoute {
	all := s.retainedSNIRoutes(r, mesh)
	for _, key := range s.services.Destinations.Get(r, mesh) {
		if key.Kind == service.MultiZoneService || key.Kind == service.MeshService && key.Zone == s.state.Zone {
			all = append(all, s.ServiceSNIRoutes.Get(r, key)...)
		}
	}
	return uniqueSNIs(all)
}

// uniqueSNIs sorts SNI routes, and keeps one route for each SNI.
func uniqueSNIs(routes []SNIRoute) []SNIRoute {
	slices.SortFunc(routes, CompareSNIRoutes)
	return slices.CompactFunc(routes, func(a, b SNIRoute) bool { return a.SNI == b.SNI })
}

// forwardable returns the servers of a destination that remote zones may reach: servers with mutual TLS, also former
// ones. A plaintext server is reached from its own zone only, since it cannot authenticate its callers.
func (s *Stage) forwardable(r *table.Reader, key service.DestinationKey) []service.Endpoint {
	servers := service.InOrder(slices.Concat(s.services.EndpointsOf(r, key).Endpoints, s.retainedForwardable(r, key)))
	return slices.DeleteFunc(servers, func(e service.Endpoint) bool {
		serving, ok := s.state.ListenerStatuses.Find(r, e.Proxy.Mesh, e.Proxy.Name)
		return !ok || !slices.ContainsFunc(serving.Spec.Inbounds, func(in kind.ServedInbound) bool {
			return in.Address == e.Address && in.Port == e.Port && in.Serial != ""
		})
	})
}
