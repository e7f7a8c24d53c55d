package state

import (
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// RetainedSNIRouteTables are the retained SNI routes of services.
type RetainedSNIRouteTables struct {
	RetainedSNIRoutes Rows[kind.RetainedSNIRoute]
	// RetainedSNIRoutesByProxy finds the retained SNI routes of a Dataplane, by its [RowKey], and
	// RetainedSNIRoutesByMesh all of a [MeshKey].
	RetainedSNIRoutesByProxy, RetainedSNIRoutesByMesh table.Index[*resource.Object[kind.RetainedSNIRoute]]
}

func (t *Tables) addRetainedSNIRoute() {
	t.RetainedSNIRoutes = addRows(t, kind.RetainedSNIRoutes)
	t.RetainedSNIRoutesByProxy = table.NewIndex(t.RetainedSNIRoutes, retainedSNIRouteKeys)
	t.RetainedSNIRoutesByMesh = byMesh(t.RetainedSNIRoutes)
}

func retainedSNIRouteKeys(o *resource.Object[kind.RetainedSNIRoute]) []string {
	return proxiesOf(o.Mesh, o.Spec.Endpoints)
}
