package envoy

import (
	"testing"

	bootstrap "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusters "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoints "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listeners "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routes "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	internallistener "github.com/envoyproxy/go-control-plane/envoy/extensions/bootstrap/internal_listener/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tls "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	upstreams "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"weft/internal/xds"
)

// visit shows every message within one to f, the innermost first, those in an Any too; what f changes in
// them is kept.
func visit(t *testing.T, m proto.Message, f func(proto.Message)) {
	t.Helper()
	if packed, ok := m.(*anypb.Any); ok {
		inner, err := packed.UnmarshalNew()
		if err != nil {
			t.Fatal(err)
		}
		visit(t, inner, f)
		packed.Value = pack(inner).Value
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

// static writes resources into a bootstrap, in which every reference that they can resolve among
// themselves is resolved, so that Envoy reads all of them at once.
func static(t *testing.T, resources []*xds.Resource) *bootstrap.Bootstrap {
	t.Helper()
	s := &resolver{
		routes:      map[string]*routes.RouteConfiguration{},
		extensions:  map[string]*anypb.Any{},
		secrets:     map[string]bool{},
		assignments: map[string]*endpoints.ClusterLoadAssignment{},
	}
	out := &bootstrap.Bootstrap_StaticResources{Clusters: []*clusters.Cluster{controlPlane("ads"), controlPlane(identityCluster)}}
	for _, r := range resources {
		switch m := message(t, r).(type) {
		case *clusters.Cluster:
			out.Clusters = append(out.Clusters, m)
		case *listeners.Listener:
			out.Listeners = append(out.Listeners, m)
		case *tls.Secret:
			out.Secrets = append(out.Secrets, m)
			s.secrets[m.Name] = true
		case *routes.RouteConfiguration:
			s.routes[m.Name] = m
		case *core.TypedExtensionConfig:
			s.extensions[m.Name] = m.TypedConfig
		case *endpoints.ClusterLoadAssignment:
			s.assignments[m.ClusterName] = m
		}
	}
	visit(t, out, s.resolve)
	return withAgentResolver(t, &bootstrap.Bootstrap{
		Node:            &core.Node{Id: "default.test", Cluster: "test"},
		StaticResources: out,
		BootstrapExtensions: []*core.TypedExtensionConfig{{
			Name: "envoy.bootstrap.internal_listener", TypedConfig: pack(&internallistener.InternalListener{}),
		}},
		DynamicResources: &bootstrap.Bootstrap_DynamicResources{AdsConfig: &core.ApiConfigSource{
			ApiType:             core.ApiConfigSource_DELTA_GRPC,
			TransportApiVersion: core.ApiVersion_V3,
			GrpcServices: []*core.GrpcService{{TargetSpecifier: &core.GrpcService_EnvoyGrpc_{
				EnvoyGrpc: &core.GrpcService_EnvoyGrpc{ClusterName: "ads"},
			}}},
		}},
	})
}

type resolver struct {
	routes      map[string]*routes.RouteConfiguration
	extensions  map[string]*anypb.Any
	secrets     map[string]bool
	assignments map[string]*endpoints.ClusterLoadAssignment
}

func (s *resolver) resolve(m proto.Message) {
	switch m := m.(type) {
	case *hcm.HttpConnectionManager:
		if route := s.routes[m.GetRds().GetRouteConfigName()]; route != nil {
			m.RouteSpecifier = &hcm.HttpConnectionManager_RouteConfig{RouteConfig: route}
		}
	case *hcm.HttpFilter:
		if config := s.extensions[m.Name]; config != nil {
			m.ConfigType = &hcm.HttpFilter_TypedConfig{TypedConfig: config}
		}
	case *listeners.Filter:
		if config := s.extensions[m.Name]; config != nil {
			m.ConfigType = &listeners.Filter_TypedConfig{TypedConfig: config}
		}
	case *tls.SdsSecretConfig:
		if s.secrets[m.Name] {
			m.SdsConfig = nil
		}
	case *clusters.Cluster:
		if assignment := s.assignments[m.Name]; assignment != nil {
			m.ClusterDiscoveryType = &clusters.Cluster_Type{Type: clusters.Cluster_STATIC}
			m.EdsClusterConfig, m.LoadAssignment = nil, assignment
		}
	}
}

// controlPlane is a cluster that nobody answers.
func controlPlane(name string) *clusters.Cluster {
	return &clusters.Cluster{
		Name:                          name,
		ClusterDiscoveryType:          &clusters.Cluster_Type{Type: clusters.Cluster_STATIC},
		TypedExtensionProtocolOptions: packedOptions(&upstreams.HttpProtocolOptions{UpstreamProtocolOptions: httpVersion(false, &core.Http2ProtocolOptions{})}),
		LoadAssignment: &endpoints.ClusterLoadAssignment{
			ClusterName: name,
			Endpoints: []*endpoints.LocalityLbEndpoints{{
				LbEndpoints: []*endpoints.LbEndpoint{lbEndpoint("127.0.0.1", 1)},
			}},
		},
	}
}
