package check

import (
	"time"

	"weft/internal/state"
	"weft/kind"
	"weft/resource"
)

// isUnlistedZoneProxy reports whether a Dataplane is a zone proxy of a Pod in a namespace that no operator lists.
func (s *Stage) isUnlistedZoneProxy(o resource.Any) bool {
	listed := s.Tables.ZoneProxyNamespaces
	return len(listed) > 0 && len(state.UnlistedRoles(o.(*resource.Object[kind.Dataplane]), listed)) > 0
}

// zoneProxyNamespace finds the end of a zone proxy in a namespace that no operator lists. It goes on for a time after
// the upgrade to a release with the list.
func (l *checker) zoneProxyNamespace(o resource.Any) {
	dp := o.(*resource.Object[kind.Dataplane])
	namespace := dp.Label(kind.NamespaceLabel)
	for _, role := range state.UnlistedRoles(dp, l.Tables.ZoneProxyNamespaces) {
		if until, ok := l.Tables.ZoneProxyGrace(l.r, namespace, dp.Mesh, role); ok {
			l.found(zoneProxyNamespace, objectOf(dp.Key()), "it is a zone %s in the namespace %s, which no operator "+
				"lists, and ends at %s", role, namespace, until.UTC().Format(time.RFC3339)).cause = namespace
		}
	}
}
