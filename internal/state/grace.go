package state

import (
	"slices"

	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// GraceTables have what goes on until an end although a rule does not allow it.
type GraceTables struct {
	Graces Rows[kind.Grace]
}

func (t *Tables) addGraces() { t.Graces = addRows(t, kind.Graces) }

// ZoneProxyGrace returns the end until which Pods of a namespace may be zone proxies of a mesh in a role, although no
// operator lists the namespace; false: they may not.
func (t *Tables) ZoneProxyGrace(r *table.Reader, namespace, mesh, role string) (until kind.Time, ok bool) {
	return t.grace(r, kind.GraceOfZoneProxies, func(grace *kind.Grace) bool {
		return slices.Contains(grace.Proxies, kind.GraceZoneProxy{Namespace: namespace, Mesh: mesh, Role: role})
	})
}

// RouteGrace returns the end until which a producer's route may refer to a service without a grant; false: it may not.
func (t *Tables) RouteGrace(r *table.Reader, route kind.GraceRoute) (until kind.Time, ok bool) {
	return t.grace(r, kind.GraceOfRoutes, func(grace *kind.Grace) bool { return slices.Contains(grace.Routes, route) })
}

func (t *Tables) grace(r *table.Reader, name string, has func(*kind.Grace) bool) (until kind.Time, ok bool) {
	grace, ok := t.Graces.Find(r, "", name)
	if !ok || !has(&grace.Spec) {
		return kind.Time{}, false
	}
	return grace.Spec.Until, !r.Past(grace.Spec.Until.Time)
}

// ZoneProxyExempt is [Tables.ZoneProxyGrace] without the end.
func (t *Tables) ZoneProxyExempt(r *table.Reader, namespace, mesh, role string) bool {
	_, ok := t.ZoneProxyGrace(r, namespace, mesh, role)
	return ok
}

// UnlistedRoles returns the roles in which a Dataplane is a zone proxy of a Pod in a namespace that no operator lists;
// listed has the namespaces that may have zone proxies.
func UnlistedRoles(dp *resource.Object[kind.Dataplane], listed []string) (roles []string) {
	if dp.Label(kind.PodUIDLabel) == "" || slices.Contains(listed, dp.Label(kind.NamespaceLabel)) {
		return nil
	}
	if dp.Spec.Networking.ZoneEgress != nil {
		roles = append(roles, kind.EgressRole)
	}
	if dp.Spec.Networking.ZoneIngress != nil {
		roles = append(roles, kind.IngressRole)
	}
	return roles
}
