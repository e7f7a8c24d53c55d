package check

import (
	"weft/internal/state"
	"weft/kind"
)

// egressRoute finds a mesh whose proxies cannot reach remote zones: it routes cross-zone traffic through zone egresses
// and has none.
func (l *checker) egressRoute(mesh string) {
	ready := len(l.State.Routes.EgressRoute.Get(l.r, mesh).Egresses)
	if l.State.Routes.ByEgress.Get(l.r, mesh) && ready == 0 && l.reports.ManyZones(mesh) {
		l.found(zoneWithoutEgress, objectOf(kind.Meshes.Key("", mesh)),
			"routing.zoneEgress sends cross-zone traffic through a zone egress, and none of zone %s is ready",
			l.State.Tables.Zone)
	}
}

// external checks the external services, as this zone reaches them.
func (l *checker) external(mesh string) {
	for o := range l.State.Tables.ExternalServices.RowsAfter(l.Snapshot, state.MeshKey(mesh), "") {
		object := objectOf(o.Key())
		if reason := l.reports.ExternalUnreachableReason(o); reason != "" {
			l.found(externalUnreachable, object, "unreachable from this zone: %s", reason)
		}
		status, ok := l.State.Tables.ExternalServiceStatuses.Find(l.r, o.Mesh, o.Name)
		if !ok {
			continue
		}
		l.conditions(status.Spec.Conditions, status.Spec.HostnameGenerators, object)
		for _, c := range status.Spec.Conditions {
			if c.Type == "SecretsResolved" && c.Status == "False" {
				l.found(externalSecrets, object, "%s", c.Message)
			}
		}
	}
}
