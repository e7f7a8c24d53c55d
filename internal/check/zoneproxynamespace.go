package check

import (
	"time"

	"weft/internal/state"
	"weft/kind"
	"weft/resource"
)

// zoneProxyNamespaces finds zone proxies of Pods in namespaces that no operator lists. They go on for a time after the
// upgrade to a release with the list.
func (l *checker) zoneProxyNamespaces() {
	listed := l.State.Tables.ZoneProxyNamespaces
	if len(listed) == 0 {
		return
	}
	for o := range l.State.Tables.ResourcesAfter(l.Snapshot, kind.Dataplanes.Name, l.Mesh, "") {
		dp := o.(*resource.Object[kind.Dataplane])
		namespace := dp.Label(kind.NamespaceLabel)
		for _, role := range state.UnlistedRoles(dp, listed) {
			if until, ok := l.State.Tables.ZoneProxyGrace(l.r, namespace, dp.Mesh, role); ok {
				l.found(zoneProxyNamespace, objectOf(dp.Key()), "it is a zone %s in the namespace %s, which no "+
					"operator lists, and ends at %s", role, namespace, until.UTC().Format(time.RFC3339))
			}
		}
	}
}
