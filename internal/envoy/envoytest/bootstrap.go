package envoytest

import (
	"fmt"
	"strings"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	internallistenerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/bootstrap/internal_listener/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	filesinkv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/health_check/event_sinks/file/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// builder puts resources into one bootstrap. Each gets a name and an address of its own, and what Envoy can only read
// as a part of something else gets a listener or a cluster around it.
type builder struct {
	static *bootstrapv3.Bootstrap_StaticResources
	added  uint32
}

// bootstrapClusters are the clusters of the bootstrap to which resources refer: the control plane and the agent.
var bootstrapClusters = []string{"weft_xds", "weft_sds"}

func newBuilder() *builder {
	b := &builder{static: &bootstrapv3.Bootstrap_StaticResources{}}
	for _, name := range bootstrapClusters {
		b.static.Clusters = append(b.static.Clusters, &clusterv3.Cluster{
			Name:                 name,
			ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
			TypedExtensionProtocolOptions: map[string]*anypb.Any{
				"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": packed(&httpv3.HttpProtocolOptions{
					UpstreamProtocolOptions: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{
						ExplicitHttpConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
							ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{},
						}}}),
			},
		})
	}
	return b
}

func packed(m proto.Message) *anypb.Any {
	a, err := anypb.New(m)
	if err != nil {
		panic(fmt.Sprintf("envoytest: %v", err)) // a message of this package
	}
	return a
}

// bootstrap returns the bootstrap of the added resources.
func (b *builder) bootstrap() *bootstrapv3.Bootstrap {
	return &bootstrapv3.Bootstrap{
		Node:            &corev3.Node{Id: "default.test", Cluster: "test"},
		StaticResources: b.static,
		BootstrapExtensions: []*corev3.TypedExtensionConfig{{
			Name: "envoy.bootstrap.internal_listener", TypedConfig: packed(&internallistenerv3.InternalListener{}),
		}},
		DynamicResources: &bootstrapv3.Bootstrap_DynamicResources{AdsConfig: &corev3.ApiConfigSource{
			ApiType:             corev3.ApiConfigSource_DELTA_GRPC,
			TransportApiVersion: corev3.ApiVersion_V3,
			GrpcServices: []*corev3.GrpcService{{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{
				EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: bootstrapClusters[0]},
			}}},
		}},
	}
}

// add adds a resource. It fails for one of a type that it does not know.
func (b *builder) add(m proto.Message) error {
	b.added++
	name := fmt.Sprint("resource-", b.added)
	switch m := m.(type) {
	case *clusterv3.Cluster:
		m.Name = name
		for _, check := range m.HealthChecks {
			withoutFiles(check)
		}
		b.static.Clusters = append(b.static.Clusters, m)
	case *endpointv3.ClusterLoadAssignment:
		m.ClusterName = name
		b.static.Clusters = append(b.static.Clusters, &clusterv3.Cluster{
			Name: name, LoadAssignment: m,
			ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
		})
	case *listenerv3.Listener:
		b.listener(name, m)
	case *routev3.RouteConfiguration:
		m.ValidateClusters = wrapperspb.Bool(false) // they are other resources
		b.listener(name, ofRequests(m))
	case *corev3.TypedExtensionConfig:
		return b.extension(name, m)
	case *tlsv3.Secret:
		m.Name = name
		b.static.Secrets = append(b.static.Secrets, m)
	default:
		return fmt.Errorf("a %s has no place in a bootstrap", m.ProtoReflect().Descriptor().FullName())
	}
	return nil
}

// withoutFiles writes the log of a health check nowhere: the folders of the machine of a test prove nothing about those
// of a proxy's machine, and Envoy creates the file.
func withoutFiles(check *corev3.HealthCheck) {
	for _, logger := range check.EventLogger {
		logger.TypedConfig = packed(&filesinkv3.HealthCheckEventFileSink{EventLogPath: "/dev/null"})
	}
}

// listener adds a listener at addresses of its own.
func (b *builder) listener(name string, l *listenerv3.Listener) {
	l.Name = name
	for i, address := range append([]*corev3.Address{l.Address}, additional(l)...) {
		if at := address.GetSocketAddress(); at != nil {
			at.Address = fmt.Sprintf("127.%d.%d.%d", i+1, b.added>>8&0xff, b.added&0xff)
			at.PortSpecifier = &corev3.SocketAddress_PortValue{PortValue: 1000 + b.added>>16}
		}
	}
	b.static.Listeners = append(b.static.Listeners, l)
}

func additional(l *listenerv3.Listener) []*corev3.Address {
	var addresses []*corev3.Address
	for _, a := range l.AdditionalAddresses {
		addresses = append(addresses, a.Address)
	}
	return addresses
}

// extension adds an extension config, in the list of filters to which its type belongs.
func (b *builder) extension(name string, e *corev3.TypedExtensionConfig) error {
	of := strings.TrimPrefix(e.TypedConfig.TypeUrl, "type.googleapis.com/")
	switch {
	case strings.HasPrefix(of, "envoy.extensions.filters.http."),
		of == "envoy.extensions.common.matching.v3.ExtensionWithMatcher":
		filters := []*hcmv3.HttpFilter{{Name: e.Name,
			ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: e.TypedConfig}}}
		if !strings.HasSuffix(of, ".Router") {
			filters = append(filters, router())
		}
		b.listener(name, withFilters(&routev3.RouteConfiguration{}, filters))
	case strings.HasPrefix(of, "envoy.extensions.filters.network."):
		filter := &listenerv3.Filter{Name: e.Name,
			ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: e.TypedConfig}}
		l := listenerOf(filter)
		if !strings.HasSuffix(of, ".TcpProxy") && !strings.HasSuffix(of, ".HttpConnectionManager") {
			l = listenerOf(filter, &listenerv3.Filter{Name: "envoy.filters.network.tcp_proxy",
				ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: packed(&tcpproxyv3.TcpProxy{StatPrefix: "test",
					ClusterSpecifier: &tcpproxyv3.TcpProxy_Cluster{Cluster: bootstrapClusters[0]}})}})
		}
		b.listener(name, l)
	case strings.HasPrefix(of, "envoy.extensions.filters.listener."):
		l := ofRequests(&routev3.RouteConfiguration{})
		l.ListenerFilters = []*listenerv3.ListenerFilter{{Name: e.Name,
			ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: e.TypedConfig}}}
		b.listener(name, l)
	default:
		return fmt.Errorf("the extension %s has no place in a bootstrap", of)
	}
	return nil
}

func listenerOf(filters ...*listenerv3.Filter) *listenerv3.Listener {
	return &listenerv3.Listener{
		Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
			PortSpecifier: &corev3.SocketAddress_PortValue{},
		}}},
		FilterChains: []*listenerv3.FilterChain{{Filters: filters}},
	}
}

// ofRequests returns a listener of HTTP with a route.
func ofRequests(route *routev3.RouteConfiguration) *listenerv3.Listener {
	return withFilters(route, []*hcmv3.HttpFilter{router()})
}

func router() *hcmv3.HttpFilter {
	return &hcmv3.HttpFilter{Name: "envoy.filters.http.router",
		ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: packed(&routerv3.Router{})}}
}

func withFilters(route *routev3.RouteConfiguration, filters []*hcmv3.HttpFilter) *listenerv3.Listener {
	return listenerOf(&listenerv3.Filter{Name: "envoy.filters.network.http_connection_manager",
		ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: packed(&hcmv3.HttpConnectionManager{
			StatPrefix: "test", StreamIdleTimeout: durationpb.New(0),
			RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: route},
			HttpFilters:    filters,
		})}})
}
