package kind

import (
	"fmt"
	"slices"

	"weft/resource"
)

// MeshZoneAddress has the addresses of one zone's zone ingresses for a mesh. The row has the name of the zone, which
// writes it. A change of an address is one write, whatever the number of services; every other zone joins the row with
// the zone's services. (Mesh Scoped Zone Ingress and Zone Egress.)
type MeshZoneAddress struct {
	// Ingresses are sorted by name. The last one stays in the list, whatever its health.
	Ingresses []ZoneProxyAddress `json:"ingresses,omitempty" schema:"maxItems=1024"`
}

// Usable returns the ingresses that clients dial: the healthy ones, or all where none is healthy.
func (z *MeshZoneAddress) Usable() []ZoneProxyAddress {
	healthy := slices.DeleteFunc(slices.Clone(z.Ingresses), func(a ZoneProxyAddress) bool { return !a.Healthy })
	if len(healthy) == 0 {
		return z.Ingresses
	}
	return healthy
}

// maxAdvertisedNames is the maximum number of host names of one zone's ingresses for a mesh.
const maxAdvertisedNames = 64

// MeshZoneAddresses is the kind of [MeshZoneAddress].
var MeshZoneAddresses = &resource.Kind[MeshZoneAddress]{
	Info: resource.Info{
		Name: "MeshZoneAddress", Plural: "meshzoneaddresses", Scope: resource.Mesh, ReadOnly: true, Hidden: true,
		Sync: resource.ZoneToGlobal | resource.ZoneToZones,
	},
	Validate: validateMeshZoneAddress,
}

// validateMeshZoneAddress also checks rows of other zones.
func validateMeshZoneAddress(o *resource.Object[MeshZoneAddress], found resource.Problems) resource.Problems {
	c := envelope(&o.Meta, found)
	type identity struct {
		name   string
		legacy bool
	}
	first, names := map[identity]int{}, map[string]bool{}
	for i, ingress := range o.Spec.Ingresses {
		at := fmt.Sprintf("spec.ingresses[%d]", i)
		c.hostAddress(at+".address", ingress.Address)
		if NeedsLookup(ingress.Address) {
			names[ingress.Address] = true
		}
		if j, taken := first[identity{ingress.Name, ingress.Legacy}]; taken {
			c.add(at+".name", "%q is the name of spec.ingresses[%d] too", ingress.Name, j)
		}
		first[identity{ingress.Name, ingress.Legacy}] = i
	}
	if len(names) > maxAdvertisedNames {
		c.add("spec.ingresses", "has %d host names, want %d at most, since each zone resolves all of them", len(names),
			maxAdvertisedNames)
	}
	return c.problems
}
