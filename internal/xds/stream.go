package xds

import (
	"cmp"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Stream is one client's connection. It is safe for concurrent use, also after the stream has ended.
type Stream struct {
	node       string
	transport  discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer
	peer       Peer
	traffic    *[numTypes]counters // the server's
	ackedAfter func(time.Duration) // of the server's configuration
	log        *slog.Logger
	sender     sender
	closing    chan error // of capacity 1: why the stream is to end

	mu      sync.Mutex // guards all fields below
	session *session
	waits   []ackWait
	ended   bool
	closed  bool // nothing more is sent
	// retrying rouses the stream when rejected resources are to be sent again; nil: none is rejected.
	retrying *time.Timer
	// pendingSince is the time since which the client is not in sync; lastAck is the time of its last ACK.
	pendingSince, lastAck time.Time
	// acked and rejected count responses.
	acked, rejected uint64
	sent            atomic.Uint64
}

func newStream(c *Catalog, transport discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer,
	node string, log *slog.Logger) *Stream {
	s := &Stream{node: node, transport: transport, log: log, closing: make(chan error, 1)}
	s.session = newSession(c, s.signal)
	s.sender.idle = make(chan struct{})
	return s
}

// Node returns the node id of the client.
func (s *Stream) Node() string { return s.node }

// SetResourceSets makes these the resource sets that the stream follows. The client is sent the difference, with the
// sets in this order within each type.
func (s *Stream) SetResourceSets(sets ...*ResourceSet) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setResourceSets(sets)
}

func (s *Stream) setResourceSets(sets []*ResourceSet) {
	if !s.ended {
		s.session.follow(sets)
		s.signal()
	}
}

// Move gives a stream other resource sets.
type Move struct {
	Stream *Stream
	Sets   []*ResourceSet // as [Stream.SetResourceSets] takes them
}

// CommitAndMove is [Catalog.Commit] and [Stream.SetResourceSets] in one step: a moved stream never has the changes with
// its former sets. Each stream may be moved once.
func (c *Catalog) CommitAndMove(moves []Move, changes ...Change) (revision uint64) {
	c.moving.Lock() // of all callers one has several streams locked
	defer c.moving.Unlock()
	for _, m := range moves {
		m.Stream.mu.Lock()
	}
	revision = c.Commit(changes...)
	for _, m := range moves {
		m.Stream.setResourceSets(m.Sets)
		m.Stream.mu.Unlock()
	}
	return revision
}

// Close ends the stream with this error, which should be a gRPC status; the client may reconnect. The client is sent
// nothing that is published after Close returns.
func (s *Stream) Close(err error) {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	select {
	case s.closing <- err:
	default: // it ends already
	}
}

// NACKs returns the resources that the client has rejected and that have not changed since, by type and name.
func (s *Stream) NACKs() []NACK {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.session.currentNACKs()
	slices.SortFunc(all, func(a, b NACK) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// InSync reports whether the client has acked or rejected everything up to a revision.
func (s *Stream) InSync(revision uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.session.inSyncAt(revision)
}

// signal makes the stream send what is ready. It never blocks.
func (s *Stream) signal() {
	if s.sender.start() {
		go s.send()
	}
}

// serve receives in a goroutine until the stream is closed.
func (s *Stream) serve(first *request) error {
	go func() { s.Close(s.receive(first)) }()
	err := <-s.closing
	s.sender.end()
	return err
}

func (s *Stream) receive(r *request) (err error) {
	defer contain(s.log, s.node, &err)
	for {
		err := s.step(r)
		r.release()
		if err != nil {
			return err
		}
		if err := s.transport.RecvMsg(r); err != nil {
			return err
		}
		if id := r.node.GetId(); id != "" && id != s.node {
			return status.Errorf(codes.InvalidArgument, "the node changed from %q to %q; a stream is of one node",
				s.node, truncate(id))
		}
	}
}

// step handles a request and calls the peer with its outcome.
func (s *Stream) step(r *request) error {
	s.mu.Lock()
	outcome, err := s.session.step(r)
	if s.session.needsReady() || len(outcome.nacks) > 0 {
		s.signal()
	}
	if outcome.acked || len(outcome.nacks) > 0 {
		s.reportProgress()
	}
	s.reportAcked()
	now := time.Now()
	switch {
	case outcome.acked:
		s.lastAck = now
		s.acked++
	case len(outcome.nacks) > 0:
		s.rejected++
	}
	s.track(now)
	s.mu.Unlock()
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	count := &s.traffic[outcome.typ]
	count.nacked.Add(uint64(len(outcome.nacks)))
	if outcome.acked {
		count.acked.Add(1)
	}
	for i, nack := range outcome.nacks {
		s.peer.NACKed(nack, outcome.last && i == len(outcome.nacks)-1)
	}
	if outcome.complete {
		s.peer.OnAck(outcome.typ)
	}
	return nil
}

// send sends what is ready, until nothing is. It runs on a stack of its own: a goroutine that waited for the next
// response would keep the stack that sending needs.
func (s *Stream) send() {
	for again := true; again; again = s.sender.again() {
		if err := s.sendReady(); err != nil {
			s.Close(err)
		}
	}
}

func (s *Stream) sendReady() (err error) {
	defer contain(s.log, s.node, &err)
	for _, r := range s.ready() {
		if err := s.transport.SendMsg(r); err != nil {
			return err
		}
		s.sent.Add(1)
		count := &s.traffic[r.typ]
		count.responses.Add(1)
		count.bytes.Add(uint64(len(r.wire)))
	}
	return nil
}

// ready returns the responses to send now. It rouses the stream again when rejected resources are to be sent again.
func (s *Stream) ready() (out []*response) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	now := time.Now()
	if s.retrying != nil {
		s.retrying.Stop()
		s.retrying = nil
	}
	if at := s.session.retry(now); !at.IsZero() {
		s.retrying = time.AfterFunc(at.Sub(now), s.signal)
	}
	out = s.session.ready()
	s.reportAcked()
	s.track(now)
	return out
}

// end is the last event of a stream.
func (s *Stream) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	if s.retrying != nil {
		s.retrying.Stop()
	}
	s.session.leave()
	for _, w := range s.waits {
		w.done <- lost
	}
	s.waits = nil
}
