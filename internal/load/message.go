package load

import (
	"fmt"
	"hash/maphash"
	"sync"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec that the others use
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"

	"weft/internal/xds"
)

// message is one response as every proxy that gets the same bytes reads it: it is decoded once.
type message struct {
	typ   xds.Type
	size  int
	names []string
	// asks are the names that an Envoy asks for when it gets this, by type.
	asks map[xds.Type][]string
	// endpoints are the addresses of each assignment.
	endpoints map[string][]string
	ack       encoded
}

// encoded is a message in its bytes.
type encoded []byte

// reader decodes responses, each distinct one once.
type reader struct {
	encoding.CodecV2 // protobuf, for whatever is not ours
	seed             maphash.Seed

	mu    sync.Mutex
	known map[uint64]*message
	// home is the assignment in which an address was seen.
	home map[string]string
}

// maxKnown bounds the memory of responses that one proxy alone gets.
const maxKnown = 4096

func newReader() *reader {
	return &reader{
		CodecV2: encoding.GetCodecV2("proto"), seed: maphash.MakeSeed(),
		known: map[uint64]*message{}, home: map[string]string{},
	}
}

// Marshal implements encoding.CodecV2.
func (r *reader) Marshal(v any) (mem.BufferSlice, error) {
	if wire, ok := v.(encoded); ok {
		return mem.BufferSlice{mem.SliceBuffer(wire)}, nil
	}
	return r.CodecV2.Marshal(v)
}

// Unmarshal implements encoding.CodecV2.
func (r *reader) Unmarshal(data mem.BufferSlice, v any) error {
	into, ok := v.(**message)
	if !ok {
		return r.CodecV2.Unmarshal(data, v)
	}
	var sum maphash.Hash
	sum.SetSeed(r.seed)
	for _, buffer := range data {
		_, _ = sum.Write(buffer.ReadOnlyData())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if *into = r.known[sum.Sum64()]; *into != nil {
		return nil
	}
	m, err := decode(data.Materialize())
	if err != nil {
		return err
	}
	if len(r.known) >= maxKnown {
		clear(r.known)
	}
	r.known[sum.Sum64()] = m
	for name, addresses := range m.endpoints {
		for _, address := range addresses {
			r.home[address] = name
		}
	}
	*into = m
	return nil
}

// assignment answers where an address was seen.
func (r *reader) assignment(address string) (string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	name, ok := r.home[address]
	return name, ok
}

func decode(wire []byte) (*message, error) {
	var response discovery.DeltaDiscoveryResponse
	if err := proto.Unmarshal(wire, &response); err != nil {
		return nil, fmt.Errorf("decoding a response: %w", err)
	}
	typ, ok := xds.TypeOf(response.TypeUrl)
	if !ok {
		return nil, fmt.Errorf("a response of type %q", response.TypeUrl)
	}
	m := &message{typ: typ, size: len(wire), asks: map[xds.Type][]string{}, endpoints: map[string][]string{}}
	for _, resource := range response.Resources {
		m.names = append(m.names, resource.Name)
		if resource.Resource == nil {
			continue
		}
		body, err := resource.Resource.UnmarshalNew()
		if err != nil {
			return nil, fmt.Errorf("decoding %s %s: %w", typ, resource.Name, err)
		}
		if err := m.read(body); err != nil {
			return nil, fmt.Errorf("reading %s %s: %w", typ, resource.Name, err)
		}
	}
	ack, err := proto.Marshal(&discovery.DeltaDiscoveryRequest{TypeUrl: response.TypeUrl, ResponseNonce: response.Nonce})
	m.ack = ack
	return m, err
}

// read finds everything in a resource that an Envoy would ask for over ADS.
func (m *message) read(body proto.Message) error {
	if assignment, ok := body.(*endpointv3.ClusterLoadAssignment); ok {
		m.endpoints[assignment.ClusterName] = addresses(assignment)
		return nil
	}
	return protorange.Range(body.ProtoReflect(), func(path protopath.Values) error {
		last := path.Index(-1)
		value, ok := last.Value.Interface().(protoreflect.Message)
		if !ok {
			return nil
		}
		switch found := value.Interface().(type) {
		case *clusterv3.Cluster:
			if eds := found.EdsClusterConfig; eds != nil {
				m.ask(xds.Endpoint, edsName(found))
			}
		case *hcmv3.Rds:
			m.ask(xds.Route, found.RouteConfigName)
		case *tlsv3.SdsSecretConfig:
			if found.SdsConfig.GetAds() != nil {
				m.ask(xds.Secret, found.Name)
			}
		case *corev3.ExtensionConfigSource:
			m.ask(xds.Extension, nameOf(path.Index(-2).Value))
		}
		return nil
	})
}

func edsName(c *clusterv3.Cluster) string {
	if name := c.EdsClusterConfig.ServiceName; name != "" {
		return name
	}
	return c.Name
}

// nameOf reads the field "name" of a filter.
func nameOf(value protoreflect.Value) string {
	filter, ok := value.Interface().(protoreflect.Message)
	if !ok {
		return ""
	}
	if named, ok := filter.Interface().(interface{ GetName() string }); ok {
		return named.GetName()
	}
	return ""
}

func (m *message) ask(t xds.Type, name string) {
	if name != "" {
		m.asks[t] = append(m.asks[t], name)
	}
}

func addresses(assignment *endpointv3.ClusterLoadAssignment) []string {
	var all []string
	for _, locality := range assignment.Endpoints {
		for _, endpoint := range locality.LbEndpoints {
			all = append(all, endpoint.GetEndpoint().GetAddress().GetSocketAddress().GetAddress())
		}
	}
	return all
}
