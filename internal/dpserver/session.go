package dpserver

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"weft/internal/graph"
	"weft/internal/wire"
	"weft/kind"
	"weft/resource"
)

const (
	// appearance is how long a session waits for a Dataplane that was written just now.
	appearance = 5 * time.Second
	// drainBound is how long a draining proxy waits for clients that do not ack that it is no endpoint any more.
	drainBound = 30 * time.Second
	// storeBound is how long a store may take.
	storeBound = 10 * time.Second
	// reportPause is how long after one Report the next one is read: Reports that come meanwhile are replaced by the last
	// one.
	reportPause = 100 * time.Millisecond
)

// session is one agent that is there.
type session struct {
	server *Server
	key    graph.ProxyKey
	stream wire.Agent_SessionServer
	end    context.CancelCauseFunc
	caller *caller
	ended  <-chan struct{}
	// questions are for the agent; one that is taken from here is sent.
	questions chan *wire.InspectionRequest

	proxy   *graph.Proxy           // as it is now
	want    wanted                 // of the last settings
	sent    *wire.Settings         // the last ones
	leaf    *graph.NextCertificate // that they ask for
	report  *wire.Report           // the last one
	noted   *wire.Certificate      // the last one of SPIRE's that was stored
	drained bool
	// pending is closed once the proxy runs with the rules of inbounds that wait for that; nil: none does.
	pending chan struct{}
}

// Session implements wire.AgentServer.
func (s *agents) Session(stream wire.Agent_SessionServer) error {
	caller, err := s.caller(stream.Context())
	if err != nil {
		return err
	}
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	if err := checkReport(first); err != nil {
		return err
	}
	key, err := named(first)
	if err != nil {
		return err
	}
	if err := caller.names(key); err != nil {
		return status.Error(codes.PermissionDenied, err.Error())
	}
	if err := s.admitted(key); err != nil {
		return err // before anything is computed for it
	}
	ctx, end := context.WithCancelCause(stream.Context())
	defer end(nil)
	a := &session{
		server: s.Server, key: key,
		stream: stream, end: end, ended: ctx.Done(), questions: make(chan *wire.InspectionRequest),
	}
	proxies := make(chan *graph.Proxy, 1)
	defer s.Hub.Watch(a.key, latest(proxies))()
	if err := a.open(ctx, proxies); err != nil {
		return err
	}
	defer s.enter(a.caller, end)()
	defer s.join(a)()
	reports := make(chan *wire.Report, 1)
	go a.receive(latest(reports))
	return a.run(ctx, first, reports, proxies)
}

// latest puts values where one reader takes the newest.
func latest[T any](to chan T) func(T) {
	return func(value T) {
		select {
		case <-to:
		default:
		}
		to <- value
	}
}

// open waits for the proxy, which a registration a moment ago makes, and lets the caller in.
func (a *session) open(ctx context.Context, proxies <-chan *graph.Proxy) error {
	timeout := time.NewTimer(appearance)
	defer timeout.Stop()
	for a.proxy == nil {
		select {
		case a.proxy = <-proxies:
			continue
		case <-timeout.C:
		case <-ctx.Done():
		}
		break
	}
	var err error
	a.caller, err = a.server.authorize(ctx, a.key)
	return err
}

// join makes this the Dataplane's one session. An older one is of a run that ended, or of a connection
// that is broken.
func (s *Server) join(a *session) (leave func()) {
	s.mu.Lock()
	if older := s.sessions[a.key]; older != nil {
		older.end(status.Error(codes.Aborted, "another agent of this Dataplane has connected"))
	}
	s.sessions[a.key] = a
	s.mu.Unlock()
	s.leases.came(a.key)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.sessions[a.key] == a {
			delete(s.sessions, a.key)
			s.leases.went(a.key)
		}
	}
}

// session answers the session of a proxy's agent; nil where there is none.
func (s *Server) session(key graph.ProxyKey) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions[key]
}

// receive passes on reports, each of which replaces the one before, until the agent ends.
func (a *session) receive(report func(*wire.Report)) {
	for {
		next, err := a.stream.Recv()
		if err == nil {
			err = checkReport(next)
		}
		if err != nil {
			a.end(err)
			return
		}
		report(next)
	}
}

func (a *session) run(ctx context.Context, first *wire.Report, reports <-chan *wire.Report, proxies <-chan *graph.Proxy) error {
	drained := make(chan struct{})
	a.report = first
	next, pause := reports, (<-chan time.Time)(nil) // one of the two is nil
	for waiting := false; ; {
		if err := a.settle(ctx); err != nil {
			return err
		}
		if a.report.Draining && !waiting {
			waiting = true
			go a.awaitDrained(ctx, drained)
		}
		select {
		case a.report = <-next:
			next, pause = nil, time.After(reportPause)
		case <-pause:
			next, pause = reports, nil
			continue
		case a.proxy = <-proxies:
			if a.proxy == nil {
				return a.deleted()
			}
			if err := a.caller.keeps(a.proxy); err != nil {
				return err
			}
		case q := <-a.questions:
			if err := a.ask(q); err != nil {
				return err
			}
		case <-a.pending:
			a.pending = nil
		case <-drained:
			a.drained, drained = true, nil
		case <-ctx.Done():
			return a.close(ctx, reports)
		}
	}
}

// close takes the agent's last word into account, which may say that its Envoy is dead.
func (a *session) close(ctx context.Context, reports <-chan *wire.Report) error {
	cause := context.Cause(ctx)
	select {
	case a.report = <-reports:
		if n, ok := a.server.Hub.Networking(a.key); ok {
			a.store(ctx, n)
		}
	default:
	}
	if errors.Is(cause, io.EOF) {
		return nil
	}
	return cause
}

// settle sends settings where they differ from the last ones, and stores what the proxy serves.
func (a *session) settle(ctx context.Context) error {
	n, ok := a.server.Hub.Networking(a.key)
	if !ok {
		return a.deleted()
	}
	next := settings(a.proxy, n, a.drained)
	if len(a.proxy.Egresses) > 0 {
		for _, network := range a.server.LocalNetworks {
			next.LocalNetworks = append(next.LocalNetworks, network.String())
		}
	}
	spread(next, a.sent, servicesChange(a.proxy.Certificate, a.leaf), a.server.Sessions())
	if err := a.send(next); err != nil {
		return err
	}
	a.leaf = a.proxy.Certificate
	a.noteCertificate()
	return a.store(ctx, n)
}

// noteCertificate stores what the agent says of its Envoy's certificate, where that is SPIRE's to give.
func (a *session) noteCertificate() {
	c, id := a.report.Certificate, a.proxy.Identity
	if c == nil || id == nil || !id.Source.FromSPIRE() || c.SpiffeId != id.SpiffeID || proto.Equal(c, a.noted) {
		return
	}
	a.noted = c
	a.server.insights.note(a.key, seen(id, c))
}

func (a *session) deleted() error {
	return status.Error(codes.NotFound, a.key.Resource().String()+" was deleted")
}

// store finishes what it began when the agent goes meanwhile: what it said holds.
func (a *session) store(ctx context.Context, n *kind.Networking) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeBound)
	defer cancel()
	runs, pending, tooLarge := a.server.Hub.RunsOwn(a.key), false, error(nil)
	err := a.server.storeServing(ctx, a.key, func(before kind.DataplaneListenerStatus) (after kind.DataplaneListenerStatus) {
		after, pending = reported(before, a.report, a.want, n, runs, now())
		if tooLarge = checkServed(&after); tooLarge != nil {
			return before
		}
		return after
	})
	if tooLarge != nil {
		return tooLarge
	}
	if resource.CodeOf(err) == resource.NotFound {
		return a.deleted()
	}
	if err != nil {
		return a.server.answer(err, "storing what "+a.key.String()+" serves")
	}
	if pending && a.pending == nil {
		a.pending = make(chan struct{})
		go a.awaitRules(a.pending)
	}
	return nil
}

// awaitRules ends once the proxy runs with the rules of its inbounds, or the session ends.
func (a *session) awaitRules(done chan<- struct{}) {
	defer close(done)
	a.server.Hub.AwaitOwn(a.stream.Context(), a.key)
}

func (a *session) awaitDrained(ctx context.Context, drained chan<- struct{}) {
	bounded, cancel := context.WithTimeout(ctx, drainBound)
	defer cancel()
	if err := a.server.Hub.Drained(bounded, a.key); err != nil && ctx.Err() == nil {
		a.server.Log.Warn("a draining proxy goes on without the acks of every client", "proxy", a.key, "bound", drainBound)
	}
	select {
	case <-time.After(a.server.DrainTime):
		close(drained)
	case <-ctx.Done():
	}
}
