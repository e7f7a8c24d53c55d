package reconcile

import (
	"time"

	"weft/internal/graph"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// full reports whether a step would make a generated service beyond [graph.MaxGenerated] of its mesh. The tag is
// tried again when a service of the mesh goes.
func (rc *Reconciler) full(r *table.Reader, u Unit, step Step) bool {
	service, ok := step.Put.(*resource.Object[kind.MeshService])
	if u.Kind != TagUnit || !ok {
		return false
	}
	if _, stored := rc.plan.State.Services.Find(r, service.Mesh, service.Name); stored {
		return false
	}
	tag, count := tagKey{u.Mesh, u.Name}, rc.plan.State.Generated(r, service.Mesh)
	rc.mu.Lock()
	defer rc.mu.Unlock()
	for key := range rc.made {
		if _, stored := rc.plan.State.Services.Find(r, key.Mesh, key.Name); !stored && key.Mesh == service.Mesh && key != service.Key() {
			count++
		}
	}
	if count >= graph.MaxGenerated {
		if !rc.surplus[tag] {
			rc.surplus[tag] = true
			rc.log.Warn("no service is generated for a tag: the mesh has as many as it may have; write a MeshService for it, or remove services",
				"mesh", u.Mesh, "tag", kind.ServiceTag, "value", u.Name, "generated", count, "bound", graph.MaxGenerated)
		}
		return true
	}
	delete(rc.surplus, tag)
	rc.made[service.Key()] = true
	return false
}

// unmade takes a service whose write failed off the count.
func (rc *Reconciler) unmade(step Step, err error) {
	if err != nil && step.Put != nil {
		rc.arrived(step.Put.Key())
	}
}

// arrived takes a service off the count that the table has, or has had.
func (rc *Reconciler) arrived(key resource.Key) {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	delete(rc.made, key)
}

// askSurplus enqueues the tags of a mesh that got no service for want of room.
func (rc *Reconciler) askSurplus(mesh string, now time.Time) {
	rc.mu.Lock()
	var tags []tagKey
	for tag := range rc.surplus {
		if tag.Mesh == mesh {
			tags = append(tags, tag)
		}
	}
	rc.mu.Unlock()
	for _, tag := range tags {
		rc.ask(Unit{TagUnit, tag.Mesh, tag.Value}, now.Add(soon))
	}
}
