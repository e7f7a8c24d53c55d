package reconcile

import (
	"time"

	"weft/internal/table"
	"weft/kind"
)

// followDoors follows the zone ingresses of a mesh, and with the first mesh those that serve every one.
func (rc *Reconciler) followDoors(mesh string, now time.Time) {
	if rc.plan.Global() {
		return
	}
	if len(rc.pinnedMeshes) == 0 {
		rc.plan.State.Doors.Pin("")
	}
	if !rc.pinnedMeshes[mesh] {
		rc.pinnedMeshes[mesh] = true
		rc.plan.State.Doors.Pin(mesh)
	}
	rc.askAddress(mesh, now)
}

func (rc *Reconciler) forgetDoors(mesh string) {
	if !rc.pinnedMeshes[mesh] {
		return
	}
	delete(rc.pinnedMeshes, mesh)
	rc.plan.State.Doors.Unpin(mesh)
	if len(rc.pinnedMeshes) == 0 {
		rc.plan.State.Doors.Unpin("")
	}
}

func (rc *Reconciler) observeDoors(changes *table.Changes, now time.Time) {
	for mesh := range rc.plan.State.Doors.Changed(changes) {
		if mesh != "" {
			rc.askAddress(mesh, now)
			continue
		}
		for each := range rc.pinnedMeshes {
			rc.askAddress(each, now)
		}
	}
}

func (rc *Reconciler) askAddress(mesh string, at time.Time) {
	rc.ask(Unit{kind.MeshZoneAddresses.Name, mesh, ""}, at)
}

// LookAtIngresses asks anew which zone ingresses are there. Call it when an instance of the control plane has come
// or gone, of which no row tells.
func (rc *Reconciler) LookAtIngresses() {
	for mesh := range rc.plan.State.Meshes.All(rc.plan.State.DB.Snapshot()) {
		rc.askAddress(mesh.Name, time.Now())
	}
}
