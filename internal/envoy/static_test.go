package envoy

import (
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	internallistenerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/bootstrap/internal_listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"weft/internal/xds"
)

// visit calls f for every message within m, the innermost first and including those in an Any. Changes by f are kept.
func visit(t *testing.T, m proto.Message, f func(proto.Message)) {
	t.Helper()
	if packed, ok := m.(*anypb.Any); ok {
		if packed.TypeUrl == "" {
			return
		}
		inner, err := packed.UnmarshalNew()
		if err != nil {
			t.Fatal(err)
		}
		visit(t, inner, f)
		packed.Value = toAny(inner).Value
		return
	}
	m.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.IsMap():
			value.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				if field.MapValue().Message() != nil {
					visit(t, v.Message().Interface(), f)
				}
				return true
			})
		case field.Message() == nil:
		case field.IsList():
			for i := range value.List().Len() {
				visit(t, value.List().Get(i).Message().Interface(), f)
			}
		default:
			visit(t, value.Message().Interface(), f)
		}
		return true
	})
	f(m)
}

// static returns a bootstrap with the resources, in which references among them are resolved, so that Envoy reads all
// of them at once.
func static(t *testing.T, resources []*xds.Resource) *bootstrapv3.Bootstrap {
	t.Helper()
	s := &resolver{
		routes:      map[string]*routev3.RouteConfiguration{},
		extensions:  map[string]*anypb.Any{},
		secrets:     map[string]bool{},
		assignments: map[string]*endpointv3.ClusterLoadAssignment{},
	}
	out := &bootstrapv3.Bootstrap_StaticResources{Clusters: []*clusterv3.Cluster{controlPlane("ads"),
		controlPlane(identityCluster)}}
	for _, r := range resources {
		switch m := message(t, r).(type) {
		case *clusterv3.Cluster:
			out.Clusters = append(out.Clusters, m)
		case *listenerv3.Listener:
			out.Listeners = append(out.Listeners, m)
		case *tlsv3.Secret:
			out.Secrets = append(out.Secrets, m)
			s.secrets[m.Name] = true
		case *routev3.RouteConfiguration:
			s.routes[m.Name] = m
		case *corev3.TypedExtensionConfig:
			s.extensions[m.Name] = m.TypedConfig
		case *endpointv3.ClusterLoadAssignment:
			s.assignments[m.ClusterName] = m
		}
	}
	visit(t, out, s.resolve)
	return withAgentResolver(t, &bootstrapv3.Bootstrap{
		Node:            &corev3.Node{Id: "default.test", Cluster: "test"},
		StaticResources: out,
		BootstrapExtensions: []*corev3.TypedExtensionConfig{{
			Name: "envoy.bootstrap.internal_listener", TypedConfig: toAny(&internallistenerv3.InternalListener{}),
		}},
		DynamicResources: &bootstrapv3.Bootstrap_DynamicResources{AdsConfig: &corev3.ApiConfigSource{
			ApiType:             corev3.ApiConfigSource_DELTA_GRPC,
			TransportApiVersion: corev3.ApiVersion_V3,
			GrpcServices: []*corev3.GrpcService{{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{
				EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: "ads"},
			}}},
		}},
	})
}

type resolver struct {
	routes      map[string]*routev3.RouteConfiguration
	extensions  map[string]*anypb.Any
	secrets     map[string]bool
	assignments map[string]*endpointv3.ClusterLoadAssignment
}

func (s *resolver) resolve(m proto.Message) {
	switch m := m.(type) {
	case *hcmv3.HttpConnectionManager:
		if route := s.routes[m.GetRds().GetRouteConfigName()]; route != nil {
			m.RouteSpecifier = &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: route}
		}
	case *hcmv3.HttpFilter:
		if config := s.extensions[m.Name]; config != nil {
			m.ConfigType = &hcmv3.HttpFilter_TypedConfig{TypedConfig: config}
		}
	case *listenerv3.Filter:
		if config := s.extensions[m.Name]; config != nil {
			m.ConfigType = &listenerv3.Filter_TypedConfig{TypedConfig: config}
		}
	case *tlsv3.SdsSecretConfig:
		if s.secrets[m.Name] {
			m.SdsConfig = nil
		}
	case *clusterv3.Cluster:
		if assignment := s.assignments[m.Name]; assignment != nil {
			m.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}
			m.EdsClusterConfig, m.LoadAssignment = nil, assignment
		}
	}
}

// controlPlane returns a cluster without a responding server.
func controlPlane(name string) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:                 name,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
		TypedExtensionProtocolOptions: packedOptions(
			&httpv3.HttpProtocolOptions{UpstreamProtocolOptions: httpVersion(false, &corev3.Http2ProtocolOptions{})}),
		LoadAssignment: &endpointv3.ClusterLoadAssignment{
			ClusterName: name,
			Endpoints: []*endpointv3.LocalityLbEndpoints{{
				LbEndpoints: []*endpointv3.LbEndpoint{lbEndpoint("127.0.0.1", 1)},
			}},
		},
	}
}
