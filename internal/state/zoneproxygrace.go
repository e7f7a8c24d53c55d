package state

import (
	"slices"

	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// ZoneProxyGraceTables have the zone proxies that run outside the listed namespaces until an end.
type ZoneProxyGraceTables struct {
	ZoneProxyGraces Rows[kind.ZoneProxyGrace]
}

func (t *Tables) addZoneProxyGrace() {
	t.ZoneProxyGraces = addRows(t, kind.ZoneProxyGraces)
}

// ZoneProxyGrace returns the end until which Pods of a namespace may be zone proxies of a mesh in a role, although no
// operator lists the namespace; false: they may not.
func (t *Tables) ZoneProxyGrace(r *table.Reader, namespace, mesh, role string) (until kind.Time, ok bool) {
	grace, ok := t.ZoneProxyGraces.Find(r, "", kind.TheZoneProxyGrace)
	if !ok || !slices.Contains(grace.Spec.Proxies, kind.GraceZoneProxy{Namespace: namespace, Mesh: mesh, Role: role}) {
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
