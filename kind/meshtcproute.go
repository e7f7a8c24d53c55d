package kind

import (
	"cmp"
	"math"
	"strings"

	"weft/resource"
)

// MeshTCPRoute decides where the TCP connections go that the proxies that it targets open to a service.
//
// A rule with matches has the connections of the application's own TLS with one of its server names (SNI): exact names
// before wildcards, and longer wildcards before shorter ones. The rule without matches has all other connections.
// Without it, they go to the service itself. Rules of several MeshTCPRoutes with the same matches are one rule, of
// which the policy with the more specific target decides; it also decides about an SNI that several rules have. At a
// port with such matches, a connection on which the application sends less than five bytes in the first second has no
// SNI.
//
// A backend that does not exist is left out. Without any backend, connections are closed. On an HTTP port, the weights
// split requests, rules with matches have no effect, and a MeshHTTPRoute about the port takes precedence.
type MeshTCPRoute struct {
	// the target proxies; by default the whole mesh
	TargetRef *TargetRef `json:"targetRef,omitempty"`
	// the routes of the connections that the proxies open
	To []TCPRouteTo `json:"to,omitempty" schema:"maxItems=256"`
}

// TCPRouteTo has the rules for connections to some services.
type TCPRouteTo struct {
	TargetRef RoutedRef `json:"targetRef" schema:"required"` // the services
	// the rules, in any order, with 1024 matches in total at most
	Rules []TCPRouteRule `json:"rules" schema:"required minItems=1 maxItems=256" missing:"at least one rule"`
}

// TCPRouteConf is the rules of the connections to a destination.
type TCPRouteConf struct {
	Rules []TCPRouteRule `json:"rules,omitempty" merge:"key=matches"`
}

// TCPRouteRule says where connections go.
type TCPRouteRule struct {
	// the matches, of which a connection has to have one; without any, the connections that no other rule matches
	Matches []TCPMatch     `json:"matches,omitempty" schema:"maxItems=1024"`
	Default TCPRouteAction `json:"default" schema:"required"` // where they go
}

// TCPMatch matches a connection.
type TCPMatch struct {
	SNI *RouteSNIMatch `json:"sni,omitempty" schema:"required"` // the SNI of the application's own TLS
}

// RouteSNIMatch matches the SNI of a connection.
type RouteSNIMatch struct {
	// the type of the match: one name, or all names below a domain
	Type string `json:"type" schema:"required enum=Exact|Wildcard"`
	// the name in lower case; *.DOMAIN for a wildcard
	Value string `json:"value" schema:"required maxLength=253"`
}

// Types of a [RouteSNIMatch].
const (
	SNIExact    = "Exact"
	SNIWildcard = "Wildcard"
)

// MaxTCPMatches is how many matches the rules for a service have at most. A listener has a filter chain for each.
const MaxTCPMatches = 1024

// MergeKey returns a text of the match. Equal matches have equal texts.
func (m TCPMatch) MergeKey() string { return m.SNI.Value }

// String reads as "SNI *.example.com".
func (m TCPMatch) String() string { return "SNI " + m.SNI.Value }

// MatchOfSNI returns the match of a server name, or of *.DOMAIN.
func MatchOfSNI(name string) TCPMatch {
	of := SNIExact
	if strings.HasPrefix(name, "*.") {
		of = SNIWildcard
	}
	return TCPMatch{&RouteSNIMatch{of, name}}
}

// RulesOfSNIs returns the index of the rule that has each SNI of merged rules: of several the first one, which is that
// of the most specific policy.
func RulesOfSNIs(merged []TCPRouteRule) map[string]int {
	rules := map[string]int{}
	for i := range merged {
		for _, m := range merged[i].Matches {
			if _, taken := rules[m.SNI.Value]; !taken {
				rules[m.SNI.Value] = i
			}
		}
	}
	return rules
}

// CompareSNIs compares the values of two matches in the order of their precedence: exact names before wildcards, and
// longer wildcards before shorter ones.
func CompareSNIs(a, b string) int {
	wildcard := func(name string) int {
		if strings.HasPrefix(name, "*.") {
			return len(name)
		}
		return math.MaxInt
	}
	return cmp.Or(cmp.Compare(wildcard(b), wildcard(a)), strings.Compare(a, b))
}

// TCPRouteAction says where connections go.
type TCPRouteAction struct {
	// the backends that share the connections
	BackendRefs []RouteBackendRef `json:"backendRefs" schema:"required minItems=1 maxItems=64" missing:"at least one backend"`
}

// MeshTCPRoutes is the kind of [MeshTCPRoute].
var MeshTCPRoutes = NewPolicy(PolicyKind[MeshTCPRoute, TCPRouteConf]{
	Kind: resource.Kind[MeshTCPRoute]{
		Info: resource.Info{
			Name: "MeshTCPRoute", Plural: "meshtcproutes", ShortName: "mtcpr",
			Replaces: []resource.OlderKind{{Name: "TrafficRoute", Plural: "traffic-routes",
				Instead: "write a MeshHTTPRoute or a MeshTCPRoute"}},
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
})
