package service

import (
	"cmp"

	"weft/internal/sni"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// ExternalKeyOf returns the key of a MeshExternalService as a destination, without a port.
func (s *Stage) ExternalKeyOf(service *resource.Object[kind.MeshExternalService]) DestinationKey {
	key := DestinationKey{Kind: ExternalService, Mesh: service.Mesh, Zone: s.state.ZoneOf(&service.Meta),
		Service: service.Name}
	if service.Label(kind.OriginLabel) == kind.OriginGlobal {
		key.Zone = ""
	}
	if key.Zone != s.state.Zone {
		key.Service = kind.OwnerName(&kind.MeshExternalServices.Info, &service.Meta)
		key.Longer = s.state.HasLongerName(&service.Meta)
	}
	return key
}

// externalNamed returns the service with a row's name or, where there is none, with the name that global gave it. A
// reference on Kubernetes has the system namespace.
func (s *Stage) externalNamed(r *table.Reader, name state.ServiceKey) DestinationKey {
	if service, ok := s.state.ExternalServices.Find(r, name.Mesh, name.Name); ok {
		return s.ExternalKeyOf(service)
	}
	for _, given := range []string{name.Name, withoutNamespace(name.Name)} {
		if service, ok := state.FindStored(s.state, s.state.ExternalServices, r, &kind.MeshExternalServices.Info,
			name.Mesh, "", given); ok {
			return s.ExternalKeyOf(service)
		}
	}
	return DestinationKey{}
}

// externalPorts returns the port that clients dial.
func (s *Stage) externalPorts(r *table.Reader, row state.ServiceKey) []kind.ServicePort {
	service, ok := s.state.ExternalServices.Find(r, row.Mesh, row.Name)
	if !ok {
		return nil
	}
	return []kind.ServicePort{{Port: service.Spec.Match.Port, AppProtocol: service.Spec.Match.Protocol}}
}

// external returns a MeshExternalService as its clients reach it: its servers are the zone egresses, which route by its
// SNI. They accept SNIs of every format, so clients use the wanted one at once.
func (s *Stage) external(r *table.Reader, key DestinationKey) *Destination {
	row := s.Row(key)
	service, ok := s.state.ExternalServices.Find(r, row.Mesh, row.Name)
	if !ok || service.Spec.Match.Port != key.Port {
		return nil
	}
	out := s.routes.EgressRoute.Get(r, key.Mesh)
	d := &Destination{Key: key, Protocol: cmp.Or(service.Spec.Match.Protocol, kind.TCP), VIPs: s.vipsOf(r, key)}
	d.Servers.Way, d.SNI = out.Way(), s.state.SNIFormat(r).Name(sni.PortOf(service, key.Port))
	s.identify(r, key.Mesh, &d.Servers, out.Identities)
	return d
}

func (s *Stage) externalEndpoints(r *table.Reader, key DestinationKey) *Endpoints {
	return &Endpoints{Destination: key, Endpoints: ThroughHops(s.routes.EgressRoute.Get(r, key.Mesh).Egresses)}
}
