package envoy

import (
	rbac "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	matchers "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"weft/internal/xds"
)

// PutOut are the filters that refuse whom a mesh has put out, by the DNS names in their certificates, which are of
// one instance each: one for requests and one for connections, shared by every listener of the mesh that ends
// mutual TLS. They are there when nobody is put out too, so that it never changes a filter chain.
func PutOut(mesh string, names []string) []*xds.Resource {
	rules := &rbac.RBAC{Action: rbac.RBAC_DENY, Policies: map[string]*rbac.Policy{}}
	if len(names) > 0 {
		var callers []*rbac.Principal
		for _, name := range names {
			callers = append(callers, authenticated(&matchers.StringMatcher{MatchPattern: &matchers.StringMatcher_Exact{Exact: name}}))
		}
		rules.Policies["weft: mesh "+mesh+" does not admit the caller"] = policy(callers...)
	}
	return []*xds.Resource{
		extension(httpFamily.putOutName(mesh), httpFamily.filter(rules, nil)),
		extension(tcpFamily.putOutName(mesh), tcpFamily.filter(rules, nil)),
	}
}

// putOutName names the filter of a mesh. The mesh is in it, since a ZoneEgress ends the TLS of several.
func (f family) putOutName(mesh string) string { return "system_put_out_" + f.name + "_" + mesh }
