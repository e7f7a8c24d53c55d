package scenario

import (
	"fmt"
	"hash/maphash"
	"strings"
	"sync"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec that the others use
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"

	_ "weft/internal/envoy" // has the types of the extensions in a configuration
	"weft/internal/xds"
)

// message is one response. Proxies that receive the same bytes share it.
type message struct {
	typ     xds.Type
	size    int
	parts   []*part
	removed []uint32 // IDs of names
	ack     encoded
}

// part is one resource of a response. Every response with the same resource shares it: it is decoded once.
type part struct {
	name, version string
	id            uint32 // of the name: small, and unique in its type
	// stated is the entry of initial_resource_versions with which a reconnecting proxy states that it has this.
	stated encoded
	// subscriptions are the names that an Envoy subscribes to when it receives this, by type.
	subscriptions map[xds.Type][]string
	// optional are the names of those extension configs for which an Envoy does not wait, since it has a default.
	optional []string
	// endpoints are the addresses of an assignment.
	endpoints []string
}

// encoded is an encoded message.
type encoded []byte

// reader decodes responses, each distinct resource once.
type reader struct {
	encoding.CodecV2 // protobuf, for other messages
	seed             maphash.Seed

	mu    sync.Mutex
	known map[uint64]*message
	parts map[partKey]*part
	ids   [6]map[string]uint32 // of names, by type
	seen  [6]int               // different resources of destinations, by type
	// assignments has the assignment in which an address was seen.
	assignments map[string]string
}

// partKey identifies a resource by its type and the hash of its bytes.
type partKey struct {
	t    xds.Type
	hash uint64
}

// maxKnown bounds the memory of responses that only one proxy gets, and maxParts that of resources.
const (
	maxKnown = 4096
	maxParts = 1 << 16
)

func newReader() *reader {
	return &reader{
		CodecV2: encoding.GetCodecV2("proto"), seed: maphash.MakeSeed(),
		known: map[uint64]*message{}, parts: map[partKey]*part{}, assignments: map[string]string{},
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
	key := sum.Sum64()
	r.mu.Lock()
	*into = r.known[key]
	r.mu.Unlock()
	if *into != nil {
		return nil
	}
	m, err := r.decode(data.Materialize())
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.known) >= maxKnown {
		clear(r.known)
	}
	r.known[key], *into = m, m
	return nil
}

// assignment returns the assignment in which an address was seen.
func (r *reader) assignment(address string) (string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	name, ok := r.assignments[address]
	return name, ok
}

// decode reads a response: its own fields here, and each new resource by [reader.part].
func (r *reader) decode(wire []byte) (*message, error) {
	var rest discoveryv3.DeltaDiscoveryResponse // without the resources
	var resources [][]byte
	var others []byte
	for left := wire; len(left) > 0; {
		number, typ, n := protowire.ConsumeTag(left)
		if n < 0 {
			return nil, fmt.Errorf("decoding a response: %w", protowire.ParseError(n))
		}
		length := protowire.ConsumeFieldValue(number, typ, left[n:])
		if length < 0 {
			return nil, fmt.Errorf("decoding a response: %w", protowire.ParseError(length))
		}
		if number == resourcesField {
			resource, _ := protowire.ConsumeBytes(left[n:])
			resources = append(resources, resource)
		} else {
			others = append(others, left[:n+length]...)
		}
		left = left[n+length:]
	}
	if err := proto.Unmarshal(others, &rest); err != nil {
		return nil, fmt.Errorf("decoding a response: %w", err)
	}
	typ, ok := xds.TypeOf(rest.TypeUrl)
	if !ok {
		return nil, fmt.Errorf("a response of type %q", rest.TypeUrl)
	}
	m := &message{typ: typ, size: len(wire)}
	for _, name := range rest.RemovedResources {
		m.removed = append(m.removed, r.id(typ, name))
	}
	for _, resource := range resources {
		p, err := r.part(typ, resource)
		if err != nil {
			return nil, fmt.Errorf("decoding a %s: %w", typ, err)
		}
		m.parts = append(m.parts, p)
	}
	ack, err := proto.Marshal(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: rest.TypeUrl, ResponseNonce: rest.Nonce})
	m.ack = ack
	return m, err
}

// resourcesField is the number of DeltaDiscoveryResponse.resources.
const resourcesField = 2

// id returns the ID of a name, and assigns one to a new name.
func (r *reader) id(t xds.Type, name string) uint32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ids[t] == nil {
		r.ids[t] = map[string]uint32{}
	}
	id, ok := r.ids[t][name]
	if !ok {
		id = uint32(len(r.ids[t]))
		r.ids[t][name] = id
	}
	return id
}

// destinationPrefix begins the names of the resources of destinations, which proxy groups share.
const destinationPrefix = "kri_"

// distinct returns the number of different resources of destinations that were received, of a type. It is exact below
// [maxParts].
func (r *reader) distinct(t xds.Type) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen[t]
}

// names returns how many names of each type have an ID.
func (r *reader) names() (n [6]int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for t, ids := range r.ids {
		n[t] = len(ids)
	}
	return n
}

// part returns one resource, which is decoded when it is seen for the first time.
func (r *reader) part(t xds.Type, wire []byte) (*part, error) {
	key := partKey{t, maphash.Bytes(r.seed, wire)}
	r.mu.Lock()
	p := r.parts[key]
	r.mu.Unlock()
	if p != nil {
		return p, nil
	}
	var resource discoveryv3.Resource
	if err := proto.Unmarshal(wire, &resource); err != nil {
		return nil, err
	}
	p = &part{name: resource.Name, version: resource.Version, id: r.id(t, resource.Name),
		subscriptions: map[xds.Type][]string{}}
	p.stated = statement(p.name, p.version)
	if resource.Resource != nil {
		body, err := resource.Resource.UnmarshalNew()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", resource.Name, err)
		}
		if err := p.read(body); err != nil {
			return nil, fmt.Errorf("%s: %w", resource.Name, err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.parts) >= maxParts {
		clear(r.parts)
	}
	isNew := r.parts[key] == nil // else another goroutine has decoded it meanwhile
	if isNew && strings.HasPrefix(p.name, destinationPrefix) {
		r.seen[t]++
	}
	r.parts[key] = p
	for _, address := range p.endpoints {
		r.assignments[address] = p.name
	}
	return p, nil
}

// read finds the names in a resource that an Envoy would subscribe to over ADS.
func (p *part) read(body proto.Message) error {
	if assignment, ok := body.(*endpointv3.ClusterLoadAssignment); ok {
		p.endpoints = addresses(assignment)
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
				p.addSubscription(xds.Endpoint, edsName(found))
			}
		case *hcmv3.Rds:
			p.addSubscription(xds.Route, found.RouteConfigName)
		case *tlsv3.SdsSecretConfig:
			if found.SdsConfig.GetAds() != nil {
				p.addSubscription(xds.Secret, found.Name)
			}
		case *corev3.ExtensionConfigSource:
			name := nameOf(path.Index(-2).Value)
			p.addSubscription(xds.Extension, name)
			if found.ApplyDefaultConfigWithoutWarming {
				p.optional = append(p.optional, name)
			}
		}
		return nil
	})
}

// Fields of DeltaDiscoveryRequest, and of an entry of its map.
const (
	nodeField            = 1
	nodeIDField          = 1 // of the node
	typeURLField         = 2
	subscribeField       = 3
	initialVersionsField = 5

	mapKeyField   = 1
	mapValueField = 2
)

// statement encodes the entry of initial_resource_versions of a resource.
func statement(name, version string) encoded {
	var entry []byte
	entry = appendField(entry, mapKeyField, name)
	entry = appendField(entry, mapValueField, version)
	return appendField(nil, initialVersionsField, string(entry))
}

func appendField(wire []byte, field protowire.Number, value string) []byte {
	return protowire.AppendString(protowire.AppendTag(wire, field, protowire.BytesType), value)
}

func edsName(c *clusterv3.Cluster) string {
	if name := c.EdsClusterConfig.ServiceName; name != "" {
		return name
	}
	return c.Name
}

// nameOf returns the field "name" of a filter.
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

func (p *part) addSubscription(t xds.Type, name string) {
	if name != "" {
		p.subscriptions[t] = append(p.subscriptions[t], name)
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
