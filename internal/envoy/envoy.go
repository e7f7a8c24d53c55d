// Package envoy translates the nouns of package graph into Envoy configuration.
//
// Its functions are pure: the same noun gives the same bytes in every process, so a resource's version is a function of
// its content. They read neither the table nor a store, and they never fail: their input has been validated.
//
// Two rules apply everywhere. First, nothing that a policy changes is inside a filter chain, because a changed chain
// drains the connections of the old one. Permissions, limits, faults and TCP proxies come as extension configs, routes
// as route configurations, certificates as secrets, endpoints as assignments. Second, the fields of a listener outside
// its filter chains are constant, because a change of one replaces the listener.
//
// Resources that the proxies of a proxy group share have the name of the mesh's object ("kri_msvc_..."), or
// of their address ("vip_..."). Resources of one proxy begin with "self_", secrets that proxies have in common with
// "system_". docs/defaults.md has every default and its reason.
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

// toAny encodes an extension's configuration deterministically, since it is part of a version.
func toAny(message proto.Message) *anypb.Any {
	packed := &anypb.Any{}
	if err := anypb.MarshalFrom(packed, message, proto.MarshalOptions{Deterministic: true}); err != nil {
		panic(fmt.Sprintf("envoy: encoding %T: %v", message, err)) // only messages of this package get here
	}
	return packed
}

// ads refers to the ADS stream that delivered the resource.
func ads() *corev3.ConfigSource {
	return &corev3.ConfigSource{
		ResourceApiVersion:    corev3.ApiVersion_V3,
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
	}
}

// adsOrWait is ads without a timeout: the user of the resource becomes active only once it has the resource, and its
// former version serves meanwhile. By default, Envoy goes on without the resource after 15 seconds: a new listener
// would then respond with 404, or replace a working one.
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

func uint32Value(n uint32) *wrapperspb.UInt32Value { return wrapperspb.UInt32(n) }

func boolTrue() *wrapperspb.BoolValue { return wrapperspb.Bool(true) }

func boolFalse() *wrapperspb.BoolValue { return wrapperspb.Bool(false) }
