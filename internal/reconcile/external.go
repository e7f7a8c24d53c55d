package reconcile

import (
	"slices"

	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// external writes the virtual IP, the host names and the status of a MeshExternalService in this zone. Each change of
// the readiness of zone egresses would be one write for each service, so the zone egress that clients dial is not
// derived here: it is computed when it is read and, on Kubernetes, once a minute. (Mesh Scoped Zone Ingress and Zone
// Egress.)
func (p *Plan) external(r *table.Reader, u Request) (w Writes) {
	service, ok := p.State.Tables.ExternalServices.Find(r, u.Mesh, u.Name)
	if !ok {
		if material, had := p.State.Tables.ExternalMaterials.Find(r, u.Mesh, u.Name); had {
			w.addWrite(servingDelay, Write{Delete: material, UnlessStored: resource.Key(u)})
		}
		return w
	}
	secrets := p.externalMaterial(r, &w, service)
	nacks := p.nacks.Get(r, causeOf(resource.Key(u)))
	status := kind.MeshExternalServiceStatus{Conditions: append(nacks.conditions(), secrets...)}
	status.Conditions = append(status.Conditions, p.reconciled(r, u)...)
	var old kind.MeshExternalServiceStatus
	stored, had := p.State.Tables.ExternalServiceStatuses.Find(r, u.Mesh, u.Name)
	if had {
		old = stored.Spec
	}
	vips, unassigned := p.vipsOf(r, u, old.Places().VIPs)
	status.Conditions = append(status.Conditions, unassigned...)
	status.Conditions = p.withComputed(r, resource.Key(u), status.Conditions, old.Conditions)
	status.ZoneEgress = p.zoneEgress(r, resource.Key(u), old.ZoneEgress)
	if status.VIPs = vips; len(vips) > 0 {
		status.VIP = &vips[0]
	}
	status.Addresses, status.HostnameGenerators = p.hostnamesOf(r, u)
	served := had && slices.Equal(old.Places().VIPs, vips) && slices.Equal(old.Addresses, status.Addresses)
	putIfDifferent(&w, delayUntilServed(served), stored, kind.MeshExternalServiceStatuses.Make(u.Mesh, u.Name, status))
	return w
}
