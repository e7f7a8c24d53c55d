// Package envoy writes what the mesh means, in the nouns of package graph, as Envoy's configuration.
//
// Its functions are pure: the same noun gives the same bytes, whatever ran before and wherever, so that a
// resource's version is a function of what it says. They know neither the table nor a store, and they
// never fail: a noun that they get has been validated.
//
// Two rules shape everything here. What changes often is never inside a filter chain, because a changed
// chain drains the connections of the old one: permissions come as extension configs, routes as route
// configurations, certificates as secrets, endpoints as assignments. And the fields of a listener outside
// its chains are constant for its life, because a change of one replaces the listener.
//
// Resources that the proxies of a class share are named after the mesh's object ("kri_msvc_..."); those
// that are one proxy's own begin with "self_", the proxies' common secrets with "system_". What every
// default is and why is written in docs/defaults.md.
package envoy

import (
	"fmt"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// pack encodes an extension's configuration. Deterministic, since it becomes part of a version.
func pack(message proto.Message) *anypb.Any {
	packed := &anypb.Any{}
	if err := anypb.MarshalFrom(packed, message, proto.MarshalOptions{Deterministic: true}); err != nil {
		panic(fmt.Sprintf("envoy: encoding %T: %v", message, err)) // only messages that we built come here
	}
	return packed
}

// ads answers "over the stream that this came by".
func ads() *corev3.ConfigSource {
	return &corev3.ConfigSource{
		ResourceApiVersion:    corev3.ApiVersion_V3,
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
	}
}

// adsOrWait is ads for a resource without which its user must not come into use: it waits for it without
// end, and what was there before serves on meanwhile. Envoy's default is to go on without it after 15
// seconds, which would be a listener that answers 404, or none at all where the old one worked.
func adsOrWait() *corev3.ConfigSource {
	source := ads()
	source.InitialFetchTimeout = duration(0)
	return source
}

func socketAddress(address string, port uint32) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address:       address,
		PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
	}}}
}

func duration(d time.Duration) *durationpb.Duration { return durationpb.New(d) }

func number(n uint32) *wrapperspb.UInt32Value { return wrapperspb.UInt32(n) }

func yes() *wrapperspb.BoolValue { return wrapperspb.Bool(true) }

func no() *wrapperspb.BoolValue { return wrapperspb.Bool(false) }
