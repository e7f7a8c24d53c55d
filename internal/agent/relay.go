package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"

	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

const (
	adsService = "envoy.service.discovery.v3.AggregatedDiscoveryService"
	adsStream  = "DeltaAggregatedResources"
)

// newRelay returns the gRPC server for Envoy. It serves SDS and relays all other streams.
func (a *agent) newRelay() *grpc.Server {
	server := grpc.NewServer(
		grpc.ForceServerCodecV2(frames{encoding.GetCodecV2(proto.Name)}),
		grpc.MaxRecvMsgSize(math.MaxInt32), grpc.MaxSendMsgSize(math.MaxInt32),
	)
	secretv3.RegisterSecretDiscoveryServiceServer(server, &secrets{certs: a.certs})
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: adsService,
		HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{{
			StreamName: adsStream, ServerStreams: true, ClientStreams: true,
			Handler: func(_ any, down grpc.ServerStream) error { return relay(a.control.conn, down) },
		}},
	}, nil)
	return server
}

// relay connects a stream of Envoy with one of the control plane, without decoding it. It waits for the control plane
// before it reads, so that Envoy keeps its configuration. If either side ends, relay ends the other, and Envoy
// reconnects with its own versions.
func relay(upstream *grpc.ClientConn, down grpc.ServerStream) error {
	ctx, cancel := context.WithCancel(down.Context())
	defer cancel()
	up, err := upstream.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true},
		"/"+adsService+"/"+adsStream,
		grpc.WaitForReady(true), grpc.ForceCodecV2(frames{encoding.GetCodecV2(proto.Name)}))
	if err != nil {
		return err
	}
	go func() {
		if errors.Is(forwardMessages(up, down), io.EOF) {
			up.CloseSend()
			return
		}
		cancel()
	}()
	return forwardMessages(down, up)
}

type messages interface {
	SendMsg(any) error
	RecvMsg(any) error
}

// forwardMessages copies frames until one side fails or ends.
func forwardMessages(to, from messages) error {
	for {
		var f frame
		if err := from.RecvMsg(&f); err != nil {
			return err
		}
		if err := to.SendMsg(&f); err != nil {
			return err
		}
	}
}

// frame is one encoded message.
type frame []byte

// frames is a codec that leaves a [frame] unchanged, and decodes all other messages as protocol buffers.
type frames struct{ encoding.CodecV2 }

// Marshal implements encoding.CodecV2.
func (c frames) Marshal(v any) (mem.BufferSlice, error) {
	if f, ok := v.(*frame); ok {
		return mem.BufferSlice{mem.SliceBuffer(*f)}, nil
	}
	return c.CodecV2.Marshal(v)
}

// Unmarshal implements encoding.CodecV2.
func (c frames) Unmarshal(data mem.BufferSlice, v any) error {
	if f, ok := v.(*frame); ok {
		*f = data.Materialize()
		return nil
	}
	if err := c.CodecV2.Unmarshal(data, v); err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	return nil
}
