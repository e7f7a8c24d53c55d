package kind

import "weft/resource"

// MeshTCPRoute decides where the TCP connections go that the proxies that it targets open to a service.
//
// A backend that does not exist is left out. Without any backend, connections are closed. On an HTTP port, the weights
// split requests, and a MeshHTTPRoute about the port takes precedence.
type MeshTCPRoute struct {
	// the target proxies; by default the whole mesh
	TargetRef *TargetRef `json:"targetRef,omitempty"`
	// the routes of the connections that the proxies open
	To []TCPRouteTo `json:"to,omitempty" schema:"required minItems=1 maxItems=256"`
}

// TCPRouteTo has the rule for connections to some services.
type TCPRouteTo struct {
	TargetRef RoutedRef      `json:"targetRef" schema:"required"`                   // the services
	Rules     []TCPRouteRule `json:"rules" schema:"required minItems=1 maxItems=1"` // one rule
}

// TCPRouteConf is the rule of the connections to a destination.
type TCPRouteConf struct {
	Rules []TCPRouteRule `json:"rules,omitempty"`
}

// TCPRouteRule says where connections go.
type TCPRouteRule struct {
	Default TCPRouteAction `json:"default" schema:"required"` // where they go
}

// TCPRouteAction says where connections go.
type TCPRouteAction struct {
	// the backends that share the connections
	BackendRefs []RouteBackendRef `json:"backendRefs" schema:"required minItems=1 maxItems=64"`
}

// MeshTCPRoutes is the kind of [MeshTCPRoute].
var MeshTCPRoutes = &PolicyKind[MeshTCPRoute, TCPRouteConf]{
	Kind: resource.Kind[MeshTCPRoute]{
		Info: resource.Info{
			Name: "MeshTCPRoute", Plural: "meshtcproutes", ShortName: "mtcpr", Scope: resource.Mesh,
			Sync:     resource.GlobalToZones | resource.ZoneToGlobal,
			Replaced: replacedInRoutes(nil),
		},
		Validate: validateMeshTCPRoute,
	},
	Split: func(p *MeshTCPRoute) Parts {
		parts := Parts{TargetRef: p.TargetRef}
		for i := range p.To {
			parts.To = append(parts.To, ToPart{DestinationRef(p.To[i].TargetRef), &TCPRouteConf{p.To[i].Rules}})
		}
		return parts
	},
	Statuses: policyStatuses("MeshTCPRoute"),
}
