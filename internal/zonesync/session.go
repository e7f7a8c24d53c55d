package zonesync

import (
	"errors"
	"fmt"

	"weft/internal/wire"
	"weft/kind"
)

// Side is what one side of a stream says of itself.
type Side struct {
	Kind     string
	Owner    kind.Owner // whose control plane it is
	Instance string     // one run of it
	Release  string
}

// Session is the protocol of one stream, the same on both sides. One caller at a time.
type Session struct {
	own      Side
	peer     kind.Owner // as it has proved
	sender   *Sender
	receiver *Receiver

	said     bool
	heard    *Side
	protocol uint32
}

// Ready is what the caller has to do, in any order.
type Ready struct {
	// Frames are to be sent, in this order. Their contents are shared and must not be changed.
	Frames []*wire.Frame
	// Apply is to be stored and then reported to [Receiver.Applied]. Nothing else is applied meanwhile.
	Apply *Apply
	// List asks for everything that is held of this kind from this peer: at global what the zone owns, in a
	// zone what it does not own itself. [Receiver.Digest] takes it.
	List bool
}

// NewSession begins a stream. The peer is who it proved to be. The sender, and the receiver, is nil where the kind
// does not travel that way. A sender is of one stream; a receiver goes from one to the next, and what the former
// one had it store must have come to its end, stored or given up, since its report is of no use any more.
func NewSession(own Side, peer kind.Owner, sender *Sender, receiver *Receiver) *Session {
	if receiver != nil {
		receiver.connect()
	}
	return &Session{own: own, peer: peer, sender: sender, receiver: receiver}
}

// Peer answers what the other side said of itself; nil before its Hello.
func (s *Session) Peer() *Side { return s.heard }

// Protocol answers the version that is spoken; 0 before the other side's Hello.
func (s *Session) Protocol() uint32 { return s.protocol }

// Step takes one frame. An error is a reason to end the stream, in words for the other side.
func (s *Session) Step(f *wire.Frame) error {
	switch f.Message.(type) {
	case nil: // of a newer release
		return nil
	case *wire.Frame_Hello:
		return s.hello(f.GetHello())
	}
	if s.heard == nil {
		return errors.New("the first frame is not a Hello")
	}
	switch f.Message.(type) {
	case *wire.Frame_Position, *wire.Frame_Digest, *wire.Frame_Ack:
		if s.sender == nil {
			return fmt.Errorf("nothing of %s goes from %s to %s", s.own.Kind, s.own.Owner, s.peer)
		}
		return s.sender.step(f)
	}
	if s.receiver == nil {
		return fmt.Errorf("nothing of %s goes from %s to %s", s.own.Kind, s.peer, s.own.Owner)
	}
	return s.receiver.step(f)
}

func (s *Session) hello(h *wire.Hello) error {
	if s.heard != nil {
		return errors.New("there is a second Hello")
	}
	side := Side{Kind: h.Kind, Owner: kind.Owner{Zone: h.Zone}, Instance: h.Instance, Release: h.Release}
	if side.Owner != s.peer {
		return fmt.Errorf("it says that it is %s, and has proved to be %s", clip(side.Owner.String()), s.peer)
	}
	if side.Kind != s.own.Kind {
		return fmt.Errorf("it speaks of %q on a stream of %s", clip(side.Kind), s.own.Kind)
	}
	var err error
	if s.protocol, err = agree(h.Protocol); err != nil {
		return err
	}
	s.heard = &side
	return nil
}

// Ready answers what there is to do. It is asked again after every Step, after every report to the receiver,
// and, as often as batches are to be sent, when the log has changed. An error ends the stream.
func (s *Session) Ready() (Ready, error) {
	var ready Ready
	if s.receiver != nil {
		var err error
		if ready, err = s.receiver.ready(); err != nil {
			return Ready{}, err
		}
	}
	if !s.said {
		s.said = true
		hello := &wire.Hello{Protocol: Protocol, Kind: s.own.Kind, Zone: s.own.Owner.Zone, Instance: s.own.Instance,
			Release: s.own.Release}
		ready.Frames = append([]*wire.Frame{{Message: &wire.Frame_Hello{Hello: hello}}}, ready.Frames...)
	}
	if s.sender != nil {
		ready.Frames = append(ready.Frames, s.sender.ready()...)
	}
	return ready, nil
}
