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

// keepSession keeps a session open. It returns an error only before Envoy is started, if a retry cannot succeed. Later,
// the proxy keeps its configuration, whatever the control plane responds.
func (a *agent) keepSession(ctx context.Context) error {
	retry := newBackoff()
	for {
		err := a.runSession(ctx, retry)
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, io.EOF) && a.statusReporter.finished() {
			a.finalReportAcked.store(true)
			return nil
		}
		if !a.started() && isFinal(err) && (a.registers() || status.Code(err) != codes.NotFound) {
			return a.control.explain(err)
		}
		a.Log.Warn("the session with the control plane ended, trying again", "error", a.control.said(err))
		switch status.Code(err) {
		case codes.PermissionDenied:
			retry.waitLonger()
			retry.wait(ctx)
		case codes.NotFound:
			retry.wait(ctx)
			if a.registers() {
				a.registerAgain(ctx)
			}
		default:
			retry.wait(ctx)
		}
	}
}

// registerAgain registers a Dataplane that was deleted while its agent was disconnected. An existing one is not
// changed: its owner may have changed it since.
func (a *agent) registerAgain(ctx context.Context) {
	if _, err := a.control.agent.Register(ctx, &wire.RegisterRequest{Dataplane: a.document}); err != nil {
		a.Log.Warn("registering again failed", "error", reason(err))
	}
}

// runSession opens a session and stores its settings until it ends.
func (a *agent) runSession(ctx context.Context, retry *retry) error {
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
			go a.sendInspection(ctx, settings.Inspection)
			continue
		}
		a.settings.store(settings)
		if settings.Completed {
			a.end(errCompleted)
		}
	}
}

// sendReports sends each report until the final one, or until the stream fails. The receiving side reports the failure.
func (a *agent) sendReports(ctx context.Context, stream wire.Agent_SessionClient) {
	for {
		report, changed := a.statusReporter.report.load()
		addressed := proto.CloneOf(report)
		addressed.ProxyType, addressed.Mesh, addressed.Name = string(a.ProxyType), a.mesh, a.name
		if stream.Send(addressed) != nil {
			return
		}
		a.statusReporter.sent.store(report)
		if a.statusReporter.finished() && len(report.ReadyListeners) == 0 {
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
