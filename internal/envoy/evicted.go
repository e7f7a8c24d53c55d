package envoy

import (
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"weft/internal/xds"
)

// EvictionFilters returns the filters that deny the evicted instances of a mesh: one for requests and one for TCP
// connections, which every listener of the mesh that terminates mutual TLS shares. names are the sorted DNS SANs of
// their certificates, one per instance. The filters exist without evicted instances too, so that an eviction never
// changes a filter chain.
func EvictionFilters(mesh string, names []string) []*xds.Resource {
	rules := &rbacv3.RBAC{Action: rbacv3.RBAC_DENY, Policies: map[string]*rbacv3.Policy{}}
	if len(names) > 0 {
		rules.Policies["weft: mesh "+mesh+" does not admit the caller"] = anyPermission(matchesAnyName(names,
			maxPrefixDepth)...)
	}
	return []*xds.Resource{
		extension(evictedHTTPName(mesh), &httprbacv3.RBAC{Rules: rules}),
		extension(evictedTCPName(mesh), evicted(rules)),
	}
}

// evictedHTTPName and evictedTCPName return the names of the filters of a mesh. A ZoneEgress has those of several
// meshes.
func evictedHTTPName(mesh string) string { return "system_evicted_http_" + mesh }

func evictedTCPName(mesh string) string { return "system_evicted_tcp_" + mesh }

const (
	// Up to fewNames names are compared one by one.
	fewNames = 4
	// maxPrefixDepth is the maximum number of nested common prefixes. Each takes four levels of nested messages, and
	// Envoy rejects a message with a hundred.
	maxPrefixDepth = 8
)

// matchesAnyName matches a caller with one of the sorted names. Envoy compares a request with one principal after the
// other, a fifth of a microsecond each. Names with a common prefix are therefore nested below it: of a thousand names,
// a few dozen are compared.
func matchesAnyName(names []string, depth int) []*rbacv3.Principal {
	var principals []*rbacv3.Principal
	if len(names) <= fewNames || depth == 0 {
		for _, name := range names {
			principals = append(principals,
				authenticated(&matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: name}}))
		}
		return principals
	}
	for shared := commonPrefixLength(names); len(names) > 0; {
		alike := 1
		for alike < len(names) && commonPrefixLength(names[:alike+1]) > shared {
			alike++
		}
		group := names[:alike]
		names = names[alike:]
		if alike == 1 {
			principals = append(principals, matchesAnyName(group, depth)...)
			continue
		}
		principals = append(principals,
			&rbacv3.Principal{Identifier: &rbacv3.Principal_AndIds{AndIds: &rbacv3.Principal_Set{
				Ids: []*rbacv3.Principal{uriPrefix(group[0][:commonPrefixLength(group)]),
					oneOf(matchesAnyName(group, depth-1))},
			}}})
	}
	return principals
}

// commonPrefixLength returns the length in bytes of the common prefix of sorted names.
func commonPrefixLength(names []string) int {
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
