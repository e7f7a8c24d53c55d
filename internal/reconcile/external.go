package reconcile

import (
	"slices"

	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// external gives a MeshExternalService its virtual IP and host names in this zone, and its status. Whether a zone
// egress is ready is no part of what is stored: one that comes or goes would be a write for each service.
// (Mesh Scoped Zone Ingress and Zone Egress.)
func (p *Plan) external(r *table.Reader, u Unit) (w Writes) {
	service, ok := p.State.ExternalServices.Find(r, u.Mesh, u.Name)
	if !ok {
		if material, had := p.State.ExternalMaterials.Find(r, u.Mesh, u.Name); had {
			w.add(soon, Write{Delete: material, Gone: resource.Key(u)})
		}
		return w
	}
	secrets := p.material(r, &w, service)
	refused := p.refused.Get(r, causeOf(resource.Key(u)))
	status := kind.MeshExternalServiceStatus{Conditions: append(refused.conditions(), secrets...)}
	var old kind.MeshExternalServiceStatus
	stored, had := p.State.ExternalServiceStatuses.Find(r, u.Mesh, u.Name)
	if had {
		old = stored.Spec
	}
	vips, full := p.vipsOf(r, u, old.Places().VIPs)
	if full != nil {
		status.Conditions = append(status.Conditions, *full)
	}
	if len(vips) > 0 {
		status.VIP = &vips[0]
	}
	status.Addresses, status.HostnameGenerators = p.namesOf(r, u)
	served := had && slices.Equal(old.Places().VIPs, vips) && slices.Equal(old.Addresses, status.Addresses)
	put(&w, pace(served), stored, kind.MeshExternalServiceStatuses.Make(u.Mesh, u.Name, status))
	return w
}
