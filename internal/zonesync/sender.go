package zonesync

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"weft/internal/wire"
	"weft/kind"
)

// Sender tells one receiver, over one stream, what is in a log. What it keeps for it does not grow with the
// log, except while the two are being compared. One caller at a time.
type Sender struct {
	log *Log
	way Way

	claim     *wire.Position // to be answered once the log is open
	comparing *comparison    // with what the receiver holds
	round     uint64         // of the last comparison
	streaming bool           // it is known what the receiver holds
	frames    []*wire.Frame

	cursor   uint64 // position up to which the log was sent
	known    uint64 // position up to which deletions need no entry of the log any more
	held     bits   // by id: entries up to known that the receiver has; nil: none
	gone     []Key  // deletions that are not in the log, to be sent first
	withheld map[kind.Owner]bool
	catching bool // what there was when the receiver connected is not sent yet

	sent    uint64 // batches of this stream
	window  []sent // those that are not acknowledged
	applied uint64
	settled uint64 // as the receiver says; it counts up to what it has applied
	refused map[Key]string
	kept    int  // bytes of refused
	more    bool // is refused than that
}

// sent is a batch that was sent.
type sent struct {
	seq   uint64 // its position
	bytes int    // of its items
}

// NewSender answers the sender of a stream.
func NewSender(log *Log, way Way) *Sender {
	return &Sender{log: log, way: way, withheld: map[kind.Owner]bool{}, refused: map[Key]string{}}
}

// Progress is how far a receiver is.
type Progress struct {
	// Applied is the position up to which it has stored the log, apart from what it refused, and Settled the
	// one up to which everybody behind it runs with it. Both go down when it must be compared anew.
	Applied, Acked uint64
	// Current says that it has everything.
	Current bool
	// Lag is the age of the oldest change that it has not stored, rounded up to a quarter of a second; 0 where
	// it is current, and until what it holds was compared.
	Lag time.Duration
}

// Progress answers how far the receiver is. The time is compared with those that were given to [Log.Put].
func (s *Sender) Progress(now time.Time) Progress {
	s.log.mu.RLock()
	defer s.log.mu.RUnlock()
	p := Progress{Applied: s.applied, Acked: min(s.settled, s.applied)}
	if !s.streaming {
		return p
	}
	if len(s.window) == 0 && !s.catching {
		// Between the last batch and the cursor there was nothing for this receiver.
		if p.Acked == s.applied {
			p.Acked = s.cursor
		}
		p.Applied = s.cursor
	}
	if p.Current = p.Applied == s.log.head; !p.Current && s.held == nil {
		p.Lag = s.log.times.age(p.Applied+1, now)
	}
	return p
}

// Confirmed says whether everybody behind the receiver runs with a state of a resource: it is the newest one in
// the log, the receiver has settled on it and does not refuse it.
func (s *Sender) Confirmed(item Item) bool {
	settled := s.Progress(time.Time{}).Acked
	s.log.mu.RLock()
	defer s.log.mu.RUnlock()
	if _, refused := s.refused[item.Key]; refused {
		return false
	}
	e := s.log.index[item.Key]
	switch {
	case e == nil:
		return item.Deleted && settled >= max(s.known, s.log.floor, 1)
	case item.Deleted:
		return e.deleted && settled >= e.seq
	}
	return !e.deleted && e.hash == Sum(item.Key, item.Body) && settled >= e.seq
}

// Rejected lists what the receiver does not take, by key.
func (s *Sender) Rejected() []Rejection {
	list := make([]Rejection, 0, len(s.refused))
	for _, key := range slices.SortedFunc(maps.Keys(s.refused), compareKeys) {
		list = append(list, Rejection{key, s.refused[key]})
	}
	return list
}

// RejectsMore says that the receiver refuses more than [Sender.Rejected] lists. It has settled on nothing then.
func (s *Sender) RejectsMore() bool { return s.more }

// Rejecting answers whose resources the receiver may hold in another state, however far it is: it refuses one,
// or the log waits for the owner.
func (s *Sender) Rejecting() map[kind.Owner]bool {
	owners := maps.Clone(s.withheld)
	for key := range s.refused {
		owners[key.Owner] = true
	}
	return owners
}

// step takes one frame of the receiver. An error is a reason to end the stream.
func (s *Sender) step(f *wire.Frame) error {
	switch m := f.Message.(type) {
	case *wire.Frame_Position:
		s.claim = m.Position
		return nil
	case *wire.Frame_Digest:
		return s.inventory(m.Digest)
	case *wire.Frame_Ack:
		return s.ack(m.Ack)
	}
	return fmt.Errorf("a frame of type %T is not for a sender", f.Message)
}

// ready answers what is to be sent now.
func (s *Sender) ready() []*wire.Frame {
	s.log.mu.RLock()
	defer s.log.mu.RUnlock()
	if !s.log.open {
		return nil
	}
	if s.claim != nil {
		s.resume(s.claim)
		s.claim = nil
	}
	if s.streaming && s.outdated() {
		s.compare()
	}
	for s.streaming && len(s.window) < s.log.Window && s.inFlight() < s.log.WindowBytes {
		batch := s.take()
		if batch == nil {
			break
		}
		s.sent++
		s.window = append(s.window, sent{batch.Seq, bytesIn(batch)})
		s.frames = append(s.frames, &wire.Frame{Message: &wire.Frame_Batch{Batch: batch}})
	}
	frames := s.frames
	s.frames = nil
	return frames
}

// inFlight are the bytes of items that are not acknowledged.
func (s *Sender) inFlight() (bytes int) {
	for _, batch := range s.window {
		bytes += batch.bytes
	}
	return bytes
}

// resume continues where the receiver is, or asks what it holds where the log can't tell.
func (s *Sender) resume(claim *wire.Position) {
	if !s.log.continues(Position{Epoch: claim.Epoch, Seq: claim.Seq}, s.way) {
		s.compare()
		return
	}
	s.streaming, s.catching = true, true
	s.cursor, s.known = claim.Seq, claim.Seq
	s.applied = claim.Seq
	s.comparing, s.held, s.gone = nil, nil, nil
}

// outdated says that a deletion may be missed, or that an owner that was waited for is there.
func (s *Sender) outdated() bool {
	if s.log.floor > max(s.cursor, s.known) {
		return true
	}
	for owner := range s.withheld {
		if !s.log.awaited[owner] {
			return true
		}
	}
	return false
}

// take answers the next batch, or nil where there is none.
func (s *Sender) take() *wire.Batch {
	if len(s.gone) > 0 {
		return s.takeGone()
	}
	batch, size := &wire.Batch{Epoch: s.log.epoch, Round: s.round}, 0
	next := s.log.after(s.cursor)
	for len(next) > 0 {
		e := next[0]
		if s.wants(e) {
			if s.full(batch, size, len(e.item)) {
				break
			}
			batch.Items, size = append(batch.Items, e.item), size+len(e.item)
		}
		s.cursor, next = e.seq, next[1:]
	}
	if len(next) == 0 {
		s.cursor = s.log.head
	}
	batch.Seq = s.cursor
	// Not before the end: what was there when the receiver connected and has changed since stands only there.
	switch {
	case s.catching && len(next) == 0:
		s.catching, s.held, batch.Complete = false, nil, true
	case s.held != nil:
		batch.Seq = 0 // the receiver may apply the deletions of a comparison at its end
	}
	if len(batch.Items) == 0 && !batch.Complete {
		return nil
	}
	return batch
}

// takeGone answers a batch of deletions that are not in the log.
func (s *Sender) takeGone() *wire.Batch {
	batch, size := &wire.Batch{Epoch: s.log.epoch, Round: s.round}, 0
	for len(s.gone) > 0 {
		item, err := Item{Key: s.gone[0], Deleted: true}.encode()
		if err == nil { // the key was decoded, so it can be encoded
			if s.full(batch, size, len(item)) {
				break
			}
			batch.Items, size = append(batch.Items, item), size+len(item)
		}
		s.gone = s.gone[1:]
	}
	return batch
}

func (s *Sender) full(batch *wire.Batch, size, more int) bool {
	return len(batch.Items) == s.log.BatchItems || len(batch.Items) > 0 && size+more > s.log.BatchBytes
}

// wants says whether an entry is for this receiver.
func (s *Sender) wants(e *entry) bool {
	if e.superseded || !s.way.permits(e.key.Owner) {
		return false
	}
	return s.held == nil || e.seq > s.known || !e.deleted && !s.held.has(e.id)
}

func (s *Sender) ack(ack *wire.Ack) error {
	acknowledged := s.sent - uint64(len(s.window))
	if ack.Batches < acknowledged || ack.Batches > s.sent {
		return fmt.Errorf("%d batches are acknowledged, of %d that were sent and %d that were acknowledged before",
			ack.Batches, s.sent, acknowledged)
	}
	for range ack.Batches - acknowledged {
		s.applied = max(s.applied, s.window[0].seq)
		s.window = s.window[1:]
	}
	s.settled, s.more = ack.Acked, ack.More
	return s.refusals(ack)
}

func (s *Sender) refusals(ack *wire.Ack) error {
	for _, cleared := range ack.Cleared {
		key, err := readKey(cleared)
		if err != nil {
			return err
		}
		s.keep(key, "", false)
	}
	for _, refusal := range ack.Rejected {
		key, err := readKey(refusal.Key)
		if err != nil {
			return err
		}
		if s.keep(key, clip(refusal.Reason), true); len(s.refused) > s.log.RejectedItems ||
			s.kept > s.log.RejectedBytes {
			return fmt.Errorf("more than %d items or %d bytes are refused, which are not listed any more",
				s.log.RejectedItems, s.log.RejectedBytes)
		}
	}
	return nil
}

// keep notes what the receiver refuses, in the place of what it refused before of the key.
func (s *Sender) keep(key Key, reason string, refused bool) {
	if was, had := s.refused[key]; had {
		s.kept -= bytesOf(key) + len(was)
		delete(s.refused, key)
	}
	if refused {
		s.kept += bytesOf(key) + len(reason)
		s.refused[key] = reason
	}
}
