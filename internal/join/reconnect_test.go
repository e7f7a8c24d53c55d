package join_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"weft/internal/bubble"
	"weft/internal/join"
	"weft/internal/mirror"
	"weft/internal/wire"
	"weft/internal/zonesync"
)

// connection is to a global control plane that does not respond until a time.
type connection struct {
	until  time.Time
	mu     sync.Mutex
	opened int // the number of streams
}

func (c *connection) Invoke(context.Context, string, any, any, ...grpc.CallOption) error {
	return status.Error(codes.Unimplemented, "zone sync has streams alone")
}

func (c *connection) NewStream(ctx context.Context, _ *grpc.StreamDesc, _ string, _ ...grpc.CallOption) (
	grpc.ClientStream, error) {
	if time.Now().Before(c.until) {
		return nil, status.Error(codes.Unavailable, "connection refused")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.opened++
	return &openStream{ctx: ctx, kind: make(chan string, 1)}, nil
}

// count returns the number of streams that were opened.
func (c *connection) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.opened
}

// openStream is a stream whose other side says hello, and nothing more.
type openStream struct {
	grpc.ClientStream
	ctx  context.Context
	kind chan string // of this side's hello
	said bool
}

func (s *openStream) SendMsg(m any) error {
	if hello := m.(*wire.Frame).GetHello(); hello != nil {
		s.kind <- hello.Kind
	}
	return nil
}

func (s *openStream) RecvMsg(m any) error {
	if s.said {
		<-s.ctx.Done()
		return s.ctx.Err()
	}
	s.said = true
	proto.Merge(m.(*wire.Frame), &wire.Frame{Message: &wire.Frame_Hello{
		Hello: &wire.Hello{Protocol: zonesync.Protocol, Kind: <-s.kind}}})
	return nil
}

// TestAllKindsReconnectTogether: after global did not respond for long, its kinds do not come back one after the other:
// the first stream that has a connection ends the pauses of all others.
func TestAllKindsReconnectTogether(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dialed := &connection{until: time.Now().Add(time.Minute)}
		zone := join.NewZone(join.ZoneConfig{Zone: "east", Instance: "e-1", Global: dialed,
			WaitAcked: func(context.Context, mirror.Rows) error { return nil },
			Log:       slog.New(slog.DiscardHandler)})
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { zone.Run(ctx) })
		for dialed.count() == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(10 * time.Millisecond)
		if got, want := dialed.count(), len(zone.Links()); got != want {
			t.Errorf("%d of %d streams are open soon after the first", got, want)
		}
		stop()
		running.Wait()
	})
}
