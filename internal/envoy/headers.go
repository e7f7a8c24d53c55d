package envoy

import (
	mutationrulesv3 "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	headermutationv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_mutation/v3"
	upstreamcodecv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/upstream_codec/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	earlyheadermutationv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/http/early_header_mutation/header_mutation/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
)

// Headers by which proxies tell each other what to do, and by which an inbound names the caller. None crosses an
// application in either direction. An underscore is matched too: applications behind CGI or WSGI can't tell it from a
// hyphen.
const (
	proxyHeaders  = `x[-_](envoy|weft)[-_].*`
	callerHeaders = proxyHeaders + `|x[-_]forwarded[-_]client[-_]cert`
)

// callersHeaders removes, before Envoy reads a request, what only a proxy may write. Requests come from an application
// or from the mesh; neither decides about retries, timeouts, traces or hosts, and neither names the caller.
func callersHeaders() []*corev3.TypedExtensionConfig {
	return []*corev3.TypedExtensionConfig{{
		Name: "envoy.http.early_header_mutation.header_mutation",
		TypedConfig: pack(&earlyheadermutationv3.HeaderMutation{Mutations: []*mutationrulesv3.HeaderMutation{
			removed(callerHeaders),
		}}),
	}}
}

// withoutProxyHeaders removes, before Envoy decides about a retry, what only a proxy may write in a response. What a
// proxy responds in place of the server keeps it.
func withoutProxyHeaders() []*hcmv3.HttpFilter {
	return []*hcmv3.HttpFilter{
		{
			Name: "envoy.filters.http.header_mutation",
			ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: pack(&headermutationv3.HeaderMutation{Mutations: &headermutationv3.Mutations{
				ResponseMutations:         []*mutationrulesv3.HeaderMutation{removed(proxyHeaders)},
				ResponseTrailersMutations: []*mutationrulesv3.HeaderMutation{removed(proxyHeaders)},
			}})},
		},
		{
			Name:       "envoy.filters.http.upstream_codec",
			ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: pack(&upstreamcodecv3.UpstreamCodec{})},
		},
	}
}

func removed(names string) *mutationrulesv3.HeaderMutation {
	return &mutationrulesv3.HeaderMutation{Action: &mutationrulesv3.HeaderMutation_RemoveOnMatch_{
		RemoveOnMatch: &mutationrulesv3.HeaderMutation_RemoveOnMatch{KeyMatcher: &matcherv3.StringMatcher{
			MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: names}},
		}},
	}}
}

// beyondForwardedFor is more trusted hops than an x-forwarded-for header has addresses, so that Envoy never takes one of
// them for the client's, which is the address of the connection, and no request for an internal one. The header passes as
// it is. An empty internal_address_config would have private addresses trusted; none at all has none.
const beyondForwardedFor = 1 << 31
