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

// Headers by which proxies instruct each other, and by which an inbound reports the caller. None crosses an application
// in either direction. A name with an underscore matches too: applications with CGI or WSGI cannot tell it from a
// hyphen.
const (
	proxyHeaders  = `x[-_](envoy|weft)[-_].*`
	callerHeaders = proxyHeaders + `|x[-_]forwarded[-_]client[-_]cert`
)

// callersHeaders removes headers that only a proxy may write, before Envoy reads the request. Requests come from an
// application or from the mesh. Neither controls retries, timeouts, traces or hosts, and neither states the caller's
// identity.
func callersHeaders() []*corev3.TypedExtensionConfig {
	return []*corev3.TypedExtensionConfig{{
		Name: "envoy.http.early_header_mutation.header_mutation",
		TypedConfig: toAny(&earlyheadermutationv3.HeaderMutation{Mutations: []*mutationrulesv3.HeaderMutation{
			removed(callerHeaders),
		}}),
	}}
}

// withoutProxyHeaders removes response headers that only a proxy may write, before Envoy decides about a retry. A
// response that a proxy sends in place of the server keeps them.
func withoutProxyHeaders() []*hcmv3.HttpFilter {
	mutations := &headermutationv3.Mutations{
		ResponseMutations:         []*mutationrulesv3.HeaderMutation{removed(proxyHeaders)},
		ResponseTrailersMutations: []*mutationrulesv3.HeaderMutation{removed(proxyHeaders)},
	}
	return []*hcmv3.HttpFilter{
		{
			Name: "envoy.filters.http.header_mutation",
			ConfigType: &hcmv3.HttpFilter_TypedConfig{
				TypedConfig: toAny(&headermutationv3.HeaderMutation{Mutations: mutations})},
		},
		{
			Name:       "envoy.filters.http.upstream_codec",
			ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: toAny(&upstreamcodecv3.UpstreamCodec{})},
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

// trustedHops is a larger number of trusted hops than an x-forwarded-for header has addresses. Envoy then never uses an
// address of the header as the client's address, which is that of the connection, and treats no request as internal.
// The header itself is forwarded unchanged. An empty internal_address_config would trust private addresses, and an
// absent one has no range.
const trustedHops = 1 << 31
