package kind

import "weft/resource"

// ReferenceGrants are the ReferenceGrants of the Gateway API in one zone, as far as they concern producers' routes. The
// row has the name of the zone. Other zones learn from it which routes of the zone may send to services of the zone.
type ReferenceGrants struct {
	Grants []ReferenceGrant `json:"grants" schema:"maxItems=4096"` // sorted
}

// ReferenceGrant lets routes of a kind in a namespace send to services of another namespace.
type ReferenceGrant struct {
	FromKind      string `json:"fromKind" schema:"maxLength=63"`      // of the routes
	FromNamespace string `json:"fromNamespace" schema:"maxLength=63"` // of the routes
	Namespace     string `json:"namespace" schema:"maxLength=63"`     // of the grant, and of the services
	ToKind        string `json:"toKind" schema:"maxLength=63"`        // of the services: a kind of destinations
	ToName        string `json:"toName,omitempty" schema:"maxLength=253"`
}

// MaxReferenceGrants is the maximum number of grants of a zone that count.
const MaxReferenceGrants = 4096

// ReferenceGrantsList is the kind of [ReferenceGrants].
var ReferenceGrantsList = &resource.Kind[ReferenceGrants]{
	Info: resource.Info{
		Name: "ReferenceGrants", Plural: "reference-grants", Scope: resource.Mesh, ReadOnly: true, Hidden: true,
		MaxBytes: 4 << 20,
		Sync:     resource.ZoneToGlobal | resource.ZoneToZones,
	},
}
