package dpserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"weft/internal/identity"
	"weft/internal/proxy"
	"weft/internal/state"
	"weft/internal/wait"
	"weft/internal/wire"
	"weft/kind"
	"weft/resource"
)

const (
	// dataplaneTimeout is how long a session waits for a Dataplane that was written just now.
	dataplaneTimeout = 5 * time.Second
	// drainBound is how long a draining proxy waits for clients that do not ack its removal from the endpoints.
	drainBound = 30 * time.Second
	// storeBound is the timeout of a write to the store.
	storeBound = 10 * time.Second
	// storeRetry is the pause before a failed write is repeated.
	storeRetry = 5 * time.Second
	// reportPause is the shortest time from one Report to the next that is read. The newest Report replaces those that
	// arrive meanwhile. The first Report of a proxy that leaves is read at once.
	reportPause = 100 * time.Millisecond
)

// session is the session of one agent.
type session struct {
	server *Server
	key    state.ProxyKey
	stream wire.Agent_SessionServer
	end    context.CancelCauseFunc
	caller *caller
	// sources are where its connection comes from, see [kind.DataplaneListenerStatus].
	sources []string
	ended   <-chan struct{}
	// inspections has requests to the agent. A request that is received from it is sent.
	inspections chan *wire.InspectionRequest

	proxy            *proxy.Proxy              // the current one
	generations      generations               // of the last settings
	sent             *wire.Settings            // the last settings
	certificate      *identity.NextCertificate // the certificate of the last settings
	report           *wire.Report              // the last report
	notedCertificate *wire.Certificate         // the last certificate of SPIRE that was stored
	drained          bool
	// nacked is sent when the NACKs of the proxy's Envoy change.
	nacked wait.Signal
	// completed is sent once the other containers of the Pod have ended.
	completed  wait.Signal
	isComplete bool
	// pending is closed once the proxy runs with the rules of inbounds that wait for them; nil if none waits.
	pending chan struct{}
	// unstored is sent when a listener status whose write failed is written again; nil if none waits.
	unstored <-chan time.Time
	failed   bool // the last write
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
	key, err := proxyKeyOf(first)
	if err != nil {
		return err
	}
	if err := caller.checkProxyName(key); err != nil {
		return s.denied(stream.Context(), key, err)
	}
	if err := s.checkAdmitted(key); err != nil {
		return err // before anything is computed for it
	}
	ctx, end := context.WithCancelCause(stream.Context())
	defer end(nil)
	a := &session{
		server: s.Server, key: key,
		stream: stream, end: end, ended: ctx.Done(), inspections: make(chan *wire.InspectionRequest),
		nacked: wait.NewSignal(), completed: wait.NewSignal(),
	}
	proxies := make(chan *proxy.Proxy, 1)
	defer s.Proxies.Watch(a.key, keepNewest(proxies))()
	if err := a.open(ctx, proxies); err != nil {
		return err
	}
	defer s.trackCall(a.caller, key, end)()
	leave, err := s.addSession(a)
	if err != nil {
		return err
	}
	defer leave()
	if report, ok := s.Rows.PodReport(key.Name); ok {
		s.noteCompleted(report) // before there was a session
	}
	reports, leaving := make(chan *wire.Report, 1), make(chan *wire.Report, 1)
	go a.receive(keepNewest(reports), leaving)
	return a.run(ctx, first, reports, leaving, proxies)
}

// keepNewest returns a function that puts values into a channel of one value, each of which replaces the one before.
func keepNewest[T any](to chan T) func(T) {
	return func(value T) {
		select {
		case <-to:
		default:
		}
		to <- value
	}
}

// open waits for the proxy, which may have been registered a moment ago, and authorizes the caller.
func (a *session) open(ctx context.Context, proxies <-chan *proxy.Proxy) error {
	timeout := time.NewTimer(dataplaneTimeout)
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
	if a.caller, err = a.server.authorize(ctx, a.key); err != nil {
		return err
	}
	if a.sources, err = a.server.sourcesOf(ctx, a.caller); err != nil {
		return err
	}
	err = a.server.recordClaims(ctx, a.caller, a.key)
	if status.Code(err) == codes.Unavailable {
		return nil // the store takes no writes; the next session records them
	}
	return err
}

// addSession makes this the only session of the Dataplane. An older session is of a former run, or of a broken
// connection; one whose token has the name of the Dataplane stays where the token of the newer one does not.
func (s *Server) addSession(a *session) (leave func(), err error) {
	s.mu.Lock()
	if older := s.sessions[a.key]; older != nil {
		if older.caller.hasName() && !a.caller.hasName() {
			s.mu.Unlock()
			err := status.Error(codes.PermissionDenied, fmt.Sprintf("an agent whose token has the name of %s is "+
				"connected; choose another name, or make a token with `weft generate dataplane-token --mesh %s "+
				"--name %s`",
				a.key.Resource(), a.key.Mesh, a.key.Name))
			s.denials.Note("a proxy is rejected", "proxy", a.key, "reason", status.Convert(err).Message())
			return nil, err
		}
		older.end(status.Error(codes.Aborted, "another agent of this Dataplane has connected"))
	}
	s.sessions[a.key] = a
	s.mu.Unlock()
	s.leases.agentConnected(a.key)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.sessions[a.key] == a {
			delete(s.sessions, a.key)
			s.leases.agentDisconnected(a.key)
		}
	}, nil
}

// sessionOf returns the session of a proxy's agent; nil if there is none.
func (s *Server) sessionOf(key state.ProxyKey) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions[key]
}

// tellNACKs has the session of a proxy's agent, if there is one, read the proxy's NACKs.
func (s *Server) tellNACKs(key state.ProxyKey) {
	if a := s.sessionOf(key); a != nil {
		a.nacked.Send()
	}
}

// receive passes on reports until the agent ends the session, and the first one of a proxy that leaves to a channel of
// its own.
func (a *session) receive(report func(*wire.Report), leaving chan<- *wire.Report) {
	for left := false; ; {
		next, err := a.stream.Recv()
		if err == nil {
			err = checkReport(next)
		}
		if err != nil {
			a.end(err)
			return
		}
		report(next)
		if next.Draining && !left {
			left = true
			leaving <- next
		}
	}
}

func (a *session) run(ctx context.Context, first *wire.Report, reports, leaving <-chan *wire.Report,
	proxies <-chan *proxy.Proxy) error {
	drained := make(chan struct{})
	a.report = first
	next, pause := reports, (<-chan time.Time)(nil) // one of the two is nil
	if wait := a.server.flood.report(a.key); wait > reportPause {
		next, pause = nil, time.After(wait)
	}
	for waiting := false; ; {
		if err := a.sync(ctx); err != nil {
			return err
		}
		if a.report.Draining && !waiting {
			waiting = true
			go a.awaitDrained(ctx, drained)
		}
		select {
		case report := <-next:
			next, pause = nil, a.read(report)
		case report := <-leaving:
			if !a.report.Draining { // a later one was not read before
				next, pause = nil, a.read(report)
			}
		case <-pause:
			next, pause = reports, nil
			continue
		case a.proxy = <-proxies:
			if a.proxy == nil {
				return a.deleted()
			}
			if err := a.caller.checkStillPermitted(a.proxy); err != nil {
				return err
			}
		case q := <-a.inspections:
			if err := a.sendInspection(q); err != nil {
				return err
			}
		case <-a.pending:
			a.pending = nil
		case <-a.unstored:
			a.unstored = nil
		case <-a.nacked:
		case <-a.completed:
			a.isComplete = true
		case <-drained:
			a.drained, drained = true, nil
		case <-ctx.Done():
			return a.finish(ctx, reports)
		}
	}
}

// read takes a report as the last one, and returns what ends the pause until the next is read.
func (a *session) read(report *wire.Report) (pause <-chan time.Time) {
	differs := !proto.Equal(a.report, report)
	a.report = report
	if differs {
		return time.After(a.server.flood.report(a.key))
	}
	return time.After(reportPause)
}

// finish stores the final report, which may say that the Envoy is dead.
func (a *session) finish(ctx context.Context, reports <-chan *wire.Report) error {
	cause := context.Cause(ctx)
	select {
	case a.report = <-reports:
		if n, ok := a.server.Rows.Networking(a.key); ok {
			a.store(ctx, n)
		}
	default:
	}
	if errors.Is(cause, io.EOF) {
		return nil
	}
	return cause
}

// sync sends settings if they differ from the last ones, and stores the listener status.
func (a *session) sync(ctx context.Context) error {
	n, ok := a.server.Rows.Networking(a.key)
	if !ok {
		return a.deleted()
	}
	next := settings(a.proxy, n, a.drained)
	next.Completed = a.isComplete
	if p := a.server.peerOf(a.key); p != nil {
		setRejections(next.Listeners, p.currentNACKs())
		next.Rejection = p.currentStartRejection()
	}
	if len(a.proxy.Egresses) > 0 {
		for _, network := range a.server.LocalNetworks {
			next.LocalNetworks = append(next.LocalNetworks, network.String())
		}
	}
	setSpread(next, a.sent, servicesChange(a.proxy.Certificate, a.certificate), a.server.Sessions())
	if err := a.send(next); err != nil {
		return err
	}
	a.certificate = a.proxy.Certificate
	a.noteCertificate()
	return a.store(ctx, n)
}

// noteCertificate stores the certificate that the agent reports, if it comes from SPIRE.
func (a *session) noteCertificate() {
	c, id := a.report.Certificate, a.proxy.Identity
	if c == nil || id == nil || !id.Source.FromSPIRE() || c.SpiffeId != id.SpiffeID ||
		proto.Equal(c, a.notedCertificate) {
		return
	}
	a.notedCertificate = c
	a.server.insights.noteChange(a.key, certifiedBySPIRE(id, c))
}

func (a *session) deleted() error {
	return status.Error(codes.NotFound, a.key.Resource().String()+" was deleted")
}

// store stores the listener status of the last report. It finishes a write even if the agent disconnects meanwhile. A
// write that fails is repeated later, and does not end the session: the proxy needs its settings, and what is stored
// about it stays.
func (a *session) store(ctx context.Context, n *kind.Networking) error {
	if a.unstored != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeBound)
	defer cancel()
	runs, pending, tooLarge := a.server.Acks.RunsOwn(a.key), false, error(nil)
	err := a.server.storeServing(ctx, a.key,
		func(before kind.DataplaneListenerStatus) (after kind.DataplaneListenerStatus) {
			before.Sources = a.sources
			after, pending = reported(before, a.report, a.generations, n, runs, now())
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
		a.noteUnstored(err)
		return nil
	}
	a.failed = false
	if pending && a.pending == nil {
		a.pending = make(chan struct{})
		go a.awaitRules(a.pending)
	}
	return nil
}

// noteUnstored has a failed write repeated. The first failure of several is logged.
func (a *session) noteUnstored(err error) {
	if !a.failed {
		a.server.Log.Warn("storing what a proxy serves failed, and is repeated", "proxy", a.key, "error", err)
	}
	a.failed, a.unstored = true, time.After(storeRetry)
}

// awaitRules closes done once the proxy runs with the rules of its inbounds, or the session ends.
func (a *session) awaitRules(done chan<- struct{}) {
	defer close(done)
	a.server.Acks.AwaitOwn(a.stream.Context(), a.key)
}

func (a *session) awaitDrained(ctx context.Context, drained chan<- struct{}) {
	bounded, cancel := context.WithTimeout(ctx, drainBound)
	defer cancel()
	if err := a.server.Acks.AwaitDrain(bounded, a.key); err != nil && ctx.Err() == nil {
		a.server.Log.Warn("a draining proxy goes on without the acks of every client", "proxy", a.key, "bound",
			drainBound)
	}
	select {
	case <-time.After(a.server.DrainTime):
		close(drained)
	case <-ctx.Done():
	}
}
