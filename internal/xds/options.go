package xds

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec for all other messages
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
)

// EncodedMessage is a message in its encoded form, which every stream that sends it shares.
type EncodedMessage interface{ Wire() []byte }

// codec sends an [EncodedMessage] message as it is, decodes a [request] itself, and leaves every other message to
// protobuf.
type codec struct{ encoding.CodecV2 }

func (c codec) Unmarshal(data mem.BufferSlice, message any) error {
	if r, ok := message.(*request); ok {
		return r.unmarshal(data)
	}
	return c.CodecV2.Unmarshal(data, message)
}

func (c codec) Marshal(message any) (mem.BufferSlice, error) {
	if m, ok := message.(EncodedMessage); ok {
		return mem.BufferSlice{mem.SliceBuffer(m.Wire())}, nil
	}
	return c.CodecV2.Marshal(message)
}

// Sizes of a connection. Nearly all of the thousands of connections are idle, so each has small buffers.
const (
	window         = 64 << 10 // bytes in flight to the server: requests are small
	writeBuffer    = 16 << 10 // bytes, of a connection that is writing: one TLS record; an idle one has no buffer
	maxRequest     = 4 << 20  // bytes; a node with many extensions has 50 KB, 20,000 names 1 MB
	maxStreams     = 16       // per connection: one for ADS, a few for the agent
	maxHeaderBytes = 32 << 10
)

// idleConnection is the time after which a connection without a stream is closed. A proxy has a stream as long as it
// runs.
const idleConnection = 5 * time.Minute

// ServerOptions returns the options of a gRPC server that has many long streams at low cost, and sends [EncodedMessage]
// messages.
//
// Clients are pinged once a minute and have 20 s to respond, so that a lost machine is noticed without its traffic.
func ServerOptions(creds credentials.TransportCredentials) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.Creds(creds),
		grpc.ForceServerCodecV2(codec{encoding.GetCodecV2("proto")}),
		grpc.SharedWriteBuffer(true),
		grpc.WriteBufferSize(writeBuffer),
		grpc.ReadBufferSize(0), // TLS has its own buffer
		grpc.StaticStreamWindowSize(window),
		grpc.StaticConnWindowSize(window),
		grpc.MaxRecvMsgSize(maxRequest),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.ConnectionTimeout(20 * time.Second),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: time.Minute, Timeout: 20 * time.Second, MaxConnectionIdle: idleConnection,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second,
			PermitWithoutStream: true}),
	}
}
