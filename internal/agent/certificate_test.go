package agent

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"weft/internal/wire"
)

// limited is a control plane that signs later.
type limited struct {
	wire.AgentClient
	pause time.Duration
	calls chan time.Time
}

func (l *limited) Sign(context.Context, *wire.SignRequest, ...grpc.CallOption) (*wire.SignResponse, error) {
	l.calls <- time.Now()
	s, err := status.New(codes.ResourceExhausted,
		"too many certificate requests").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(l.pause)})
	if err != nil {
		return nil, err
	}
	return nil, s.Err()
}

// TestAnAgentWaitsForItsCertificate: as long as the control plane asks for, whatever else changes; it does not end.
func TestAnAgentWaitsForItsCertificate(t *testing.T) {
	control := &limited{pause: time.Second, calls: make(chan time.Time)}
	settings := &wire.Settings{Identity: &wire.Identity{Name: "identity", Generation: "g"}}
	a := &agent{
		Config: Config{Log: slog.New(slog.DiscardHandler)}, control: &controlPlane{agent: control},
		settings: watch(settings), leaves: newLeaves(),
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.keepCertificate(ctx, leafSecret) }()
	first := <-control.calls
	a.settings.store(&wire.Settings{Identity: settings.Identity, Drained: true})
	select {
	case second := <-control.calls:
		if waited := second.Sub(first); waited < control.pause {
			t.Errorf("the agent tries again after %s, want %s at least", waited, control.pause)
		}
	case err := <-ended:
		t.Fatalf("the agent ends: %v", err)
	}
	cancel()
	for {
		select {
		case <-control.calls:
			continue
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
			return
		}
	}
}
