package kind

import "weft/resource"

// ZoneProxyGrace has the zone proxies that ran as Pods outside the listed namespaces when a control plane with the list
// first started: they go on until an end. It exists in each zone on Kubernetes since that start.
type ZoneProxyGrace struct {
	Until   Time             `json:"until"`
	Proxies []GraceZoneProxy `json:"proxies,omitempty"`
}

// GraceZoneProxy is a namespace with Pods that are zone proxies of a mesh in a role: egress or ingress.
type GraceZoneProxy struct {
	Namespace string `json:"namespace"`
	Mesh      string `json:"mesh"`
	Role      string `json:"role"`
}

// TheZoneProxyGrace is the name of the only [ZoneProxyGrace].
const TheZoneProxyGrace = "zone-proxies"

// ZoneProxyGraces is the kind of [ZoneProxyGrace].
var ZoneProxyGraces = &resource.Kind[ZoneProxyGrace]{
	Info: resource.Info{Name: "ZoneProxyGrace", Plural: "zone-proxy-graces", Scope: resource.Global, ReadOnly: true,
		Hidden: true},
}
