package state

import (
	"slices"

	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// RetainedEndpointsTables are the retained endpoints of services.
type RetainedEndpointsTables struct {
	RetainedEndpoints Rows[kind.RetainedEndpoints]
	// RetainedEndpointsByProxy finds the retained endpoints of a Dataplane, by its [RowKey].
	RetainedEndpointsByProxy table.Index[*resource.Object[kind.RetainedEndpoints]]
}

func (t *Tables) addRetainedEndpoints() {
	t.RetainedEndpoints = addRows(t, kind.RetainedEndpointsList)
	t.RetainedEndpointsByProxy = table.NewIndex(t.RetainedEndpoints, retainedEndpointKeys)
}

func retainedEndpointKeys(o *resource.Object[kind.RetainedEndpoints]) []string {
	return proxiesOf(o.Mesh, o.Spec.Endpoints)
}

// proxiesOf returns the [RowKey]s of the proxies of former endpoints.
func proxiesOf(mesh string, endpoints []kind.RetainedEndpoint) []string {
	var keys []string
	for _, e := range endpoints {
		if key := RowKey(mesh, e.Dataplane); !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// RetainedOf returns the former endpoints of a proxy that clients still use, of this zone or of remote ones.
func (t *Tables) RetainedOf(r *table.Reader, key ProxyKey) []kind.RetainedEndpoint {
	var retained []kind.RetainedEndpoint
	for _, row := range t.RetainedEndpointsByProxy.List(r, RowKey(key.Mesh, key.Name)) {
		retained = append(retained, row.Spec.Endpoints...)
	}
	for _, row := range t.RetainedSNIRoutesByProxy.List(r, RowKey(key.Mesh, key.Name)) {
		retained = append(retained, row.Spec.Endpoints...)
	}
	return slices.DeleteFunc(retained, func(e kind.RetainedEndpoint) bool { return e.Dataplane != key.Name })
}
