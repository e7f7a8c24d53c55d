package xds

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec that the others use
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
)

// Encoded is a message that is there in its encoded form, which every stream that sends it shares.
type Encoded interface{ Encoded() []byte }

// codec sends an [Encoded] message as it is, reads a [request] by itself, and leaves every other to protobuf.
type codec struct{ encoding.CodecV2 }

func (c codec) Unmarshal(data mem.BufferSlice, message any) error {
	if r, ok := message.(*request); ok {
		return r.unmarshal(data)
	}
	return c.CodecV2.Unmarshal(data, message)
}

func (c codec) Marshal(message any) (mem.BufferSlice, error) {
	if m, ok := message.(Encoded); ok {
		return mem.BufferSlice{mem.SliceBuffer(m.Encoded())}, nil
	}
	return c.CodecV2.Marshal(message)
}

// Sizes of a connection. Thousands of them are idle nearly always, so each holds as little as it can.
const (
	window         = 64 << 10 // bytes in flight to the server: requests are small
	writeBuffer    = 32 << 10 // bytes, of a connection that is writing; the others have none
	maxRequest     = 4 << 20  // bytes; a node with many extensions has 50 KB, 20,000 names 1 MB
	maxStreams     = 16       // per connection: one for ADS, a few for the agent
	maxHeaderBytes = 32 << 10
)

// idleConnection is how long a connection without a stream stays: a proxy has one as long as it lives.
const idleConnection = 5 * time.Minute

// ServerOptions are how a gRPC server holds many long streams cheaply, and sends [Encoded] messages.
//
// Clients are asked for a sign of life once a minute and given 20 s for it, so that a proxy whose
// machine went away is noticed without its traffic.
func ServerOptions(creds credentials.TransportCredentials) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.Creds(creds),
		grpc.ForceServerCodecV2(codec{encoding.GetCodecV2("proto")}),
		grpc.SharedWriteBuffer(true),
		grpc.WriteBufferSize(writeBuffer),
		grpc.ReadBufferSize(0), // TLS has one
		grpc.StaticStreamWindowSize(window),
		grpc.StaticConnWindowSize(window),
		grpc.MaxRecvMsgSize(maxRequest),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.ConnectionTimeout(20 * time.Second),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: time.Minute, Timeout: 20 * time.Second, MaxConnectionIdle: idleConnection,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
	}
}
