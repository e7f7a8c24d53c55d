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

// Stream is one client's connection. Its methods may be called from anywhere, at any time, also after
// the stream has ended.
type Stream struct {
	node      string
	transport discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer
	peer      Peer
	traffic   *[numTypes]counters // the server's
	settled   func(time.Duration) // of the server's configuration
	wake      chan struct{}       // of one: something may be ready
	closing   chan error          // of one: why the stream is to end

	mu      sync.Mutex // guards all below
	session *session
	waits   []wait
	ended   bool
	closed  bool // nothing more is sent
	// pendingSince is since when the client lacks something; lastAck is when it last took something.
	pendingSince, lastAck time.Time
	// acked and rejected count responses.
	acked, rejected uint64
	sent            atomic.Uint64
}

func newStream(c *Catalog, transport discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer, node string) *Stream {
	s := &Stream{node: node, transport: transport, wake: make(chan struct{}, 1), closing: make(chan error, 1)}
	s.session = newSession(c, s.rouse)
	return s
}

// Node is the id that the client gave.
func (s *Stream) Node() string { return s.node }

// SetResourceSets makes these the feeds that the stream follows. The client is sent the difference, with the
// feeds in this order within each type.
func (s *Stream) SetResourceSets(feeds ...*ResourceSet) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	s.session.follow(feeds)
	s.rouse()
}

// Close ends the stream with this error, which should be a gRPC status; the client may come back. The client is sent
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

// NACKs are the resources that the client has refused and that have not changed since, by type and
// name.
func (s *Stream) NACKs() []NACK {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []NACK
	for t := range s.session.subs {
		for _, r := range s.session.subs[t].refused {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b NACK) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// InSync says whether the client has, or has refused, everything up to a revision.
func (s *Stream) InSync(revision uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.session.settledAt(revision)
}

// rouse makes the sender look. It never waits and allocates nothing.
func (s *Stream) rouse() {
	select {
	case s.wake <- struct{}{}:
	default: // it is going to look anyway
	}
}

// serve receives in a goroutine and sends in this one, until either ends.
func (s *Stream) serve(first *request, log *slog.Logger) error {
	go func() { s.Close(s.receive(first, log)) }()
	return s.send(log)
}

func (s *Stream) receive(r *request, log *slog.Logger) (err error) {
	defer contain(log, s.node, &err)
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
			return status.Errorf(codes.InvalidArgument, "the node changed from %q to %q; a stream is of one node", s.node, brief(id))
		}
	}
}

// step gives a request to the core and tells the peer what it said.
func (s *Stream) step(r *request) error {
	s.mu.Lock()
	outcome, err := s.session.step(r)
	if s.session.restless() || len(outcome.refused) > 0 {
		s.rouse()
	}
	if outcome.acked || len(outcome.refused) > 0 {
		s.progress()
	}
	s.report()
	now := time.Now()
	switch {
	case outcome.acked:
		s.lastAck = now
		s.acked++
	case len(outcome.refused) > 0:
		s.rejected++
	}
	s.track(now)
	s.mu.Unlock()
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	count := &s.traffic[outcome.typ]
	count.refused.Add(uint64(len(outcome.refused)))
	if outcome.acked {
		count.acked.Add(1)
		s.peer.Acked(outcome.typ)
	}
	for _, refusal := range outcome.refused {
		s.peer.NACKed(refusal)
	}
	return nil
}

func (s *Stream) send(log *slog.Logger) (err error) {
	defer contain(log, s.node, &err)
	var retry <-chan time.Time // nil: nothing is refused
	for {
		select {
		case err := <-s.closing:
			return err
		case <-s.wake:
		case <-retry:
		}
		out, next := s.ready()
		if retry = nil; !next.IsZero() {
			retry = time.After(time.Until(next))
		}
		for _, r := range out {
			if err := s.transport.SendMsg(r); err != nil {
				return err
			}
			s.sent.Add(1)
			count := &s.traffic[r.typ]
			count.responses.Add(1)
			count.bytes.Add(uint64(len(r.wire)))
		}
	}
}

// ready answers what is to be sent now, and when to look again though nothing has changed (zero: never).
func (s *Stream) ready() (out []*response, again time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, time.Time{}
	}
	now := time.Now()
	again = s.session.retry(now)
	out = s.session.ready()
	s.report()
	s.track(now)
	return out, again
}

// end is the last thing that happens to a stream.
func (s *Stream) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.session.leave()
	for _, w := range s.waits {
		w.done <- lost
	}
	s.waits = nil
}
