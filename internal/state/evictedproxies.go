package state

import (
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// EvictedProxiesTables are the evicted proxies of all zones, including this one.
type EvictedProxiesTables struct {
	EvictedProxies Rows[kind.EvictedProxies]
	// EvictedProxiesByMesh finds them by a [MeshKey].
	EvictedProxiesByMesh table.Index[*resource.Object[kind.EvictedProxies]]
}

func (t *Tables) addEvictedProxies() {
	t.EvictedProxies = addRows(t, kind.EvictedProxiesList)
	t.EvictedProxiesByMesh = byMesh(t.EvictedProxies)
}
