package kind

import (
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"

	"weft/resource"
)

// MeshHTTPRoute decides where the HTTP requests go that the proxies that it targets send to a service.
//
// The first rule whose match a request has decides. Rules are in the order of their matches: exact paths before
// prefixes, longer prefixes before shorter ones, prefixes before regular expressions, and of each those with a method,
// more headers or more query parameters first. A request that no rule matches goes to the service itself. Rules of
// several MeshHTTPRoutes with the same matches are one rule; for filters and backendRefs the policy with the more
// specific target decides. On a port that is not HTTP, the MeshHTTPRoute has no effect.
type MeshHTTPRoute struct {
	// the target proxies; by default the whole mesh
	TargetRef *TargetRef `json:"targetRef,omitempty"`
	// the routes of the requests that the proxies send
	To []HTTPRouteTo `json:"to,omitempty" schema:"maxItems=256"`
}

// HTTPRouteTo has the rules for requests to some services.
type HTTPRouteTo struct {
	TargetRef RoutedRef       `json:"targetRef" schema:"required"`                                                 // the services
	Rules     []HTTPRouteRule `json:"rules" schema:"required minItems=1 maxItems=256" missing:"at least one rule"` // the rules, in any order
}

// RoutedRef selects the services that an item of `to` of a route is about.
type RoutedRef struct {
	// the kind of the services
	Kind string `json:"kind" schema:"required enum=MeshService|MeshMultiZoneService|MeshExternalService"`
	// the name that the service's owner gave it; in the policy of a zone, the service is of this zone
	Name string `json:"name,omitempty" schema:"pattern=name"`
	// of the name, on Kubernetes: by default that of the policy; rejected outside Kubernetes
	Namespace string `json:"namespace,omitempty" schema:"maxLength=63"`
	// the labels of the services
	Labels map[string]string `json:"labels,omitempty" schema:"labels"`
	// the name or number of one port
	SectionName string `json:"sectionName,omitempty" schema:"pattern=section"`
}

// HTTPRouteConf is the rules of the requests to a destination.
type HTTPRouteConf struct {
	Rules []HTTPRouteRule `json:"rules,omitempty" merge:"key=matches"`
}

// HTTPRouteRule says what happens to the requests that match.
type HTTPRouteRule struct {
	// the matches; a request has to match one of them
	Matches []HTTPMatch     `json:"matches" schema:"required minItems=1 maxItems=64" missing:"at least one match, such as {path: {type: PathPrefix, value: /}}"`
	Default HTTPRouteAction `json:"default"` // what happens to the requests
}

// HTTPRouteAction says what happens to requests.
type HTTPRouteAction struct {
	// the changes of requests and responses; an empty list removes those of less specific policies
	Filters []HTTPFilter `json:"filters,omitzero" schema:"maxItems=16"`
	// the backends that share the requests; without any, the service itself
	BackendRefs []RouteBackendRef `json:"backendRefs,omitzero" schema:"maxItems=64"`
}

// HTTPMatch matches a request. All of its fields have to match.
type HTTPMatch struct {
	// the path; by default any
	Path *PathMatch `json:"path,omitempty"`
	// the method; by default any
	Method string `json:"method,omitempty" schema:"enum=GET|HEAD|POST|PUT|DELETE|OPTIONS|TRACE|PATCH"`
	// the headers
	Headers []HeaderMatch `json:"headers,omitempty" schema:"maxItems=16"`
	// the parameters of the query
	QueryParams []QueryMatch `json:"queryParams,omitempty" schema:"maxItems=16"`
}

// RouteMatch is a match of a rule of a route: an [HTTPMatch] or a [TCPMatch].
type RouteMatch interface {
	// MergeKey returns a text of the match. Equal matches have equal texts.
	MergeKey() string
	String() string
}

// PathMatch matches the path of a request, without its query.
type PathMatch struct {
	// the type of the match: the whole path; the path or its beginning up to a slash; the whole path by a regular
	// expression (RE2)
	Type  string `json:"type" schema:"required enum=Exact|PathPrefix|RegularExpression"`
	Value string `json:"value" schema:"required maxLength=1024"` // the path, prefix or expression
}

// Types of a [PathMatch].
const (
	PathExact  = "Exact"
	PathPrefix = "PathPrefix"
	PathRegex  = "RegularExpression"
)

// QueryMatch matches a parameter of the query.
type QueryMatch struct {
	// the type of the match: the whole value, or the whole value by a regular expression (RE2)
	Type  string `json:"type" schema:"required enum=Exact|RegularExpression"`
	Name  string `json:"name" schema:"required maxLength=256"`   // the name
	Value string `json:"value" schema:"required maxLength=1024"` // the value or expression
}

// RouteBackendRef is a port of a service that gets a share of the traffic.
type RouteBackendRef struct {
	// the kind of the service
	Kind string `json:"kind" schema:"required enum=MeshService|MeshMultiZoneService|MeshExternalService"`
	// the name that the service's owner gave it; in the policy of a zone, the service is of this zone
	Name string `json:"name,omitempty" schema:"pattern=name"`
	// of the name, on Kubernetes: by default that of the policy; rejected outside Kubernetes
	Namespace string `json:"namespace,omitempty" schema:"maxLength=63"`
	// the labels of the service; of several, one of the proxy's zone, and then the oldest one
	Labels map[string]string `json:"labels,omitempty" schema:"labels"`
	// the name or number of the port; none for a MeshExternalService
	SectionName string `json:"sectionName,omitempty" schema:"pattern=section"`
	// the number of the port, in place of sectionName
	Port uint32 `json:"port,omitempty" schema:"port"`
	// the share of the traffic, relative to the sum of the weights
	Weight *uint32 `json:"weight,omitempty" schema:"default=1"`
}

// Share returns the weight, 1 where none is written.
func (b *RouteBackendRef) Share() uint32 {
	if b.Weight == nil {
		return 1
	}
	return *b.Weight
}

// MergeKey implements Keyed of package policy. A match without a path has the key of the prefix "/".
func (m HTTPMatch) MergeKey() string {
	if m.Path == nil {
		m.Path = &PathMatch{PathPrefix, "/"}
	}
	m.Headers = slices.Clone(m.Headers)
	for i := range m.Headers {
		m.Headers[i].Type = cmp.Or(m.Headers[i].Type, HeaderExact)
	}
	slices.SortFunc(m.Headers, func(a, b HeaderMatch) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Type, b.Type), strings.Compare(a.Value,
			b.Value))
	})
	m.QueryParams = slices.Clone(m.QueryParams)
	slices.SortFunc(m.QueryParams, func(a, b QueryMatch) int { return strings.Compare(a.Name, b.Name) })
	text, _ := json.Marshal(m) // it has no value that JSON lacks
	return string(text)
}

// String reads as "path prefix /api, method GET, header x-a Exact b, query parameter v Exact 2".
func (m HTTPMatch) String() string {
	parts := []string{"path prefix /"}
	if m.Path != nil {
		parts[0] = map[string]string{PathExact: "path ", PathPrefix: "path prefix ", PathRegex: "path like " +
			""}[m.Path.Type] +
			m.Path.Value
	}
	if m.Method != "" {
		parts = append(parts, "method "+m.Method)
	}
	for _, h := range m.Headers {
		parts = append(parts, strings.TrimSpace(fmt.Sprintf("header %s %s %s", h.Name, cmp.Or(h.Type, HeaderExact),
			h.Value)))
	}
	for _, q := range m.QueryParams {
		parts = append(parts, fmt.Sprintf("query parameter %s %s %s", q.Name, q.Type, q.Value))
	}
	return strings.Join(parts, ", ")
}

// Every reports whether the match has every request.
func (m *HTTPMatch) Every() bool {
	return (m.Path == nil || *m.Path == PathMatch{PathPrefix, "/"}) && m.Method == "" &&
		len(m.Headers)+len(m.QueryParams) == 0
}

// MeshHTTPRoutes is the kind of [MeshHTTPRoute].
var MeshHTTPRoutes = NewPolicy(PolicyKind[MeshHTTPRoute, HTTPRouteConf]{
	Costs: &PortCosts[*HTTPRouteConf]{Unit: regexUnit, Of: routeCost, Most: maxRegexCost,
		Producer: maxRegexCost / 16},
	Kind: resource.Kind[MeshHTTPRoute]{
		Info: resource.Info{
			Name: "MeshHTTPRoute", Plural: "meshhttproutes", ShortName: "mhttpr",
			Replaced: replacedInRoutes(map[string]string{
				"to.hostnames": "has no meaning here; leave it out, there are no gateways, and a route holds for " +
					"every " +
					"host name of the service",
				"to.rules.default.filters.urlRewrite.hostToBackendHostname": "has no meaning here; leave it out, " +
					"there " +
					"are no gateways",
			}),
		},
		Default:  defaultMeshHTTPRoute,
		Validate: validateMeshHTTPRoute,
	},
	Split: func(p *MeshHTTPRoute) Parts {
		parts := Parts{TargetRef: p.TargetRef}
		for i := range p.To {
			parts.To = append(parts.To, ToPart{DestinationRef(p.To[i].TargetRef), &HTTPRouteConf{p.To[i].Rules}})
		}
		return parts
	},
	Fields: []FieldRule[HTTPRouteConf]{{Prefix: "rules", Protocols: requestProtocols}},
})

// defaultMeshHTTPRoute removes the default weight of mirrors, where it has no meaning: clients of Kuma fill it in.
func defaultMeshHTTPRoute(o *resource.Object[MeshHTTPRoute]) {
	for i := range o.Spec.To {
		for j := range o.Spec.To[i].Rules {
			filters := o.Spec.To[i].Rules[j].Default.Filters
			for n := range filters {
				mirror := filters[n].RequestMirror
				if mirror != nil && mirror.BackendRef.Weight != nil && *mirror.BackendRef.Weight == 1 {
					mirror.BackendRef.Weight = nil
				}
			}
		}
	}
}

// BackendRefs returns the references of a route's conf to backends, those of mirrors too, each with its field below the
// item of `to`. conf is a *HTTPRouteConf or a *TCPRouteConf; any other has none.
func BackendRefs(conf any) iter.Seq2[string, *RouteBackendRef] {
	return func(yield func(string, *RouteBackendRef) bool) {
		all := func(at string, refs []RouteBackendRef) bool {
			for i := range refs {
				if !yield(fmt.Sprintf("%s.backendRefs[%d]", at, i), &refs[i]) {
					return false
				}
			}
			return true
		}
		switch conf := conf.(type) {
		case *HTTPRouteConf:
			for i := range conf.Rules {
				at, rule := fmt.Sprintf("rules[%d].default", i), &conf.Rules[i].Default
				if !all(at, rule.BackendRefs) {
					return
				}
				for n := range rule.Filters {
					field := fmt.Sprintf("%s.filters[%d].requestMirror.backendRef", at, n)
					if m := rule.Filters[n].RequestMirror; m != nil && !yield(field, &m.BackendRef) {
						return
					}
				}
			}
		case *TCPRouteConf:
			for i := range conf.Rules {
				if !all(fmt.Sprintf("rules[%d].default", i), conf.Rules[i].Default.BackendRefs) {
					return
				}
			}
		}
	}
}

// routeCost returns what the regular expressions and the modified headers of rules cost a proxy. Each match is a route
// of Envoy, or two, with headers of its own: 13 bytes for each byte.
func routeCost(conf *HTTPRouteConf) int64 {
	const headerBase = 100
	cost := regexCost(conf)
	for i := range conf.Rules {
		rule := &conf.Rules[i]
		ofMatch := int64(0)
		for _, f := range rule.Default.Filters {
			for _, m := range []*HeaderModifier{f.RequestHeaderModifier, f.ResponseHeaderModifier} {
				if m == nil {
					continue
				}
				for _, header := range slices.Concat(m.Set, m.Add) {
					ofMatch += headerBase + int64(len(header.Name)+len(header.Value))*13/10
				}
				ofMatch += int64(len(m.Remove)) * headerBase
			}
		}
		cost += ofMatch * int64(len(rule.Matches))
	}
	return cost
}

// RouteCount returns the number of routes that the rules of a conf are in a proxy.
func (c *HTTPRouteConf) RouteCount() int {
	routes := 0
	for i := range c.Rules {
		routes += len(c.Rules[i].Matches)
	}
	return routes
}
