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

// retainedEgressServices returns the removed external services of a mesh that drain, sorted. A service of the same name
// and port that was created since replaces a removed one.
func (s *Stage) retainedEgressServices(r *table.Reader, mesh string) []EgressService {
	var services []EgressService
	for _, row := range s.state.RetainedExternalServicesByMesh.List(r, state.MeshKey(mesh)) {
		key := RetainedExternalKey(row)
		if _, exists := s.externalService(r, key); !exists && !kind.IsAuthority(row.Spec.Material.ClientCert) {
			services = append(services, EgressService{Key: key, SNIs: slices.Clone(row.Spec.SNIs),
				Protocol: row.Spec.Protocol})
		}
	}
	slices.SortFunc(services, compareEgressServices)
	return services
}

// RetainedExternalKey returns the destination of a retained external service.
func RetainedExternalKey(row *resource.Object[kind.RetainedExternalService]) service.DestinationKey {
	return service.DestinationKey{Kind: service.ExternalService, Mesh: row.Mesh, Zone: row.Spec.Zone,
		Service: row.Spec.Service, Port: row.Spec.Port, Longer: row.Spec.Longer}
}

// retainedExternalName returns the name of the row that retains an external service.
func (s *Stage) retainedExternalName(key service.DestinationKey) string {
	return service.RetainedEndpointsName(s.services.Row(key).Name, key.Port)
}

// RetainExternalServices returns the rows of external services to retain: those that had the services of egresses
// before, and that were removed since or lost their port. before and after are the tables at both times.
func (s *Stage) RetainExternalServices(before, after *table.Reader, had []EgressService,
	now time.Time) []*resource.Object[kind.RetainedExternalService] {
	var rows []*resource.Object[kind.RetainedExternalService]
	for _, e := range had {
		_, existed := s.externalService(before, e.Key)
		_, exists := s.externalService(after, e.Key)
		protocol, as, ok := s.upstreamSettings(before, e.Key)
		if !existed || exists || !ok {
			continue
		}
		row := kind.RetainedExternalService{Zone: e.Key.Zone, Service: e.Key.Service, Longer: e.Key.Longer,
			Port: e.Key.Port, Protocol: protocol, SNIs: e.SNIs, Material: *as, Since: kind.Time{Time: now}}
		if d := s.services.Targeted.Get(before, e.Key); d != nil {
			row.Labels, row.Sections = d.Labels, d.Sections
		}
		rows = append(rows, kind.RetainedExternalServices.Make(e.Key.Mesh, s.retainedExternalName(e.Key), row))
	}
	return rows
}
