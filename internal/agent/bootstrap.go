package agent

import (
	"cmp"
	"math"

	bootstrap "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	internallistener "github.com/envoyproxy/go-control-plane/envoy/extensions/bootstrap/internal_listener/v3"
	upstream "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"weft/internal/wire"
	"weft/kind"
)

// The clusters that a bootstrap has. Both lead to the agent; configuration names the second one wherever
// it wants the proxy's own certificate.
const (
	discoveryCluster = "weft_xds"
	secretsCluster   = "weft_sds"
)

// typeMetadata is the entry of the node's metadata that says which type the proxy is of: a ZoneIngress and a
// ZoneEgress may have the same name.
const typeMetadata = "dataplane.proxyType"

const httpOptions = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"

// internalBuffer is how many KiB wait in either direction of a connection to an internal listener. Envoy's default is
// 1 MiB.
const internalBuffer = 128

// maxFiles stands for a limit of open files that is none.
const maxFiles = 1 << 20

// bootstrap writes Envoy's bootstrap and answers its path.
func (a *agent) bootstrap(r *room, settings *wire.Settings) (string, error) {
	node := &core.Node{
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

// newBootstrap returns the bootstrap of an Envoy whose heap has a bound in bytes, 0 for none.
func newBootstrap(node *core.Node, r *room, settings *wire.Settings, memory uint64) (*bootstrap.Bootstrap, error) {
	http2, err := anypb.New(&upstream.HttpProtocolOptions{
		UpstreamProtocolOptions: &upstream.HttpProtocolOptions_ExplicitHttpConfig_{
			ExplicitHttpConfig: &upstream.HttpProtocolOptions_ExplicitHttpConfig{
				ProtocolConfig: &upstream.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{
					Http2ProtocolOptions: &core.Http2ProtocolOptions{},
				},
			},
		},
	})
	if err != nil {
		return nil, err
	}
	internal, err := anypb.New(&internallistener.InternalListener{BufferSizeKb: wrapperspb.UInt32(internalBuffer)})
	if err != nil {
		return nil, err
	}
	limits, err := overloadManager(memory)
	if err != nil {
		return nil, err
	}
	fromADS := &core.ConfigSource{
		ResourceApiVersion:    core.ApiVersion_V3,
		ConfigSourceSpecifier: &core.ConfigSource_Ads{Ads: &core.AggregatedConfigSource{}},
	}
	return &bootstrap.Bootstrap{
		Node:  node,
		Admin: &bootstrap.Admin{Address: adminAddress(r, settings)},
		DynamicResources: &bootstrap.Bootstrap_DynamicResources{
			CdsConfig: fromADS,
			LdsConfig: fromADS,
			AdsConfig: &core.ApiConfigSource{
				ApiType:             core.ApiConfigSource_DELTA_GRPC,
				TransportApiVersion: core.ApiVersion_V3,
				GrpcServices: []*core.GrpcService{{TargetSpecifier: &core.GrpcService_EnvoyGrpc_{
					EnvoyGrpc: &core.GrpcService_EnvoyGrpc{ClusterName: discoveryCluster},
				}}},
			},
		},
		OverloadManager: limits,
		LayeredRuntime:  cancelledRequests(),
		// TCP inbounds, and egress chains of TCP external services, have an internal listener behind their decision.
		BootstrapExtensions: []*core.TypedExtensionConfig{{
			Name: "envoy.bootstrap.internal_listener", TypedConfig: internal,
		}},
		StaticResources: &bootstrap.Bootstrap_StaticResources{Clusters: []*cluster.Cluster{
			agentCluster(discoveryCluster, r, http2),
			agentCluster(secretsCluster, r, http2),
		}},
	}, nil
}

// cancelledRequests is the runtime by which Envoy handles requests that clients cancel. When a client's deadlines pass in
// a stall, its proxy cancels most requests of its connections. By default Envoy takes that for the HTTP/2 rapid reset
// attack and closes the connection, which fails all other requests on it. Instead, Envoy forwards one request of a
// connection at a time, so that those that are cancelled meanwhile reach no application.
func cancelledRequests() *bootstrap.LayeredRuntime {
	return &bootstrap.LayeredRuntime{Layers: []*bootstrap.RuntimeLayer{{
		Name: "weft",
		LayerSpecifier: &bootstrap.RuntimeLayer_StaticLayer{StaticLayer: &structpb.Struct{Fields: map[string]*structpb.Value{
			"http.max_requests_per_io_cycle":              structpb.NewNumberValue(1),
			"overload.premature_reset_total_stream_count": structpb.NewNumberValue(math.MaxUint32),
		}}},
	}}}
}

func agentCluster(name string, r *room, http2 *anypb.Any) *cluster.Cluster {
	return &cluster.Cluster{
		Name:                          name,
		ConnectTimeout:                durationpb.New(reconnect.MaxDelay),
		TypedExtensionProtocolOptions: map[string]*anypb.Any{httpOptions: http2},
		LoadAssignment: &endpoint.ClusterLoadAssignment{
			ClusterName: name,
			Endpoints: []*endpoint.LocalityLbEndpoints{{LbEndpoints: []*endpoint.LbEndpoint{{
				HostIdentifier: &endpoint.LbEndpoint_Endpoint{Endpoint: &endpoint.Endpoint{Address: pipe(r.discovery())}},
			}}}},
		},
	}
}

// adminAddress is a socket that only this user reaches, or the port that the Dataplane names, on loopback.
func adminAddress(r *room, settings *wire.Settings) *core.Address {
	if settings.AdminPort == 0 {
		return pipe(r.admin())
	}
	return &core.Address{Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{
		Address:       loopback,
		PortSpecifier: &core.SocketAddress_PortValue{PortValue: settings.AdminPort},
	}}}
}

const loopback = "127.0.0.1"

func pipe(path string) *core.Address {
	return &core.Address{Address: &core.Address_Pipe{Pipe: &core.Pipe{Path: path}}}
}
