package convert

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"weft/kind"
)

// Groups of objects in references.
const (
	gatewayGroup = "gateway.networking.k8s.io"
	meshGroup    = "kuma.io"
)

// RouteController is the controllerName of this control plane in the status of a route. (Gateway API,
// RouteParentStatus.)
const RouteController = "kuma.io/mesh-controller"

// Kinds of routes.
const (
	HTTPRoute = "HTTPRoute"
	GRPCRoute = "GRPCRoute"
	TCPRoute  = "TCPRoute"
	TLSRoute  = "TLSRoute"
)

// RouteKinds are the kinds of routes that the control plane follows.
var RouteKinds = []string{HTTPRoute, GRPCRoute, TCPRoute, TLSRoute}

// RoutePaths are the collections of the kinds of routes in the API server.
var RoutePaths = map[string]string{
	HTTPRoute: "/apis/" + gatewayGroup + "/v1/httproutes", GRPCRoute: "/apis/" + gatewayGroup + "/v1/grpcroutes",
	TCPRoute: "/apis/" + gatewayGroup + "/v1/tcproutes", TLSRoute: "/apis/" + gatewayGroup + "/v1/tlsroutes",
}

// routedProtocol are the protocols that the kinds of routes give ports. TCPRoutes and TLSRoutes leave them TCP. (ADR
// 104)
var routedProtocol = map[string]kind.Protocol{HTTPRoute: kind.HTTP, GRPCRoute: kind.GRPC}

// Route is a route of the Gateway API that has a Service or a MeshService among its parents, or a status of this
// control plane. A rule of a GRPCRoute has the form of HTTP. The rule of a TCPRoute or a TLSRoute has only backends.
type Route struct {
	Meta
	Kind       string
	Created    time.Time
	Generation int64
	// Parents are its parents in the mesh, without Gateways.
	Parents []ParentRef
	// Hostnames are the SNIs of a TLSRoute. Those of other routes have no meaning in a mesh.
	Hostnames []string
	// Rules are its rules. Problems are the fields that the mesh does not support, with the reasons.
	Rules    []GatewayRule
	Problems []string
	// Status has the entries of this control plane in its status.
	Status []ParentStatus
}

// RowKey returns "KIND NAME.NAMESPACE".
func (r *Route) RowKey() string { return r.Kind + " " + r.Key() }

// ParentRef is a reference of a route to a parent, in the form of the API. (Gateway API, ParentReference.)
type ParentRef struct {
	Group       *string `json:"group,omitempty"` // nil: that of Gateways
	Kind        string  `json:"kind,omitempty"`
	Namespace   string  `json:"namespace,omitempty"`
	Name        string  `json:"name"`
	SectionName string  `json:"sectionName,omitempty"`
	Port        uint32  `json:"port,omitempty"`
}

// inMesh reports whether the parent is a Service or a MeshService. A Service in the group of Gateways is a Service: the
// API server sets this group where none is written.
func (p *ParentRef) inMesh() bool {
	group := gatewayGroup
	if p.Group != nil {
		group = *p.Group
	}
	return p.Kind == "Service" && (group == "" || group == gatewayGroup) ||
		p.Kind == kind.MeshServices.Name && group == meshGroup
}

// Services returns the names of the Services, NAME.NAMESPACE, that are among its parents and backends, each once.
func (r *Route) Services() []string {
	var names []string
	r.eachBackend(func(ref *BackendRef) {
		names = append(names, ref.Name+"."+cmp.Or(ref.Namespace, r.Namespace))
	})
	for _, ref := range r.Parents {
		names = append(names, ref.Name+"."+cmp.Or(ref.Namespace, r.Namespace))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// eachBackend calls a function with each reference to a Service as a backend, also as that of a mirror.
func (r *Route) eachBackend(with func(*BackendRef)) {
	services := func(ref *BackendRef) {
		if ref.Group == "" && cmp.Or(ref.Kind, "Service") == "Service" {
			with(ref)
		}
	}
	mirrors := func(filters []GatewayFilter) {
		for i := range filters {
			if mirror := filters[i].RequestMirror; mirror != nil {
				services(&mirror.BackendRef)
			}
		}
	}
	for i := range r.Rules {
		rule := &r.Rules[i]
		mirrors(rule.Filters)
		for j := range rule.BackendRefs {
			services(&rule.BackendRefs[j])
			mirrors(rule.BackendRefs[j].Filters)
		}
	}
}

// RoutedProtocols are the protocols that routes give the ports of a Service: HTTP for an HTTPRoute, and gRPC for a
// GRPCRoute. Ports with a protocol of their own have none.
type RoutedProtocols map[uint32]kind.Protocol

// RoutedProtocolsOf returns the protocols that some routes give the ports of a Service.
//
// A route gives a protocol to the ports that its references name: as parents where it is in the namespace of the
// Service, and as backends there or with a ReferenceGrant. A reference to a parent without a port names the port of a
// Service that has one. The oldest route counts. (ADR 98)
func RoutedProtocolsOf(service *Service, routes []*Route, grants []*ReferenceGrant) RoutedProtocols {
	of := RoutedProtocols{}
	for _, route := range byAge(routes) {
		protocol, gives := routedProtocol[route.Kind]
		if !gives {
			continue
		}
		give := func(number uint32) {
			for i := range service.Ports {
				port := &service.Ports[i]
				_, from := service.ProtocolOf(port, nil)
				if _, given := of[number]; !given && port.Port == number && from == assumed {
					of[number] = protocol
				}
			}
		}
		for _, ref := range route.Parents {
			if ref.Name != service.Name || cmp.Or(ref.Namespace, route.Namespace) != service.Namespace ||
				route.Namespace != service.Namespace {
				continue
			}
			for _, port := range service.Ports {
				switch {
				case ref.Port != 0 && ref.Port != port.Port, ref.SectionName != "" && ref.SectionName != port.Name:
				case ref.Port != 0, ref.SectionName != "", len(service.Ports) == 1:
					give(port.Port)
				}
			}
		}
		route.eachBackend(func(ref *BackendRef) {
			if ref.Name == service.Name && cmp.Or(ref.Namespace, route.Namespace) == service.Namespace &&
				granted(grants, route, service.Namespace, GrantTo{"", "Service", service.Name}) {
				give(ref.Port)
			}
		})
	}
	return of
}

// byAge returns routes with the oldest first, and equally old ones by their names.
func byAge(routes []*Route) []*Route {
	routes = slices.Clone(routes)
	slices.SortStableFunc(routes, (*Route).compareAge)
	return routes
}

func (r *Route) compareAge(with *Route) int {
	return cmp.Or(r.Created.Compare(with.Created), cmp.Compare(r.Namespace, with.Namespace),
		cmp.Compare(r.Name, with.Name), cmp.Compare(r.Kind, with.Kind))
}

// ParentStatus is the status of a route at one parent. (Gateway API, RouteParentStatus.)
type ParentStatus struct {
	ParentRef      ParentRef        `json:"parentRef"`
	ControllerName string           `json:"controllerName"`
	Conditions     []RouteCondition `json:"conditions"`
}

// RouteCondition is a condition in the status of a route.
type RouteCondition struct {
	Type               string `json:"type"`
	Status             string `json:"status"`
	ObservedGeneration int64  `json:"observedGeneration"`
	LastTransitionTime string `json:"lastTransitionTime,omitempty"`
	Reason             string `json:"reason"`
	Message            string `json:"message"`
}

// GatewayRule is a rule of a route.
type GatewayRule struct {
	Matches            []kind.HTTPMatch `json:"matches"`
	Filters            []GatewayFilter  `json:"filters"`
	BackendRefs        []BackendRef     `json:"backendRefs"`
	Timeouts           json.RawMessage  `json:"timeouts"`
	Retry              json.RawMessage  `json:"retry"`
	SessionPersistence json.RawMessage  `json:"sessionPersistence"`
}

// BackendRef is a reference of a rule to a backend.
type BackendRef struct {
	Group     string          `json:"group"`
	Kind      string          `json:"kind"`
	Namespace string          `json:"namespace"`
	Name      string          `json:"name"`
	Port      uint32          `json:"port"`
	Weight    *uint32         `json:"weight"`
	Filters   []GatewayFilter `json:"filters"`
}

// GatewayFilter is a filter of a rule or of a backend. All but the mirror have the fields of the mesh.
type GatewayFilter struct {
	kind.HTTPFilter
	RequestMirror *struct {
		BackendRef BackendRef `json:"backendRef"`
		Percent    *uint32    `json:"percent"`
		Fraction   *struct {
			Numerator   uint32  `json:"numerator"`
			Denominator *uint32 `json:"denominator"`
		} `json:"fraction"`
	} `json:"requestMirror"`
}

// grpcMatch is a match of a GRPCRoute.
type grpcMatch struct {
	Method *struct {
		Type    string `json:"type"`
		Service string `json:"service"`
		Method  string `json:"method"`
	} `json:"method"`
	Headers []kind.HeaderMatch `json:"headers"`
}

// http returns the match of the requests of the method: its path is /SERVICE/METHOD. (gRPC over HTTP/2.)
func (m *grpcMatch) http() kind.HTTPMatch {
	match := kind.HTTPMatch{Headers: m.Headers}
	if m.Method == nil || m.Method.Service == "" && m.Method.Method == "" {
		return match
	}
	service, method := m.Method.Service, m.Method.Method
	match.Path = &kind.PathMatch{Type: kind.PathRegex}
	switch {
	case m.Method.Type == kind.PathRegex:
		if service == "" {
			service = "[^/]+"
		}
		if method == "" {
			method = "[^/]+"
		}
		match.Path.Value = "/(" + service + ")/(" + method + ")"
	case service == "":
		match.Path.Value = "/[^/]+/" + regexp.QuoteMeta(method)
	case method == "":
		*match.Path = kind.PathMatch{Type: kind.PathPrefix, Value: "/" + service}
	default:
		*match.Path = kind.PathMatch{Type: kind.PathExact, Value: "/" + service + "/" + method}
	}
	return match
}

// DecodeRoute returns a function that decodes routes of a kind. It returns nil for a route that does not concern the
// mesh.
func DecodeRoute(of string) func([]byte) (*Route, error) {
	return func(raw []byte) (*Route, error) {
		var o struct {
			Metadata struct {
				meta
				CreationTimestamp time.Time `json:"creationTimestamp"`
				Generation        int64     `json:"generation"`
			} `json:"metadata"`
			Spec struct {
				ParentRefs []ParentRef       `json:"parentRefs"`
				Hostnames  []string          `json:"hostnames"`
				Rules      []json.RawMessage `json:"rules"`
			} `json:"spec"`
			Status struct {
				Parents []ParentStatus `json:"parents"`
			} `json:"status"`
		}
		if err := json.Unmarshal(raw, &o); err != nil {
			return nil, err
		}
		r := &Route{Kind: of, Created: o.Metadata.CreationTimestamp, Generation: o.Metadata.Generation}
		for _, p := range o.Spec.ParentRefs {
			if p.inMesh() {
				r.Parents = append(r.Parents, p)
			}
		}
		for _, s := range o.Status.Parents {
			if s.ControllerName == RouteController {
				r.Status = append(r.Status, s)
			}
		}
		if len(r.Parents)+len(r.Status) == 0 {
			return nil, nil
		}
		r.Meta = o.Metadata.decoded()
		r.Labels = nil
		if of == TLSRoute {
			r.Hostnames = distinctNames(o.Spec.Hostnames)
		}
		for i, raw := range o.Spec.Rules {
			rule, err := decodeRule(of, raw)
			if err != nil {
				r.Problems = append(r.Problems, fmt.Sprintf("rules[%d]: %v", i, err))
				continue
			}
			r.Rules = append(r.Rules, *rule)
		}
		return r, nil
	}
}

// distinctNames returns names in their order, each once.
func distinctNames(names []string) []string {
	seen := map[string]bool{}
	return slices.DeleteFunc(names, func(name string) bool {
		again := seen[name]
		seen[name] = true
		return again
	})
}

func decodeRule(of string, raw []byte) (*GatewayRule, error) {
	rule := &GatewayRule{}
	if of != GRPCRoute {
		return rule, json.Unmarshal(raw, rule)
	}
	grpc := struct {
		*GatewayRule
		Matches []grpcMatch `json:"matches"`
	}{GatewayRule: rule}
	if err := json.Unmarshal(raw, &grpc); err != nil {
		return nil, err
	}
	for i := range grpc.Matches {
		rule.Matches = append(rule.Matches, grpc.Matches[i].http())
	}
	return rule, nil
}

// ReferenceGrant lets routes of other namespaces refer to Services of its namespace. (Gateway API, ReferenceGrant.)
type ReferenceGrant struct {
	Meta
	From []GrantFrom
	To   []GrantTo
}

// GrantFrom are the objects that may refer.
type GrantFrom struct{ Group, Kind, Namespace string }

// GrantTo are the objects that they may refer to.
type GrantTo struct{ Group, Kind, Name string }

// DecodeReferenceGrant decodes a ReferenceGrant.
func DecodeReferenceGrant(raw []byte) (*ReferenceGrant, error) {
	var o struct {
		Metadata meta `json:"metadata"`
		Spec     struct {
			From []GrantFrom `json:"from"`
			To   []GrantTo   `json:"to"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return nil, err
	}
	g := &ReferenceGrant{Meta: o.Metadata.decoded(), From: o.Spec.From, To: o.Spec.To}
	g.Labels = nil
	return g, nil
}

// grants reports whether routes of a kind and a namespace may refer to an object.
func (g *ReferenceGrant) grants(route *Route, to GrantTo) bool {
	for _, from := range g.From {
		if from != (GrantFrom{gatewayGroup, route.Kind, route.Namespace}) {
			continue
		}
		for _, granted := range g.To {
			if granted.Group == to.Group && granted.Kind == to.Kind && (granted.Name == "" || granted.Name == to.Name) {
				return true
			}
		}
	}
	return false
}

// OfPolicies returns what the grant grants to producers' MeshHTTPRoutes and MeshTCPRoutes. Services of operators are
// granted in the system namespace.
func (g *ReferenceGrant) OfPolicies(system string) (grants []kind.ReferenceGrant) {
	for _, from := range g.From {
		if from.Group != meshGroup || from.Kind != kind.MeshHTTPRoutes.Name && from.Kind != kind.MeshTCPRoutes.Name {
			continue
		}
		for _, to := range g.To {
			of := to.Kind
			switch {
			case to.Group == "" && of == "Service", to.Group == meshGroup && of == kind.MeshServices.Name:
				of = kind.MeshServices.Name
			case to.Group == meshGroup && g.Namespace == system &&
				(of == kind.MeshMultiZoneServices.Name || of == kind.MeshExternalServices.Name):
			default:
				continue
			}
			grants = append(grants, kind.ReferenceGrant{FromKind: from.Kind, FromNamespace: from.Namespace,
				Namespace: g.Namespace, ToKind: of, ToName: to.Name})
		}
	}
	return grants
}

// granted reports whether a route may refer to an object of a namespace with some ReferenceGrants.
func granted(grants []*ReferenceGrant, route *Route, namespace string, to GrantTo) bool {
	return namespace == route.Namespace ||
		slices.ContainsFunc(grants, func(g *ReferenceGrant) bool { return g.grants(route, to) })
}

// RouteStatus is the status that this control plane wants a route to have at its parents.
type RouteStatus struct {
	Kind, Namespace, Name string
	Parents               []ParentStatus
}

// Set returns the parents of a stored status with the wanted entries in place of those of this control plane. Entries
// of other controllers stay as they are, with all their fields. A condition keeps the time of its last transition
// unless its status changes. changed is false where the stored status has the entries.
func (s *RouteStatus) Set(stored []json.RawMessage, now time.Time) (parents []json.RawMessage, changed bool,
	err error) {
	var had []ParentStatus
	for _, raw := range stored {
		var entry ParentStatus
		if err := json.Unmarshal(raw, &entry); err != nil {
			return nil, false, err
		}
		if entry.ControllerName == RouteController {
			had = append(had, entry)
		} else {
			parents = append(parents, raw)
		}
	}
	if s.HasEntries(had) {
		return stored, false, nil
	}
	for _, wanted := range s.Parents {
		wanted.Conditions = append([]RouteCondition(nil), wanted.Conditions...)
		for i := range wanted.Conditions {
			c := &wanted.Conditions[i]
			c.LastTransitionTime = now.UTC().Format(time.RFC3339)
			for _, before := range had {
				for _, old := range before.Conditions {
					if reflect.DeepEqual(before.ParentRef, wanted.ParentRef) && old.Type == c.Type &&
						old.Status == c.Status && old.LastTransitionTime != "" {
						c.LastTransitionTime = old.LastTransitionTime
					}
				}
			}
		}
		raw, err := json.Marshal(wanted)
		if err != nil {
			return nil, false, err
		}
		parents = append(parents, raw)
	}
	return parents, true, nil
}

// HasEntries reports whether the entries of this control plane in a status are the wanted ones, whatever the times of
// their transitions are.
func (s *RouteStatus) HasEntries(entries []ParentStatus) bool {
	if len(entries) != len(s.Parents) {
		return false
	}
	for i, stored := range entries {
		stored.Conditions = append([]RouteCondition(nil), stored.Conditions...)
		for j := range stored.Conditions {
			stored.Conditions[j].LastTransitionTime = ""
		}
		if !reflect.DeepEqual(stored, s.Parents[i]) {
			return false
		}
	}
	return true
}

// sniField is the prefix of the matches of a TLSRoute in the resource that is made from it.
const sniField = "rules[0].matches["

// routeField returns a field of the resource that is made from a route as the field of the route.
func (r *Route) routeField(field string) string {
	field = strings.ReplaceAll(strings.TrimPrefix(field, "spec.to[0]."), ".default.", ".")
	if at, ok := strings.CutPrefix(field, sniField); ok && r.Kind == TLSRoute {
		at, _, _ = strings.Cut(at, "]")
		return "hostnames[" + at + "]"
	}
	return field
}
