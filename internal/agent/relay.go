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

// newRelay makes the server that Envoy talks to: its leaf over SDS, and everything else relayed.
func (a *agent) newRelay() *grpc.Server {
	server := grpc.NewServer(
		grpc.ForceServerCodecV2(frames{encoding.GetCodecV2(proto.Name)}),
		grpc.MaxRecvMsgSize(math.MaxInt32), grpc.MaxSendMsgSize(math.MaxInt32),
	)
	secretv3.RegisterSecretDiscoveryServiceServer(server, &secrets{leaves: a.leaves})
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

// relay joins one stream of Envoy's with one of the control plane's and looks into neither. It waits for
// a control plane that is away before it reads anything, so that Envoy goes on with what it has; an end
// on either side ends the other, upon which Envoy comes back and states its own versions.
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
		if errors.Is(pump(up, down), io.EOF) {
			up.CloseSend()
			return
		}
		cancel()
	}()
	return pump(down, up)
}

type messages interface {
	SendMsg(any) error
	RecvMsg(any) error
}

// pump copies frames until one side fails or ends.
func pump(to, from messages) error {
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

// frame is one message, as it is on the wire.
type frame []byte

// frames passes a [frame] as it is, and leaves every other message to protocol buffers.
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
