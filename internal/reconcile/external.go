package reconcile

import (
	"time"

	"weft/internal/graph"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// external gives a MeshExternalService its virtual IP and host names in this zone, and its status. Whether a zone
// egress is ready is no part of what is stored: one that comes or goes would be a write for each service.
// (Mesh Scoped Zone Ingress and Zone Egress.)
func (p *Plan) external(r *table.Reader, u Unit, now time.Time) (steps []Step, again time.Time) {
	service, ok := p.State.ExternalServices.Find(r, u.Mesh, u.Name)
	if !ok {
		if _, had := p.State.ExternalMaterials.Find(r, u.Mesh, u.Name); had {
			steps = append(steps, p.forgetMaterial(u.Mesh, u.Name))
		}
		return steps, time.Time{}
	}
	steps, secrets, again := p.material(r, service, now)
	refused := p.refused.Get(r, causeOf(resource.Key(u)))
	status := kind.MeshExternalServiceStatus{Conditions: append(refused.conditions(), secrets...)}
	var had kind.Places
	if stored, ok := p.State.ExternalServiceStatuses.Find(r, u.Mesh, u.Name); ok {
		had = stored.Spec.Places()
	}
	vips, full := p.vipsOf(r, u, had.VIPs)
	if full != nil {
		status.Conditions = append(status.Conditions, *full)
	}
	if len(vips) > 0 {
		status.VIP = &vips[0]
	}
	status.Addresses, status.HostnameGenerators = p.namesOf(r, u)
	return append(steps, Step{Put: kind.MeshExternalServiceStatuses.Make(u.Mesh, u.Name, status)}), again
}

func (rc *Reconciler) followExternal(key resource.Key, now time.Time) {
	if service := (graph.ServiceKey{Mesh: key.Mesh, Name: key.Name}); !rc.pinnedExternal[service] {
		rc.pinnedExternal[service] = true
		rc.plan.names.Pin(Unit(key))
		rc.followRefusals(causeOf(key))
	}
	rc.ask(Unit(key), now.Add(soon))
}

func (rc *Reconciler) forgetExternal(key resource.Key, now time.Time) {
	if service := (graph.ServiceKey{Mesh: key.Mesh, Name: key.Name}); rc.pinnedExternal[service] {
		delete(rc.pinnedExternal, service)
		rc.plan.names.Unpin(Unit(key))
		rc.forgetRefusals(causeOf(key))
		rc.ask(Unit(key), now.Add(soon))
	}
}
