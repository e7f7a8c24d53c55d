package reconcile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// members has the members of a MeshMultiZoneService for its status.
type members struct {
	services []kind.MatchedMeshService // members of at least one port
	excluded []string                  // excluded services, with the reason
	nacks    nackSummary
}

func equalMembers(a, b members) bool {
	return slices.Equal(a.services, b.services) && slices.Equal(a.excluded, b.excluded) && a.nacks == b.nacks
}

func (p *Plan) membersOf(r *table.Reader, key state.ServiceKey) members {
	service, ok := p.State.Tables.MultiZoneServices.Find(r, key.Mesh, key.Name)
	if !ok {
		return members{}
	}
	m := members{nacks: p.nacks.Get(r, causeOf(kind.MeshMultiZoneServices.Key(key.Mesh, key.Name)))}
	for _, port := range service.Spec.Ports {
		for _, t := range p.State.Services.SelectedServices(r, service, port) {
			if t.Excluded != "" {
				m.excluded = append(m.excluded, fmt.Sprintf("%s of zone %s: %s", t.Service.Service, t.Service.Zone,
					t.Excluded))
				continue
			}
			m.services = append(m.services, kind.MatchedMeshService{Name: t.Service.Service, Zone: t.Service.Zone,
				Mesh: key.Mesh})
		}
	}
	slices.SortFunc(m.services, func(a, b kind.MatchedMeshService) int {
		return cmp.Or(cmp.Compare(a.Zone, b.Zone), cmp.Compare(a.Name, b.Name))
	})
	m.services = slices.Compact(m.services)
	return m
}

// multiZone writes the SNIs and the status of a MeshMultiZoneService and, in a zone, its virtual IP.
func (p *Plan) multiZone(r *table.Reader, u Request) (w Writes) {
	service, ok := p.State.Tables.MultiZoneServices.Find(r, u.Mesh, u.Name)
	if !ok {
		return w
	}
	if listed := p.withNamespaces(r, service); listed != nil {
		w.addWrite(servingDelay, Write{Put: listed})
	} else if named := p.withSNIs(r, service); named != nil {
		w.addWrite(servingDelay, Write{Put: named})
	}
	m := p.members.Get(r, state.ServiceKey{Mesh: u.Mesh, Name: u.Name})
	status := kind.MeshMultiZoneServiceStatus{MeshServices: m.services,
		Conditions: slices.Concat(m.nacks.conditions(), m.conditions(), p.reconciled(r, u))}
	var old kind.MeshMultiZoneServiceStatus
	stored, had := p.State.Tables.MultiZoneServiceStatuses.Find(r, u.Mesh, u.Name)
	if had {
		old = stored.Spec
	}
	vips, unassigned := p.vipsOf(r, u, old.VIPs)
	status.Conditions = append(status.Conditions, unassigned...)
	status.VIPs = vips
	status.Addresses, status.HostnameGenerators = p.hostnamesOf(r, u)
	served := had && slices.Equal(old.VIPs, status.VIPs) && slices.Equal(old.Addresses, status.Addresses)
	putIfDifferent(&w, delayUntilServed(served), stored, kind.MeshMultiZoneServiceStatuses.Make(u.Mesh, u.Name, status))
	return w
}

// withNamespaces returns a MeshMultiZoneService of this control plane with the namespaces of its members, where it
// lists none: that of the oldest selected MeshService, so that no later one of another namespace joins by its labels.
// One that an earlier release wrote keeps all its members. It is nil where nothing changes. (ADR 151)
func (p *Plan) withNamespaces(r *table.Reader,
	service *resource.Object[kind.MeshMultiZoneService]) *resource.Object[kind.MeshMultiZoneService] {
	if !p.owns(service) || len(service.Spec.Selector.Namespaces) > 0 && service.Vouched.Complete {
		return nil
	}
	listed := *service
	if len(service.Spec.Selector.Namespaces) == 0 {
		namespaces := p.State.Services.MemberNamespaces(r, service)
		if service.Vouched.Complete {
			namespaces = namespaces[:min(len(namespaces), 1)]
		}
		listed.Spec.Selector.Namespaces = namespaces[:min(len(namespaces), kind.MaxMemberNamespaces)]
	}
	if len(listed.Spec.Selector.Namespaces) == 0 && service.Vouched.Complete {
		return nil
	}
	listed.Vouched.Complete = true
	return &listed
}

// conditions returns a condition that names the MeshServices excluded from a port; none where none is.
func (m *members) conditions() []kind.Condition {
	if len(m.excluded) == 0 {
		return nil
	}
	named := m.excluded[:min(len(m.excluded), maxNamedMembers)]
	message := strings.Join(named, "; ")
	if more := len(m.excluded) - len(named); more > 0 {
		message += fmt.Sprintf("; and %d more", more)
	}
	return []kind.Condition{{
		Type: "PortsMatched", Status: "False", Reason: "PortsDiffer",
		Message: "selected MeshServices that are excluded from a port: " + message,
	}}
}

// maxNamedMembers is the number of MeshServices that a condition names.
const maxNamedMembers = 10
