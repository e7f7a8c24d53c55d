package reconcile

import (
	"time"

	"weft/internal/table"
)

// followDoors follows the zone proxies of a mesh, and with the first mesh those that serve every one.
func (rc *Reconciler) followDoors(mesh string, now time.Time) {
	if rc.plan.Global() {
		return
	}
	for _, g := range rc.plan.gates {
		if len(rc.pinnedMeshes) == 0 {
			g.doors.Pin("")
		}
		if !rc.pinnedMeshes[mesh] {
			g.doors.Pin(mesh)
		}
	}
	rc.pinnedMeshes[mesh] = true
	rc.askAddresses(mesh, now)
}

func (rc *Reconciler) forgetDoors(mesh string) {
	if !rc.pinnedMeshes[mesh] {
		return
	}
	delete(rc.pinnedMeshes, mesh)
	for _, g := range rc.plan.gates {
		g.doors.Unpin(mesh)
		if len(rc.pinnedMeshes) == 0 {
			g.doors.Unpin("")
		}
	}
}

func (rc *Reconciler) observeDoors(changes *table.Changes, now time.Time) {
	for row, g := range rc.plan.gates {
		for mesh := range g.doors.Changed(changes) {
			if mesh != "" {
				rc.ask(Unit{row, mesh, ""}, now)
				continue
			}
			for each := range rc.pinnedMeshes {
				rc.ask(Unit{row, each, ""}, now)
			}
		}
	}
}

// askAddresses asks where the zone proxies of a mesh are dialled.
func (rc *Reconciler) askAddresses(mesh string, at time.Time) {
	for row := range rc.plan.gates {
		rc.ask(Unit{row, mesh, ""}, at)
	}
}

// LookAtDoors asks anew which zone proxies are there. Call it when an instance of the control plane has come or gone,
// of which no row tells.
func (rc *Reconciler) LookAtDoors() {
	for mesh := range rc.plan.State.Meshes.All(rc.plan.State.DB.Snapshot()) {
		rc.askAddresses(mesh.Name, time.Now())
	}
}
