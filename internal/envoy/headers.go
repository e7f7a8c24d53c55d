package envoy

import (
	mutations "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	mutation "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_mutation/v3"
	codec "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/upstream_codec/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	early "github.com/envoyproxy/go-control-plane/envoy/extensions/http/early_header_mutation/header_mutation/v3"
	matchers "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
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
func callersHeaders() []*core.TypedExtensionConfig {
	return []*core.TypedExtensionConfig{{
		Name: "envoy.http.early_header_mutation.header_mutation",
		TypedConfig: pack(&early.HeaderMutation{Mutations: []*mutations.HeaderMutation{
			removed(callerHeaders),
		}}),
	}}
}

// withoutProxyHeaders removes, before Envoy decides about a retry, what only a proxy may write in a response. What a
// proxy responds in place of the server keeps it.
func withoutProxyHeaders() []*hcm.HttpFilter {
	return []*hcm.HttpFilter{
		{
			Name: "envoy.filters.http.header_mutation",
			ConfigType: &hcm.HttpFilter_TypedConfig{TypedConfig: pack(&mutation.HeaderMutation{Mutations: &mutation.Mutations{
				ResponseMutations:         []*mutations.HeaderMutation{removed(proxyHeaders)},
				ResponseTrailersMutations: []*mutations.HeaderMutation{removed(proxyHeaders)},
			}})},
		},
		{
			Name:       "envoy.filters.http.upstream_codec",
			ConfigType: &hcm.HttpFilter_TypedConfig{TypedConfig: pack(&codec.UpstreamCodec{})},
		},
	}
}

func removed(names string) *mutations.HeaderMutation {
	return &mutations.HeaderMutation{Action: &mutations.HeaderMutation_RemoveOnMatch_{
		RemoveOnMatch: &mutations.HeaderMutation_RemoveOnMatch{KeyMatcher: &matchers.StringMatcher{
			MatchPattern: &matchers.StringMatcher_SafeRegex{SafeRegex: &matchers.RegexMatcher{Regex: names}},
		}},
	}}
}

// beyondForwardedFor is more trusted hops than an x-forwarded-for header has addresses, so that Envoy never takes one of
// them for the client's, which is the address of the connection, and no request for an internal one. The header passes as
// it is. An empty internal_address_config would have private addresses trusted; none at all has none.
const beyondForwardedFor = 1 << 31
