package agent

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"weft/internal/wire"
)

// keepSession holds a session open. It gives up only before Envoy runs, where trying again can't help; later on,
// whatever the control plane says, the proxy serves on with what it has.
func (a *agent) keepSession(ctx context.Context) error {
	retry := newBackoff()
	for {
		err := a.holdSession(ctx, retry)
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, io.EOF) && a.outlook.over() {
			a.heard.store(true)
			return nil
		}
		if !a.started() && isFinal(err) {
			return a.control.explain(err)
		}
		a.Log.Warn("the session with the control plane ended, trying again", "error", reason(err))
		switch status.Code(err) {
		case codes.PermissionDenied:
			retry.refused()
			retry.wait(ctx)
		case codes.NotFound:
			retry.wait(ctx)
			a.registerAgain(ctx)
		default:
			retry.wait(ctx)
		}
	}
}

// registerAgain brings back a Dataplane that went while its agent was away. One that is there is left as
// it is: its owner may have changed it since.
func (a *agent) registerAgain(ctx context.Context) {
	if _, err := a.control.agent.Register(ctx, &wire.RegisterRequest{Dataplane: a.document}); err != nil {
		a.Log.Warn("registering again failed", "error", reason(err))
	}
}

// holdSession opens a session and relays its settings until it ends.
func (a *agent) holdSession(ctx context.Context, retry *retry) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := a.control.agent.Session(ctx)
	if err != nil {
		return err
	}
	go a.sendReports(ctx, stream)
	for connected := false; ; connected = true {
		settings, err := stream.Recv()
		if err != nil {
			return err
		}
		if at, ok := peer.FromContext(stream.Context()); ok && !connected {
			a.Log.Info("connected", "controlPlane", at.Addr)
		}
		if !connected {
			a.session.store(time.Now())
			defer a.session.store(time.Time{})
		}
		retry.reset()
		if settings.Inspection != nil {
			go a.answer(ctx, settings.Inspection)
			continue
		}
		a.settings.store(settings)
	}
}

// sendReports sends every report until the last one, or until the stream fails, of which the receiving
// side tells.
func (a *agent) sendReports(ctx context.Context, stream wire.Agent_SessionClient) {
	for {
		report, changed := a.outlook.report.load()
		addressed := proto.CloneOf(report)
		addressed.ProxyType, addressed.Mesh, addressed.Name = string(a.ProxyType), a.mesh, a.name
		if stream.Send(addressed) != nil {
			return
		}
		a.outlook.sent.store(report)
		if a.outlook.over() && len(report.ReadyListeners) == 0 {
			stream.CloseSend()
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
