package reconcile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"weft/internal/graph"
	"weft/internal/table"
	"weft/kind"
)

// members are what the status of a MeshMultiZoneService is made of.
type members struct {
	services []kind.MatchedMeshService // those that take part in a port of it
	leftOut  []string                  // and who does not, in which port and why
	refused  refusals
}

func equalMembers(a, b members) bool {
	return slices.Equal(a.services, b.services) && slices.Equal(a.leftOut, b.leftOut) && a.refused == b.refused
}

func (p *Plan) membersOf(r *table.Reader, key graph.ServiceKey) members {
	service, ok := p.State.MultiZoneServices.Find(r, key.Mesh, key.Name)
	if !ok {
		return members{}
	}
	m := members{refused: p.refused.Get(r, causeOf(kind.MeshMultiZoneServices.Key(key.Mesh, key.Name)))}
	for _, port := range service.Spec.Ports {
		for _, t := range p.State.SelectedServices(r, service, port) {
			if t.Excluded != "" {
				m.leftOut = append(m.leftOut, fmt.Sprintf("%s of zone %s: %s", t.Service.Service, t.Service.Zone, t.Excluded))
				continue
			}
			m.services = append(m.services, kind.MatchedMeshService{Name: t.Service.Service, Zone: t.Service.Zone, Mesh: key.Mesh})
		}
	}
	slices.SortFunc(m.services, func(a, b kind.MatchedMeshService) int {
		return cmp.Or(cmp.Compare(a.Zone, b.Zone), cmp.Compare(a.Name, b.Name))
	})
	m.services = slices.Compact(m.services)
	return m
}

// multiZone gives a MeshMultiZoneService its virtual IP, which global has no use for, and its status.
func (p *Plan) multiZone(r *table.Reader, u Unit) (w Writes) {
	if _, ok := p.State.MultiZoneServices.Find(r, u.Mesh, u.Name); !ok {
		return w
	}
	m := p.members.Get(r, graph.ServiceKey{Mesh: u.Mesh, Name: u.Name})
	status := kind.MeshMultiZoneServiceStatus{MeshServices: m.services, Conditions: append(m.refused.conditions(), m.conditions()...)}
	var old kind.MeshMultiZoneServiceStatus
	stored, had := p.State.MultiZoneServiceStatuses.Find(r, u.Mesh, u.Name)
	if had {
		old = stored.Spec
	}
	vips, full := p.vipsOf(r, u, old.VIPs)
	if full != nil {
		status.Conditions = append(status.Conditions, *full)
	}
	status.VIPs = vips
	status.Addresses, status.HostnameGenerators = p.namesOf(r, u)
	served := had && slices.Equal(old.VIPs, status.VIPs) && slices.Equal(old.Addresses, status.Addresses)
	put(&w, pace(served), stored, kind.MeshMultiZoneServiceStatuses.Make(u.Mesh, u.Name, status))
	return w
}

// conditions name the MeshServices that a port leaves out; none where it leaves out nobody.
func (m *members) conditions() []kind.Condition {
	if len(m.leftOut) == 0 {
		return nil
	}
	named := m.leftOut[:min(len(m.leftOut), namedMembers)]
	message := strings.Join(named, "; ")
	if more := len(m.leftOut) - len(named); more > 0 {
		message += fmt.Sprintf("; and %d more", more)
	}
	return []kind.Condition{{
		Type: "PortsMatched", Status: "False", Reason: "PortsDiffer",
		Message: "selected MeshServices that take no part in a port, since they lack it or speak another protocol there: " + message,
	}}
}

// namedMembers are as many as a condition names.
const namedMembers = 10
