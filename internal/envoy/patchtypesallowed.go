package envoy

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"weft/kind"
)

// TypeNames are the types of extensions, by their full names, that a MeshProxyPatch may have beyond the harmless ones:
// those of a setting.
type TypeNames []string

// allows reports whether a patch may have a message of a type.
func (more TypeNames) allows(name protoreflect.FullName) bool {
	if slices.Contains(more, string(name)) {
		return true
	}
	if slices.Contains(harmlessPackages, name.Parent()) {
		return true
	}
	_, harmless := slices.BinarySearch(harmlessTypes, string(name))
	return harmless
}

// unlisted returns the types that a patch may not have, each once.
func (more TypeNames) unlisted(names []protoreflect.FullName) []protoreflect.FullName {
	names = slices.DeleteFunc(slices.Clone(names), more.allows)
	slices.Sort(names)
	return slices.Compact(names)
}

// Check returns the problems of a conf that a user writes.
func (more TypeNames) Check(conf *kind.ProxyPatchConf) kind.PatchProblems {
	patches, malformed := NewPatches(conf, more)
	return kind.PatchProblems{Malformed: malformed, Unlisted: patches.Unlisted, Rejected: patches.Invalid()}
}

// Violations returns why a conf has types or values that a user may not write, as one text; empty: it has none.
func (more TypeNames) Violations(conf *kind.ProxyPatchConf) string {
	patches, problems := NewPatches(conf, more)
	var texts []string
	for _, p := range append(patches.Unlisted, problems...) {
		texts = append(texts, p.Path()+" "+p.Reason)
	}
	return strings.Join(texts[:min(len(texts), 3)], "; ")
}

// riskyTypes are messages outside of extensions that need the permission of an extension: a client of gRPC that reads
// files and the environment of its process for its credentials.
var riskyTypes = []protoreflect.FullName{"envoy.config.core.v3.GrpcService.GoogleGrpc"}

// harmlessPackages have inputs and results of matchers, which read the request alone.
var harmlessPackages = []protoreflect.FullName{"envoy.type.matcher.v3", "xds.type.matcher.v3",
	"envoy.extensions.matching.common_inputs.network.v3"}

// harmlessTypes are the types of extensions that run no code of a writer, read no file and no environment, and connect
// to clusters alone. They are sorted.
var harmlessTypes = sortedTypes(`
google.protobuf.BoolValue
google.protobuf.Empty
google.protobuf.StringValue
google.protobuf.UInt32Value
envoy.config.core.v3.TypedExtensionConfig
envoy.config.route.v3.FilterConfig
envoy.config.route.v3.Route
envoy.config.trace.v3.OpenTelemetryConfig
envoy.config.trace.v3.ZipkinConfig
envoy.extensions.access_loggers.file.v3.FileAccessLog
envoy.extensions.access_loggers.filters.cel.v3.ExpressionFilter
envoy.extensions.access_loggers.grpc.v3.HttpGrpcAccessLogConfig
envoy.extensions.access_loggers.grpc.v3.TcpGrpcAccessLogConfig
envoy.extensions.access_loggers.open_telemetry.v3.OpenTelemetryAccessLogConfig
envoy.extensions.access_loggers.stream.v3.StderrAccessLog
envoy.extensions.access_loggers.stream.v3.StdoutAccessLog
envoy.extensions.clusters.aggregate.v3.ClusterConfig
envoy.extensions.clusters.dns.v3.DnsCluster
envoy.extensions.compression.brotli.compressor.v3.Brotli
envoy.extensions.compression.brotli.decompressor.v3.Brotli
envoy.extensions.compression.gzip.compressor.v3.Gzip
envoy.extensions.compression.gzip.decompressor.v3.Gzip
envoy.extensions.compression.zstd.compressor.v3.Zstd
envoy.extensions.compression.zstd.decompressor.v3.Zstd
envoy.extensions.filters.http.adaptive_concurrency.v3.AdaptiveConcurrency
envoy.extensions.filters.http.admission_control.v3.AdmissionControl
envoy.extensions.filters.http.bandwidth_limit.v3.BandwidthLimit
envoy.extensions.filters.http.buffer.v3.Buffer
envoy.extensions.filters.http.buffer.v3.BufferPerRoute
envoy.extensions.filters.http.compressor.v3.Compressor
envoy.extensions.filters.http.compressor.v3.CompressorPerRoute
envoy.extensions.filters.http.cors.v3.Cors
envoy.extensions.filters.http.cors.v3.CorsPolicy
envoy.extensions.filters.http.csrf.v3.CsrfPolicy
envoy.extensions.filters.http.decompressor.v3.Decompressor
envoy.extensions.filters.http.ext_authz.v3.CheckSettings
envoy.extensions.filters.http.ext_authz.v3.ExtAuthz
envoy.extensions.filters.http.ext_authz.v3.ExtAuthzPerRoute
envoy.extensions.filters.http.fault.v3.HTTPFault
envoy.extensions.filters.http.grpc_http1_bridge.v3.Config
envoy.extensions.filters.http.grpc_http1_reverse_bridge.v3.FilterConfig
envoy.extensions.filters.http.grpc_http1_reverse_bridge.v3.FilterConfigPerRoute
envoy.extensions.filters.http.grpc_json_transcoder.v3.GrpcJsonTranscoder
envoy.extensions.filters.http.grpc_stats.v3.FilterConfig
envoy.extensions.filters.http.grpc_web.v3.GrpcWeb
envoy.extensions.filters.http.header_mutation.v3.HeaderMutation
envoy.extensions.filters.http.header_mutation.v3.HeaderMutationPerRoute
envoy.extensions.filters.http.header_to_metadata.v3.Config
envoy.extensions.filters.http.health_check.v3.HealthCheck
envoy.extensions.filters.http.json_to_metadata.v3.JsonToMetadata
envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication
envoy.extensions.filters.http.jwt_authn.v3.PerRouteConfig
envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit
envoy.extensions.filters.http.on_demand.v3.OnDemand
envoy.extensions.filters.http.ratelimit.v3.RateLimit
envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute
envoy.extensions.filters.http.rbac.v3.RBAC
envoy.extensions.filters.http.rbac.v3.RBACPerRoute
envoy.extensions.filters.http.router.v3.Router
envoy.extensions.filters.http.set_filter_state.v3.Config
envoy.extensions.filters.http.set_metadata.v3.Config
envoy.extensions.filters.http.stateful_session.v3.StatefulSession
envoy.extensions.filters.http.stateful_session.v3.StatefulSessionPerRoute
envoy.extensions.filters.http.upstream_codec.v3.UpstreamCodec
envoy.extensions.filters.listener.http_inspector.v3.HttpInspector
envoy.extensions.filters.listener.local_ratelimit.v3.LocalRateLimit
envoy.extensions.filters.listener.original_dst.v3.OriginalDst
envoy.extensions.filters.listener.proxy_protocol.v3.ProxyProtocol
envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector
envoy.extensions.filters.network.connection_limit.v3.ConnectionLimit
envoy.extensions.filters.network.direct_response.v3.Config
envoy.extensions.filters.network.echo.v3.Echo
envoy.extensions.filters.network.ext_authz.v3.ExtAuthz
envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
envoy.extensions.filters.network.local_ratelimit.v3.LocalRateLimit
envoy.extensions.filters.network.mongo_proxy.v3.MongoProxy
envoy.extensions.filters.network.ratelimit.v3.RateLimit
envoy.extensions.filters.network.rbac.v3.RBAC
envoy.extensions.filters.network.redis_proxy.v3.RedisProxy
envoy.extensions.filters.network.redis_proxy.v3.RedisProtocolOptions
envoy.extensions.filters.network.set_filter_state.v3.Config
envoy.extensions.filters.network.sni_cluster.v3.SniCluster
envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy
envoy.extensions.filters.network.zookeeper_proxy.v3.ZooKeeperProxy
envoy.extensions.formatter.cel.v3.Cel
envoy.extensions.formatter.metadata.v3.Metadata
envoy.extensions.formatter.req_without_query.v3.ReqWithoutQuery
envoy.extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation
envoy.extensions.http.header_formatters.preserve_case.v3.PreserveCaseFormatterConfig
envoy.extensions.http.original_ip_detection.custom_header.v3.CustomHeaderConfig
envoy.extensions.http.original_ip_detection.xff.v3.XffConfig
envoy.extensions.http.stateful_session.cookie.v3.CookieBasedSessionState
envoy.extensions.http.stateful_session.header.v3.HeaderBasedSessionState
envoy.extensions.internal_redirect.allow_listed_routes.v3.AllowListedRoutesConfig
envoy.extensions.internal_redirect.previous_routes.v3.PreviousRoutesConfig
envoy.extensions.internal_redirect.safe_cross_scheme.v3.SafeCrossSchemeConfig
envoy.extensions.load_balancing_policies.client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin
envoy.extensions.load_balancing_policies.cluster_provided.v3.ClusterProvided
envoy.extensions.load_balancing_policies.least_request.v3.LeastRequest
envoy.extensions.load_balancing_policies.maglev.v3.Maglev
envoy.extensions.load_balancing_policies.override_host.v3.OverrideHost
envoy.extensions.load_balancing_policies.random.v3.Random
envoy.extensions.load_balancing_policies.ring_hash.v3.RingHash
envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin
envoy.extensions.load_balancing_policies.subset.v3.Subset
envoy.extensions.load_balancing_policies.wrr_locality.v3.WrrLocality
envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig
envoy.extensions.network.dns_resolver.getaddrinfo.v3.GetAddrInfoDnsResolverConfig
envoy.extensions.path.match.uri_template.v3.UriTemplateMatchConfig
envoy.extensions.path.rewrite.uri_template.v3.UriTemplateRewriteConfig
envoy.extensions.request_id.uuid.v3.UuidRequestIdConfig
envoy.extensions.retry.host.omit_canary_hosts.v3.OmitCanaryHostsPredicate
envoy.extensions.retry.host.omit_host_metadata.v3.OmitHostMetadataConfig
envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate
envoy.extensions.retry.priority.previous_priorities.v3.PreviousPrioritiesConfig
envoy.extensions.transport_sockets.internal_upstream.v3.InternalUpstreamTransport
envoy.extensions.transport_sockets.proxy_protocol.v3.ProxyProtocolUpstreamTransport
envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer
envoy.extensions.transport_sockets.starttls.v3.StartTlsConfig
envoy.extensions.transport_sockets.starttls.v3.UpstreamStartTlsConfig
envoy.extensions.transport_sockets.tcp_stats.v3.Config
envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext
envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
envoy.extensions.upstreams.http.generic.v3.GenericConnectionPoolProto
envoy.extensions.upstreams.http.v3.HttpProtocolOptions
envoy.extensions.upstreams.tcp.generic.v3.GenericConnectionPoolProto
envoy.extensions.upstreams.tcp.v3.TcpProtocolOptions
`)

func sortedTypes(text string) []string { return slices.Sorted(strings.FieldsSeq(text)) }
