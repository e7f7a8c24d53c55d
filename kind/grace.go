package kind

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"weft/resource"
)

// Grace has what ran when a control plane with a new rule first started, and what the rule does not allow: it goes on
// until an end. There is one for each rule, since that start.
type Grace struct {
	Until   Time             `json:"until"`
	Proxies []GraceZoneProxy `json:"proxies,omitempty"` // of [GraceOfZoneProxies]
	Routes  []GraceRoute     `json:"routes,omitempty"`  // of [GraceOfRoutes]
}

// GraceZoneProxy is a namespace with Pods that are zone proxies of a mesh in a role: egress or ingress.
type GraceZoneProxy struct {
	Namespace string `json:"namespace"`
	Mesh      string `json:"mesh"`
	Role      string `json:"role"`
}

// GraceRoute is a reference of a producer's route to a service.
type GraceRoute struct {
	Route string `json:"route"` // the key of the policy, as text
	To    string `json:"to"`    // the digest of the kind and the labels of the service
}

// GraceRouteOf returns the reference of a route to the service of a kind that has labels.
func GraceRouteOf(route resource.Key, of string, labels map[string]string) GraceRoute {
	text, _ := json.Marshal(labels) // maps are written in the order of their keys
	digest := sha256.Sum256(append([]byte(of+" "), text...))
	return GraceRoute{Route: route.String(), To: hex.EncodeToString(digest[:8])}
}

// MaxGraceRoutes is the maximum number of references in a [Grace]. Later ones need a grant at once.
const MaxGraceRoutes = 8192

// Names of the [Grace] rows: of zone proxies outside the listed namespaces, and of producers' routes without a grant.
const (
	GraceOfZoneProxies = "zone-proxies"
	GraceOfRoutes      = "producer-routes"
)

// Graces is the kind of [Grace].
var Graces = &resource.Kind[Grace]{
	Info: resource.Info{Name: "Grace", Plural: "graces", Scope: resource.Global, ReadOnly: true, Hidden: true},
}
