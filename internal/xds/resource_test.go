package xds

import (
	"bytes"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

func TestAResourceIsEncodedAsItsMessage(t *testing.T) {
	for _, size := range []int{1, 100, 200, 20_000} { // lengths of one, two and three bytes
		name := string(bytes.Repeat([]byte{'n'}, size))
		message := &clusterv3.Cluster{Name: name}
		got := NewResource(Cluster, name, message)
		body, err := anypb.New(message)
		if err != nil {
			t.Fatal(err)
		}
		want, err := proto.MarshalOptions{Deterministic: true}.Marshal(&discoveryv3.Resource{
			Name: name, Version: got.Version, Resource: body})
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Wire, want) || cap(got.Wire) != len(want) {
			t.Errorf("a cluster with a name of %d bytes is encoded in %d bytes of %d, want %d", size, len(got.Wire),
				cap(got.Wire), len(want))
		}
	}
}
