package zonesync

import (
	"errors"
	"fmt"

	"weft/internal/wire"
	"weft/kind"
)

// Side describes one side of a stream, as its Hello states it.
type Side struct {
	Kind     string
	Owner    kind.Owner // the owner of the control plane's resources
	Instance string     // a random ID of one run of the control plane
	Release  string
}

// Session is the protocol of one stream, the same on both sides. It is not safe for concurrent use.
type Session struct {
	own      Side
	peer     kind.Owner // the authenticated identity
	sender   *Sender
	receiver *Receiver

	helloSent     bool
	helloReceived *Side
	protocol      uint32
}

// Ready is the work for the caller, in any order.
type Ready struct {
	// Frames are to be sent, in this order. Their contents are shared and must not be changed.
	Frames []*wire.Frame
	// Apply is to be stored, and then reported to [Receiver.NoteApplied]. No other items are applied before the report.
	Apply *Apply
	// List requests all stored items of this kind from this peer: at global, the items that the zone owns; in a zone,
	// all items that it does not own. The caller passes them to [Receiver.Digest].
	List bool
}

// NewSession starts a stream with an authenticated peer. The sender, or the receiver, is nil if the kind does not
// travel that way. A sender belongs to one stream; a receiver moves from one stream to the next. The caller must have
// completed or abandoned the storing of the former stream's items: a later report of them is ignored.
func NewSession(own Side, peer kind.Owner, sender *Sender, receiver *Receiver) *Session {
	if receiver != nil {
		receiver.connect()
	}
	return &Session{own: own, peer: peer, sender: sender, receiver: receiver}
}

// Peer returns the other side's Hello, or nil before it.
func (s *Session) Peer() *Side { return s.helloReceived }

// Protocol returns the negotiated version, or 0 before the other side's Hello.
func (s *Session) Protocol() uint32 { return s.protocol }

// Step handles one frame. After an error, the caller must end the stream; the text is for the other side.
func (s *Session) Step(f *wire.Frame) error {
	switch f.Message.(type) {
	case nil: // of a newer release
		return nil
	case *wire.Frame_Hello:
		return s.hello(f.GetHello())
	}
	if s.helloReceived == nil {
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
	if s.helloReceived != nil {
		return errors.New("there is a second Hello")
	}
	side := Side{Kind: h.Kind, Owner: kind.Owner{Zone: h.Zone}, Instance: h.Instance, Release: h.Release}
	if side.Owner != s.peer {
		return fmt.Errorf("it says that it is %s, and has proved to be %s", truncate(side.Owner.String()), s.peer)
	}
	if side.Kind != s.own.Kind {
		return fmt.Errorf("it speaks of %q on a stream of %s", truncate(side.Kind), s.own.Kind)
	}
	var err error
	if s.protocol, err = agree(h.Protocol); err != nil {
		return err
	}
	s.helloReceived = &side
	return nil
}

// Ready returns the work for the caller. Call it after every Step, after every report to the receiver, and after a
// change of the log, at the rate at which batches are to be sent. After an error, the caller must end the stream.
func (s *Session) Ready() (Ready, error) {
	var ready Ready
	if s.receiver != nil {
		var err error
		if ready, err = s.receiver.ready(); err != nil {
			return Ready{}, err
		}
	}
	if !s.helloSent {
		s.helloSent = true
		hello := &wire.Hello{Protocol: Protocol, Kind: s.own.Kind, Zone: s.own.Owner.Zone, Instance: s.own.Instance,
			Release: s.own.Release}
		ready.Frames = append([]*wire.Frame{{Message: &wire.Frame_Hello{Hello: hello}}}, ready.Frames...)
	}
	if s.sender != nil {
		ready.Frames = append(ready.Frames, s.sender.ready()...)
	}
	return ready, nil
}
