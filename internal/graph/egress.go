package graph

import (
	"weft/kind"
	"weft/resource"
)

func egressKeys(dp *resource.Object[kind.Dataplane]) []string {
	if dp.Spec.Networking.ZoneEgress == nil {
		return nil
	}
	return []string{MeshKey(dp.Mesh)}
}
