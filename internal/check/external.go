package check

import (
	"weft/kind"
	"weft/resource"
)

// egressRoute finds a mesh whose proxies cannot reach remote zones: it routes cross-zone traffic through zone egresses
// and has none.
func (l *checker) egressRoute(o *resource.Object[kind.Mesh]) {
	ready := len(l.Routes.EgressRoute.Get(l.r, o.Name).Egresses)
	if l.Routes.ByEgress.Get(l.r, o.Name) && ready == 0 && l.manyZones.Get(l.r, o.Name) {
		l.found(zoneWithoutEgress, objectOf(o.Key()),
			"routing.zoneEgress sends cross-zone traffic through a zone egress, and none of zone %s is ready",
			l.Tables.Zone)
	}
}

// external checks an external service, as this zone reaches it.
func (l *checker) external(o *resource.Object[kind.MeshExternalService]) {
	object := objectOf(o.Key())
	if reason := l.reports.ExternalUnreachableReason(o); reason != "" {
		l.found(externalUnreachable, object, "unreachable from this zone: %s", reason).cause = reason
	}
	status, ok := l.Tables.ExternalServiceStatuses.Find(l.r, o.Mesh, o.Name)
	if !ok {
		return
	}
	l.conditions(status.Spec.Conditions, status.Spec.HostnameGenerators, object)
	for _, c := range status.Spec.Conditions {
		if c.Type == "SecretsResolved" && c.Status == "False" {
			l.found(externalSecrets, object, "%s", c.Message)
		}
	}
}
