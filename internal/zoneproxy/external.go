package zoneproxy

import (
	"cmp"
	"slices"

	"weft/internal/service"
	"weft/internal/sni"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// EgressService is an external service as zone egresses accept connections for it.
type EgressService struct {
	Key      service.DestinationKey
	SNIs     []string // the SNIs that clients send
	Protocol kind.Protocol
}

func compareEgressServices(a, b EgressService) int { return service.CompareDestinations(a.Key, b.Key) }

// egressServices returns the external services of a mesh that can be dialed, and removed ones while they drain. An SNI
// belongs to one of them: to the first one by key of those that are not removed, or else of the removed ones.
func (s *Stage) egressServices(r *table.Reader, mesh string) []EgressService {
	var services []EgressService
	for _, service := range s.state.ExternalServicesByMesh.List(r, state.MeshKey(mesh)) {
		if _, ok := s.dialSettings(r, service); !ok {
			continue
		}
		port := service.Spec.Match.Port
		services = append(services, EgressService{
			Key: s.services.ExternalKeyOf(service).
				WithPort(port),
			SNIs: sni.InAllFormats(sni.PortOf(service, port)), Protocol: protocolOf(service),
		})
	}
	slices.SortFunc(services, compareEgressServices)
	services = withoutTakenSNIs(append(services, s.retainedEgressServices(r, mesh)...))
	slices.SortFunc(services, compareEgressServices)
	return services
}

// withoutTakenSNIs removes from each service the SNIs of earlier ones, and services without an SNI.
func withoutTakenSNIs(services []EgressService) []EgressService {
	taken := map[string]bool{}
	for i := range services {
		services[i].SNIs = slices.DeleteFunc(services[i].SNIs, func(name string) bool { return taken[name] })
		for _, name := range services[i].SNIs {
			taken[name] = true
		}
	}
	return slices.DeleteFunc(services, func(service EgressService) bool { return len(service.SNIs) == 0 })
}

func protocolOf(service *resource.Object[kind.MeshExternalService]) kind.Protocol {
	return cmp.Or(service.Spec.Match.Protocol, kind.TCP)
}

// dialSettings returns the endpoints and certificates with which a service is dialed: its own, or, where it refers to
// certificates, those of the last time when all of them existed; false: they never did, or no egress may have them,
// whatever an earlier release stored.
func (s *Stage) dialSettings(r *table.Reader,
	service *resource.Object[kind.MeshExternalService]) (*kind.ExternalMaterial, bool) {
	if !service.Spec.NamesCertificates() {
		return &kind.ExternalMaterial{Endpoints: service.Spec.Endpoints, TLS: service.Spec.TLS}, true
	}
	row, ok := s.state.ExternalMaterials.Find(r, service.Mesh, service.Name)
	if !ok || state.Withheld(service, &row.Spec) {
		return nil, false
	}
	return &row.Spec, true
}

// ExternalUpstream is an external service as zone egresses dial it.
type ExternalUpstream struct {
	Key       service.DestinationKey // on its [service.ExternalLocality]
	Protocol  kind.Protocol
	Endpoints []kind.ExternalEndpoint // sorted by priority, which begins at 0 without gaps
	TLS       *kind.ExternalTLS       // nil: no TLS
	// CACert, ClientCert and ClientKey belong to TLS, in PEM; empty: the system's own authorities, and no certificate.
	CACert, ClientCert, ClientKey []byte
}

func (s *Stage) externalUpstream(r *table.Reader, key service.DestinationKey) *ExternalUpstream {
	protocol, as, ok := s.upstreamSettings(r, key)
	if !ok {
		return nil
	}
	out := &ExternalUpstream{
		Key: key, Protocol: protocol, Endpoints: byPriority(s.externalOnly(as.Endpoints)),
		CACert: as.CACert, ClientCert: as.ClientCert, ClientKey: as.ClientKey,
	}
	if as.TLS != nil && as.TLS.Enabled {
		out.TLS = as.TLS
	}
	return out
}

// upstreamSettings returns the protocol, endpoints and certificates with which a service is dialed, and false where it
// is not dialed. A removed service is dialed as before while it drains.
func (s *Stage) upstreamSettings(r *table.Reader, key service.DestinationKey) (kind.Protocol, *kind.ExternalMaterial,
	bool) {
	if service, ok := s.externalService(r, key); ok {
		as, ok := s.dialSettings(r, service)
		return protocolOf(service), as, ok
	}
	row, ok := s.state.RetainedExternalServices.Find(r, key.Mesh, s.retainedExternalName(key))
	if !ok || kind.IsAuthority(row.Spec.Material.ClientCert) {
		return "", nil, false
	}
	return row.Spec.Protocol, &row.Spec.Material, true
}

// externalService returns the MeshExternalService that has a destination's port; false: there is none.
func (s *Stage) externalService(r *table.Reader,
	key service.DestinationKey) (*resource.Object[kind.MeshExternalService], bool) {
	row := s.services.Row(key)
	service, ok := s.state.ExternalServices.Find(r, row.Mesh, row.Name)
	return service, ok && service.Spec.Match.Port == key.Port
}

// externalOnly returns the endpoints whose address may be outside the mesh, whatever is stored.
func (s *Stage) externalOnly(endpoints []kind.ExternalEndpoint) []kind.ExternalEndpoint {
	return slices.DeleteFunc(slices.Clone(endpoints), func(e kind.ExternalEndpoint) bool {
		return kind.LocalEndpoint(e.Address, s.state.LocalNetworks) != ""
	})
}

// byPriority sorts endpoints and renumbers their priorities from 0 without gaps.
func byPriority(endpoints []kind.ExternalEndpoint) []kind.ExternalEndpoint {
	sorted := slices.Clone(endpoints)
	slices.SortFunc(sorted, func(a, b kind.ExternalEndpoint) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), CompareAddresses(a.Address, a.Port, b.Address, b.Port))
	})
	sorted = slices.Compact(sorted)
	next, last := uint32(0), uint32(0)
	for i := range sorted {
		if i > 0 && sorted[i].Priority != last {
			next++
		}
		last, sorted[i].Priority = sorted[i].Priority, next
	}
	return sorted
}

// CompareAddresses compares two addresses with their ports.
func CompareAddresses(a string, aPort uint32, b string, bPort uint32) int {
	return cmp.Or(cmp.Compare(a, b), cmp.Compare(aPort, bPort))
}
