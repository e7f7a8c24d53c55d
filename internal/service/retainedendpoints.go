package service

import (
	"fmt"
	"slices"
	"time"

	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// RetainedEndpointsName returns the name of the row with the retained endpoints of a destination.
func RetainedEndpointsName(service string, port uint32) string {
	return fmt.Sprintf("%s-%d", service, port)
}

// RetainedEndpointsOf returns the retained endpoints of a destination that still serve.
func (s *Stage) RetainedEndpointsOf(r *table.Reader, key DestinationKey) []Endpoint {
	if key.Zone != s.state.Zone {
		return nil
	}
	row, ok := s.state.RetainedEndpoints.Find(r, key.Mesh, RetainedEndpointsName(key.Service, key.Port))
	if !ok {
		return nil
	}
	return s.StillServing(r, key, row.Spec.Endpoints)
}

// StillServing returns the former endpoints of a destination that may be used.
func (s *Stage) StillServing(r *table.Reader, key DestinationKey, former []kind.RetainedEndpoint) []Endpoint {
	var endpoints []Endpoint
	for i := range former {
		if e := &former[i]; s.StillServes(r, key, e) {
			endpoints = append(endpoints,
				Endpoint{Address: e.Address, Port: e.Port, Proxy: state.ProxyKey{Mesh: key.Mesh, Name: e.Dataplane}})
		}
	}
	return endpoints
}

// StillServes returns whether a former endpoint of a destination may be used: its proxy serves it, somebody vouches for
// it, and neither its owner nor its probe nor its agent nor its mesh excludes it. An exclusion takes effect at once,
// also for the last endpoint.
func (s *Stage) StillServes(r *table.Reader, key DestinationKey, e *kind.RetainedEndpoint) bool {
	mesh := key.Mesh
	dp, ok := s.state.Dataplanes.Find(r, mesh, e.Dataplane)
	if !ok || !s.identity.Admits(r, dp) || s.hasLostVoucher(r, key, dp, e) {
		return false
	}
	for _, in := range state.CurrentInbounds(s.state.NetworkingOf(r, dp)) {
		if in.Listener() == e.Listener() && in.State != kind.Ready {
			return false
		}
	}
	serving, ok := s.state.ListenerStatuses.Find(r, mesh, e.Dataplane)
	return ok && !serving.Spec.Draining && slices.ContainsFunc(serving.Spec.Inbounds, func(in kind.ServedInbound) bool {
		return in.Listener() == e.Listener() && !in.Unhealthy
	})
}

// RetainEndpoints returns the row with the endpoints to retain after a list became empty: the former endpoints that
// still serve and have only lost their membership. It is nil where there are none, and for the service of a remote
// zone: the zone states itself whether its ingresses may be used.
func (s *Stage) RetainEndpoints(r *table.Reader, key DestinationKey, former []Endpoint,
	now time.Time) *resource.Object[kind.RetainedEndpoints] {
	row := s.Row(key)
	service, ok := s.state.Services.Find(r, row.Mesh, row.Name)
	if !ok || s.state.IsRemote(service) {
		return nil
	}
	if _, ok := kind.PortNumbered(service.Spec.Ports, key.Port); !ok {
		return nil
	}
	spec := kind.RetainedEndpoints{Service: key.Service, Port: key.Port, Since: kind.Time{Time: now}}
	for _, e := range former {
		retained := kind.RetainedEndpoint{Dataplane: e.Proxy.Name, Address: e.Address, Port: e.Port}
		if s.StillServes(r, key, &retained) {
			spec.Endpoints = append(spec.Endpoints, retained)
		}
	}
	if len(spec.Endpoints) == 0 {
		return nil
	}
	return kind.RetainedEndpointsList.Make(key.Mesh, RetainedEndpointsName(key.Service, key.Port), spec)
}

// Successors returns the number of new members that the retained ones wait for, and of those that serve.
func (s *Stage) Successors(r *table.Reader, row *resource.Object[kind.RetainedEndpoints]) (ready, serving int) {
	service, ok := s.state.Services.Find(r, row.Mesh, row.Spec.Service)
	if !ok {
		return 0, 0
	}
	port, ok := kind.PortNumbered(service.Spec.Ports, row.Spec.Port)
	if !ok {
		return 0, 0
	}
	for m := range s.Members(r, service) {
		if m.Inbound.State != kind.Ready || !Targets(port, &m.Inbound) {
			continue
		}
		ready++
		if m.Ready && m.Healthy {
			serving++
		}
	}
	return ready, serving
}

// RetainedCount returns the number of former endpoints of a row that still serve.
func (s *Stage) RetainedCount(r *table.Reader, row *resource.Object[kind.RetainedEndpoints]) int {
	return len(s.RetainedEndpointsOf(r, DestinationKey{Mesh: row.Mesh, Zone: s.state.Zone, Service: row.Spec.Service,
		Port: row.Spec.Port}))
}
