package xds

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Peer handles the events of one stream. The stream calls its methods one at a time, and they block that stream alone.
type Peer interface {
	// OnAck is called when the client has responded to everything of this type that was sent, and has acked any of it.
	OnAck(t Type)
	// NACKed is called when the client has rejected one resource. It has applied the other resources of the response.
	// last states that the client has responded to everything of this type that was sent.
	NACKed(r NACK, last bool)
	// OnClose is the last call. The error is nil where the client closed the stream in order.
	OnClose(err error)
}

// Config is the configuration of a server.
type Config struct {
	Catalog *Catalog
	// Authenticate accepts or rejects a caller by its context alone, before anything is read: an unauthenticated caller
	// may not keep a stream open. It returns the context for Accept. Nil: every caller proceeds to Accept.
	Authenticate func(ctx context.Context) (context.Context, error)
	// Accept accepts or rejects a new stream by its context (metadata, TLS) and the node of its first request, whose id
	// is not empty. The caller keeps the stream and sets its resource sets with [Stream.SetResourceSets], then or
	// later; until then the client gets no response. An error ends the stream: a gRPC status as it is, any other as
	// PermissionDenied. Peer's methods are called after Accept.
	Accept func(ctx context.Context, node *corev3.Node, stream *Stream) (Peer, error)
	// Acked is called with the time for which a client was not in sync, whenever it is in sync again. It must not
	// block. Optional.
	Acked func(after time.Duration)
	Log   *slog.Logger
}

// Server is the aggregated discovery service, delta only.
//
// The gRPC server that it is registered with must be made with [ServerOptions], which have the codec that sends shared
// bytes.
type Server struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	config Config

	traffic [numTypes]counters

	mu      sync.Mutex
	streams map[*Stream]struct{}
}

// counters are of one type, over all streams.
type counters struct{ responses, bytes, acked, nacked atomic.Uint64 }

// Traffic counts the responses of one type since the server started.
type Traffic struct {
	Type      Type
	Responses uint64
	Bytes     uint64 // before TLS
	Acked     uint64 // responses that were acked
	NACKed    uint64 // resources that were rejected
}

// Traffic returns the traffic of each type.
func (s *Server) Traffic() []Traffic {
	var all []Traffic
	for t := range s.traffic {
		c := &s.traffic[t]
		all = append(all, Traffic{Type(t), c.responses.Load(), c.bytes.Load(), c.acked.Load(), c.nacked.Load()})
	}
	return all
}

// SentBytes returns the bytes of all types since the server started, before TLS.
func (s *Server) SentBytes() (sum uint64) {
	for t := range s.traffic {
		sum += s.traffic[t].bytes.Load()
	}
	return sum
}

// NewServer returns the service. All fields of the configuration but Authenticate and Acked are required.
func NewServer(config Config) *Server {
	return &Server{config: config, streams: map[*Stream]struct{}{}}
}

// StreamAggregatedResources rejects state-of-the-world streams, which send everything at each change.
func (s *Server) StreamAggregatedResources(
	discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	return status.Error(codes.Unimplemented,
		"state-of-the-world streams are not served; set api_type: DELTA_GRPC in the bootstrap's ads_config")
}

// DeltaAggregatedResources serves one stream. Its goroutine lives as long as the stream, so it does little itself.
func (s *Server) DeltaAggregatedResources(
	transport discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	var stream *Stream
	var first *request
	var err error
	failed := OnOwnStack(s.config.Log, "", func() { stream, first, err = s.open(transport) })
	if err = cmp.Or(failed, err); err != nil {
		return err
	}
	err = stream.serve(first)
	_ = OnOwnStack(s.config.Log, stream.node, func() { err = s.close(stream, err) })
	return err
}

// open reads the first request of a stream and accepts the stream.
func (s *Server) open(transport discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) (*Stream,
	*request, error) {
	ctx := transport.Context()
	if s.config.Authenticate != nil {
		var err error
		if ctx, err = s.config.Authenticate(ctx); err != nil {
			return nil, nil, err
		}
	}
	first := &request{}
	if err := transport.RecvMsg(first); err != nil {
		return nil, nil, err
	}
	if first.node.GetId() == "" {
		return nil, nil, status.Error(codes.InvalidArgument,
			"the first request has no node.id; set node.id to MESH.NAME in the bootstrap")
	}
	stream := newStream(s.config.Catalog, transport, first.node.Id, s.config.Log)
	stream.traffic, stream.ackedAfter = &s.traffic, s.config.Acked
	var err error
	if stream.peer, err = s.accept(ctx, first.node, stream); err != nil {
		return nil, nil, err
	}
	s.add(stream)
	first.node = nil // up to 50 KB, which Envoy sends once
	return stream, first, nil
}

// close ends a stream, and returns the error that the client receives.
func (s *Server) close(stream *Stream, err error) error {
	s.remove(stream)
	if errors.Is(err, io.EOF) || status.Code(err) == codes.Canceled {
		err = nil
	}
	stream.peer.OnClose(err)
	return err
}

func (s *Server) accept(ctx context.Context, node *corev3.Node, stream *Stream) (peer Peer, err error) {
	if peer, err = s.acceptContained(ctx, node, stream); err == nil {
		return peer, nil
	}
	stream.end()
	if _, ok := status.FromError(err); ok {
		return nil, err
	}
	return nil, status.Error(codes.PermissionDenied, err.Error())
}

func (s *Server) acceptContained(ctx context.Context, node *corev3.Node, stream *Stream) (peer Peer, err error) {
	defer contain(s.config.Log, node.Id, &err)
	return s.config.Accept(ctx, node, stream)
}

func (s *Server) add(stream *Stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams[stream] = struct{}{}
}

func (s *Server) remove(stream *Stream) {
	s.mu.Lock()
	delete(s.streams, stream)
	s.mu.Unlock()
	stream.end()
}

// UnackedStreams returns the number of streams that are not in sync.
func (s *Server) UnackedStreams() int {
	maxPending := 0
	for _, stream := range s.Streams() {
		if !stream.InSync(s.config.Catalog.Revision()) {
			maxPending++
		}
	}
	return maxPending
}

// Len returns the number of open streams.
func (s *Server) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.streams)
}

// Streams returns the open streams, in no order.
func (s *Server) Streams() []*Stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*Stream, 0, len(s.streams))
	for stream := range s.streams {
		all = append(all, stream)
	}
	return all
}

// OnOwnStack runs f on a stack of its own and waits for it. A goroutine that lives as long as its stream would keep the
// stack that f needs, which is larger than everything else that a stream has. The error is of a panic, which is logged.
func OnOwnStack(log *slog.Logger, node string, f func()) error {
	done := make(chan error, 1)
	go func() {
		var err error
		defer func() { done <- err }()
		defer contain(log, node, &err)
		f()
	}()
	return <-done
}

// contain turns a panic into an error: a bug that affects one stream must not end the others.
func contain(log *slog.Logger, node string, err *error) {
	if p := recover(); p != nil {
		log.Error("xds: a stream panicked; this is a bug in weft", "node", node, "panic", p, "stack",
			string(debug.Stack()))
		*err = status.Error(codes.Internal,
			fmt.Sprintf("internal error on the stream of %s; the control plane's log has the details", node))
	}
}
