package envoy

import (
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"weft/internal/xds"
)

// Evicted are the filters that deny the evicted instances of a mesh, by the DNS SANs of their certificates, which
// come sorted and are of one instance each: one filter for requests and one for TCP connections, shared by every
// listener of the mesh that terminates mutual TLS. They are there when no instance is evicted too, so that an eviction
// never changes a filter chain.
func Evicted(mesh string, names []string) []*xds.Resource {
	rules := &rbacv3.RBAC{Action: rbacv3.RBAC_DENY, Policies: map[string]*rbacv3.Policy{}}
	if len(names) > 0 {
		rules.Policies["weft: mesh "+mesh+" does not admit the caller"] = policy(calledAny(names, deepest)...)
	}
	return []*xds.Resource{
		extension(evictedHTTPName(mesh), &httprbacv3.RBAC{Rules: rules}),
		extension(evictedTCPName(mesh), evicted(rules)),
	}
}

// evictedHTTPName and evictedTCPName name the filters of a mesh, which a ZoneEgress has of several meshes.
func evictedHTTPName(mesh string) string { return "system_evicted_http_" + mesh }

func evictedTCPName(mesh string) string { return "system_evicted_tcp_" + mesh }

const (
	// fewNames are looked at one by one.
	fewNames = 4
	// deepest is how many beginnings stand behind each other at most; Envoy reads no message that nests a hundred
	// times, of which each takes four.
	deepest = 8
)

// calledAny matches a caller with any of some sorted names. Envoy puts a request to one principal after the other, a
// fifth of a microsecond each; so those that begin alike stand behind their beginning, and of a thousand names a
// few dozen are looked at.
func calledAny(names []string, depth int) []*rbacv3.Principal {
	var principals []*rbacv3.Principal
	if len(names) <= fewNames || depth == 0 {
		for _, name := range names {
			principals = append(principals, authenticated(&matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: name}}))
		}
		return principals
	}
	for shared := sharedBy(names); len(names) > 0; {
		alike := 1
		for alike < len(names) && sharedBy(names[:alike+1]) > shared {
			alike++
		}
		group := names[:alike]
		names = names[alike:]
		if alike == 1 {
			principals = append(principals, calledAny(group, depth)...)
			continue
		}
		principals = append(principals, &rbacv3.Principal{Identifier: &rbacv3.Principal_AndIds{AndIds: &rbacv3.Principal_Set{
			Ids: []*rbacv3.Principal{under(group[0][:sharedBy(group)]), oneOf(calledAny(group, depth-1))},
		}}})
	}
	return principals
}

// sharedBy is how many bytes all of some sorted names begin with.
func sharedBy(names []string) int {
	first, last := names[0], names[len(names)-1]
	n := 0
	for n < min(len(first), len(last)) && first[n] == last[n] {
		n++
	}
	return n
}

func oneOf(principals []*rbacv3.Principal) *rbacv3.Principal {
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_OrIds{OrIds: &rbacv3.Principal_Set{Ids: principals}}}
}
