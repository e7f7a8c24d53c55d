package xds

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// Type is a type of resource. The values are in the order in which changes are sent. Extension configs precede routes,
// since a route enables filters that are extension configs.
type Type uint8

// The types of resources that weft serves.
const (
	Cluster Type = iota
	Endpoint
	Listener
	Extension
	Route
	Secret
	numTypes
)

var typeURLs = [numTypes]string{
	Cluster:   "type.googleapis.com/envoy.config.cluster.v3.Cluster",
	Endpoint:  "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
	Listener:  "type.googleapis.com/envoy.config.listener.v3.Listener",
	Route:     "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
	Extension: "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig",
	Secret:    "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
}

var typeNames = [numTypes]string{"cluster", "endpoint", "listener", "extension", "route", "secret"}

// URL returns the type URL.
func (t Type) URL() string { return typeURLs[t] }

// String returns the short name of the type.
func (t Type) String() string { return typeNames[t] }

// TypeOf returns the type with a type URL.
func TypeOf(url string) (Type, bool) {
	for t, u := range typeURLs {
		if u == url {
			return Type(t), true
		}
	}
	return 0, false
}

// Resource is one encoded resource. It is immutable, shared by every resource set and stream that has it, and encoded
// once.
type Resource struct {
	Type Type
	Name string
	// Version is a hash of the encoded message: equal across restarts and instances.
	Version string
	// Wire is an encoded envoy.service.discovery.v3.Resource: name, version and message.
	Wire []byte
}

// NewResource encodes a message.
func NewResource(t Type, name string, message proto.Message) *Resource {
	buffer := bodies.Get().(*[]byte)
	defer bodies.Put(buffer)
	body, err := proto.MarshalOptions{Deterministic: true}.MarshalAppend((*buffer)[:0], message)
	if err != nil {
		panic(fmt.Sprintf("xds: encoding %s %q: %v", t, name, err)) // only messages that weft built are encoded
	}
	*buffer = body
	sum := sha256.Sum256(body)
	version := hex.EncodeToString(sum[:8])
	return &Resource{Type: t, Name: name, Version: version, Wire: wrap(t, name, version, body)}
}

// bodies are buffers for messages, which are encoded before their version is known.
var bodies = sync.Pool{New: func() any { return &[]byte{} }}

// Fields of envoy.service.discovery.v3.Resource and of google.protobuf.Any.
const (
	resourceVersionField = 1
	resourceBodyField    = 2
	resourceNameField    = 3

	anyTypeURLField = 1
	anyValueField   = 2
)

// Exclusion returns an entry for a resource set that has no resource: the clients of the set do not get the resource of
// that type and name from any other set. It lets the set of one client leave out what it shares with others. The type
// must be one that clients request with "*".
func Exclusion(t Type, name string) *Resource {
	return &Resource{Type: t, Name: name, Version: excluded}
}

// excluded is the version of an exclusion. No hash has this length.
const excluded = "excluded"

// IsExclusion reports whether it is an [Exclusion].
func (r *Resource) IsExclusion() bool { return r.Version == excluded }

// wrap returns an encoded envoy.service.discovery.v3.Resource.
func wrap(t Type, name, version string, body []byte) []byte {
	anySize := sizeOfBytes(anyTypeURLField, len(t.URL())) + sizeOfBytes(anyValueField, len(body))
	wire := make([]byte, 0, sizeOfBytes(resourceVersionField, len(version))+sizeOfBytes(resourceBodyField, anySize)+
		sizeOfBytes(resourceNameField, len(name)))
	wire = appendString(wire, resourceVersionField, version)
	wire = protowire.AppendTag(wire, resourceBodyField, protowire.BytesType)
	wire = protowire.AppendVarint(wire, uint64(anySize))
	wire = appendString(wire, anyTypeURLField, t.URL())
	wire = protowire.AppendTag(wire, anyValueField, protowire.BytesType)
	wire = protowire.AppendBytes(wire, body)
	return appendString(wire, resourceNameField, name)
}

// sizeOfBytes returns the size of an encoded field of n bytes.
func sizeOfBytes(field protowire.Number, n int) int {
	return protowire.SizeTag(field) + protowire.SizeBytes(n)
}

// Decode returns the resource with an encoded form, as [Resource.Wire] has it. It returns an error for anything else.
func Decode(wire []byte) (*Resource, error) {
	var outer discoveryv3.Resource
	if err := proto.Unmarshal(wire, &outer); err != nil {
		return nil, err
	}
	t, ok := TypeOf(outer.Resource.GetTypeUrl())
	if !ok {
		return nil, fmt.Errorf("%s has the type %q, which weft does not serve", outer.Name,
			outer.Resource.GetTypeUrl())
	}
	return &Resource{Type: t, Name: outer.Name, Version: outer.Version, Wire: wire}, nil
}

// Message decodes the resource, for readers of the configuration.
func (r *Resource) Message() (proto.Message, error) {
	var outer discoveryv3.Resource
	if err := proto.Unmarshal(r.Wire, &outer); err != nil {
		return nil, err
	}
	return outer.Resource.UnmarshalNew()
}
