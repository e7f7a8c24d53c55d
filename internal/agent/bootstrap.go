package agent

import (
	"cmp"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	internallistenerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/bootstrap/internal_listener/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"weft/internal/wire"
	"weft/kind"
)

// The clusters of the bootstrap. Both are the agent; the configuration refers to the second one for the proxy's
// certificates.
const (
	discoveryCluster = "weft_xds"
	secretsCluster   = "weft_sds"
)

// typeMetadata is the key of the node's metadata with the proxy type: a ZoneIngress and a ZoneEgress may have the same
// name.
const typeMetadata = "dataplane.proxyType"

const httpOptions = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"

// internalBuffer is the buffer of a connection to an internal listener, in KiB for each direction. Envoy's default is 1
// MiB.
const internalBuffer = 128

// maxFiles bounds the connection limit if the number of open files is unlimited.
const maxFiles = 1 << 20

// bootstrap writes Envoy's bootstrap and returns its path.
func (a *agent) bootstrap(r *runtimeDir, settings *wire.Settings) (string, error) {
	node := &corev3.Node{
		Id:      a.mesh + "." + a.name,
		Cluster: kind.Workload(a.name, a.dataplane.Labels, &a.dataplane.Spec),
		Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{
			typeMetadata:      structpb.NewStringValue(string(a.ProxyType)),
			wire.AgentVersion: structpb.NewStringValue(a.Version),
		}},
	}
	b, err := newBootstrap(node, r, settings, cmp.Or(a.EnvoyMaxMemory, defaultMemory()))
	if err != nil {
		return "", err
	}
	if a.externalDNS.IsValid() {
		if b.TypedDnsResolverConfig, err = externalResolver(a.externalDNS); err != nil {
			return "", err
		}
	}
	text, err := protojson.MarshalOptions{Multiline: true}.Marshal(b)
	if err != nil {
		return "", err
	}
	return r.write("bootstrap.json", text)
}

// newBootstrap returns the bootstrap of an Envoy. The memory is the bound of its heap in bytes, 0 for none.
func newBootstrap(node *corev3.Node, r *runtimeDir, settings *wire.Settings, memory uint64) (*bootstrapv3.Bootstrap,
	error) {
	http2, err := anypb.New(&httpv3.HttpProtocolOptions{
		UpstreamProtocolOptions: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{
			ExplicitHttpConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
				ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{
					Http2ProtocolOptions: &corev3.Http2ProtocolOptions{},
				},
			},
		},
	})
	if err != nil {
		return nil, err
	}
	internal, err := anypb.New(&internallistenerv3.InternalListener{BufferSizeKb: wrapperspb.UInt32(internalBuffer)})
	if err != nil {
		return nil, err
	}
	limits, err := overloadManager(memory)
	if err != nil {
		return nil, err
	}
	fromADS := &corev3.ConfigSource{
		ResourceApiVersion:    corev3.ApiVersion_V3,
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
	}
	return &bootstrapv3.Bootstrap{
		Node:  node,
		Admin: &bootstrapv3.Admin{Address: adminAddress(r, settings)},
		DynamicResources: &bootstrapv3.Bootstrap_DynamicResources{
			CdsConfig: fromADS,
			LdsConfig: fromADS,
			AdsConfig: &corev3.ApiConfigSource{
				ApiType:             corev3.ApiConfigSource_DELTA_GRPC,
				TransportApiVersion: corev3.ApiVersion_V3,
				GrpcServices: []*corev3.GrpcService{{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{
					EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: discoveryCluster},
				}}},
			},
		},
		OverloadManager: limits,
		LayeredRuntime:  RuntimeFlags(),
		MemoryAllocatorManager: &bootstrapv3.MemoryAllocatorManager{
			BytesToRelease: releasedBytes, MemoryReleaseInterval: durationpb.New(releaseInterval),
		},
		// TCP inbounds, and egress filter chains of TCP external services, continue in an internal listener.
		BootstrapExtensions: []*corev3.TypedExtensionConfig{{
			Name: "envoy.bootstrap.internal_listener", TypedConfig: internal,
		}},
		StaticResources: &bootstrapv3.Bootstrap_StaticResources{Clusters: []*clusterv3.Cluster{
			agentCluster(discoveryCluster, r, http2),
			agentCluster(secretsCluster, r, http2),
		}},
	}, nil
}

// maxRegexSize is the size of the largest regular expression that Envoy accepts, as a program of RE2. Its default of
// 100 rejects expressions of 50 characters. The control plane accepts half as much.
const maxRegexSize = 10_000

// prematureResets is the number of requests of a connection, half of them canceled within a second of their beginning,
// from which Envoy takes them for an attack (HTTP/2 rapid reset) and closes the connection, or half as many where all
// of them are canceled. Deadlines that pass during a stall cancel up to 64 requests each on a connection between
// proxies, and 256 on one of an application.
const prematureResets = 16_384

// Envoy returns releasedBytes of its free memory to the system each releaseInterval.
const (
	releasedBytes   = 8 << 20
	releaseInterval = time.Second
)

// RuntimeFlags returns the flags for requests that clients cancel, and for regular expressions.
//
// When deadlines pass during a stall, a client's proxy cancels most requests of its connections. With Envoy's default
// of 500 for [prematureResets] that fails all other requests on a connection. With these flags, Envoy forwards one
// request of a connection at a time, and drops the canceled ones before they reach the application.
func RuntimeFlags() *bootstrapv3.LayeredRuntime {
	flags := &structpb.Struct{Fields: map[string]*structpb.Value{
		"http.max_requests_per_io_cycle":              structpb.NewNumberValue(1),
		"overload.premature_reset_total_stream_count": structpb.NewNumberValue(prematureResets),
		// Up to the next second: only requests that last less than one are counted.
		"overload.premature_reset_min_stream_lifetime_seconds": structpb.NewNumberValue(0),
		"re2.max_program_size.error_level":                     structpb.NewNumberValue(maxRegexSize),
	}}
	return &bootstrapv3.LayeredRuntime{Layers: []*bootstrapv3.RuntimeLayer{{
		Name:           "weft",
		LayerSpecifier: &bootstrapv3.RuntimeLayer_StaticLayer{StaticLayer: flags},
	}}}
}

func agentCluster(name string, r *runtimeDir, http2 *anypb.Any) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:                          name,
		ConnectTimeout:                durationpb.New(reconnect.MaxDelay),
		TypedExtensionProtocolOptions: map[string]*anypb.Any{httpOptions: http2},
		LoadAssignment: &endpointv3.ClusterLoadAssignment{
			ClusterName: name,
			Endpoints: []*endpointv3.LocalityLbEndpoints{{LbEndpoints: []*endpointv3.LbEndpoint{{
				HostIdentifier: &endpointv3.LbEndpoint_Endpoint{
					Endpoint: &endpointv3.Endpoint{Address: pipe(r.discovery())}},
			}}}},
		},
	}
}

// adminAddress returns a socket that only this user can open, or the Dataplane's port on loopback.
func adminAddress(r *runtimeDir, settings *wire.Settings) *corev3.Address {
	if settings.AdminPort == 0 {
		return pipe(r.admin())
	}
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address:       loopback,
		PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: settings.AdminPort},
	}}}
}

const loopback = "127.0.0.1"

func pipe(path string) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: path}}}
}
