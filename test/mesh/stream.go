package mesh

import (
	"context"
	"crypto/tls"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	"weft/internal/xds"
)

// Dial returns a connection to a data plane server until the end of the test. It does not authenticate the server.
func Dial(t testing.TB, address string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(
		&tls.Config{InsecureSkipVerify: true})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// TokenContext returns the context of calls with a token.
func TokenContext(ctx context.Context, token string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
}

// Stream is a configuration stream of a proxy whose Envoy is the test.
type Stream struct {
	discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
}

// OpenStream opens the stream of a node, which subscribes to all resources of types. The stream ends with the context.
// Where the server ends it at once, Recv returns the reason.
func OpenStream(ctx context.Context, conn *grpc.ClientConn, node *corev3.Node, types ...xds.Type) (Stream, error) {
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	for _, t := range types {
		if err == nil {
			_ = stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: t.URL()})
		}
	}
	return Stream{stream}, err
}

// Subscribe subscribes to resources of a type by their names; without a name, to all.
func (s Stream) Subscribe(t xds.Type, names ...string) error {
	return s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: t.URL(), ResourceNamesSubscribe: names})
}

// Ack acks a response.
func (s Stream) Ack(response *discoveryv3.DeltaDiscoveryResponse) error {
	return s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: response.TypeUrl, ResponseNonce: response.Nonce})
}

// Reject rejects a response with a message.
func (s Stream) Reject(response *discoveryv3.DeltaDiscoveryResponse, message string) error {
	return s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: response.TypeUrl, ResponseNonce: response.Nonce,
		ErrorDetail: &rpcstatus.Status{Message: message}})
}

// Await receives and acks until a response is the awaited one, and returns the error by which the stream ends before.
func (s Stream) Await(isAwaited func(*discoveryv3.DeltaDiscoveryResponse) bool) error {
	for {
		response, err := s.Recv()
		if err != nil {
			return err
		}
		_ = s.Ack(response) // where it fails, Recv returns the reason
		if isAwaited(response) {
			return nil
		}
	}
}
