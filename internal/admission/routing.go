package admission

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"weft/kind"
	"weft/resource"
)

// egressWarnings warns of the zones that a new routing through zone egresses cuts off: zones with proxies of the mesh
// and without a zone egress. Where the store fails, it returns nothing. A zone without a global control plane has no
// other zones.
func (w *Writer) egressWarnings(ctx context.Context, before, after *resource.Object[kind.Mesh]) []string {
	if !w.self().Global() || !routesByEgress(after) || routesByEgress(before) {
		return nil
	}
	lacks := w.zonesWithoutEgress(ctx, after.Name)
	if len(lacks) == 0 {
		return nil
	}
	have := "zone %s has"
	if len(lacks) > 1 {
		have = "the zones %s have"
	}
	have = fmt.Sprintf(have, strings.Join(slices.Sorted(maps.Keys(lacks)), ", "))
	return []string{"routing.zoneEgress: " + have + " no zone egress, so their proxies cannot reach other zones"}
}

func routesByEgress(mesh *resource.Object[kind.Mesh]) bool {
	return mesh != nil && mesh.Spec.Routing != nil && mesh.Spec.Routing.ZoneEgress
}

// zonesWithoutEgress are the zones that have proxies of a mesh and no zone egress.
func (w *Writer) zonesWithoutEgress(ctx context.Context, mesh string) map[string]bool {
	dataplanes, err := w.dataplanes(ctx, mesh)
	if err != nil {
		return nil
	}
	egresses, _, err := w.rows.List(ctx, kind.ZoneEgresses.Name)
	if err != nil {
		return nil
	}
	lack := map[string]bool{}
	for _, dp := range dataplanes {
		lack[w.owner(&dp.Meta).Zone] = true
	}
	for _, dp := range dataplanes {
		if dp.Spec.Networking.ZoneEgress != nil {
			delete(lack, w.owner(&dp.Meta).Zone)
		}
	}
	for _, row := range egresses {
		if o, err := Decode(row); err == nil {
			delete(lack, o.(*resource.Object[kind.ZoneEgress]).Spec.Zone)
		}
	}
	return lack
}
