package zonesync

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"weft/internal/wire"
	"weft/kind"
)

// Sender sends a log to one receiver, over one stream. Its memory does not grow with the log, except during a
// comparison. It is not safe for concurrent use.
type Sender struct {
	log *Log
	way Direction

	receiverPosition *wire.Position // handled once the log is open
	comparing        *comparison    // nil while no comparison is in progress
	round            uint64         // of the last comparison
	streaming        bool           // the receiver's items are known
	frames           []*wire.Frame

	cursor      uint64 // position up to which the log was sent
	known       uint64 // position up to which the receiver's deletions need no entry of the log
	receiverHas bits   // by ID: entries up to known that the receiver has; nil: none
	gone        []Key  // deletions without an entry in the log, which are sent first
	withheld    map[kind.Owner]bool
	catching    bool // the content at the time of the connection is not sent completely

	sent          uint64 // batches of this stream
	window        []sent // the unacked batches
	applied       uint64
	acked         Acked[uint64] // as the receiver reports; bounded by applied
	rejected      map[Key]string
	rejectedBytes int  // of the keys and reasons in rejected
	rejectsMore   bool // the receiver rejects more items than rejected has
}

// sent is an unacked batch.
type sent struct {
	seq   uint64 // its position
	bytes int    // of its items
}

// NewSender returns a sender for one stream.
func NewSender(log *Log, way Direction) *Sender {
	return &Sender{log: log, way: way, withheld: map[kind.Owner]bool{}, rejected: map[Key]string{}}
}

// Progress is the state of a receiver.
type Progress struct {
	// Applied is the position up to which the receiver has stored the log, except rejected items. Acked has the
	// positions that all proxies of the receiver have acked. Both are reset by a comparison.
	Applied uint64
	Acked   Acked[uint64]
	// Current reports that the receiver has stored the whole log.
	Current bool
	// Lag is the age of the oldest change that the receiver has not stored, rounded up to a quarter of a second. It is
	// 0 for a current receiver, and until a comparison ends.
	Lag time.Duration
}

// Progress returns the state of the receiver. The time must be of the same clock as the times of [Log.Put].
func (s *Sender) Progress(now time.Time) Progress {
	s.log.mu.RLock()
	defer s.log.mu.RUnlock()
	p := Progress{Applied: s.applied}
	if s.streaming && len(s.window) == 0 && !s.catching {
		p.Applied = s.cursor // between the last batch and the cursor, the log has nothing for this receiver
	}
	p.Acked = mapAcked(func(acked []uint64) uint64 {
		if acked[0] >= s.applied {
			return p.Applied
		}
		return acked[0]
	}, s.acked)
	if !s.streaming {
		return p
	}
	if p.Current = p.Applied == s.log.head; !p.Current && s.receiverHas == nil {
		p.Lag = s.log.times.age(p.Applied+1, now)
	}
	return p
}

// IsConfirmed reports whether a state of a resource is the newest in the log, is acked, and is not rejected by the
// receiver.
func (s *Sender) IsConfirmed(item Item) bool {
	acked := s.Progress(time.Time{}).Acked.PositionOf(item.Key.Mesh)
	s.log.mu.RLock()
	defer s.log.mu.RUnlock()
	if _, rejected := s.rejected[item.Key]; rejected {
		return false
	}
	e := s.log.index[item.Key]
	switch {
	case e == nil:
		return item.Deleted && acked >= max(s.known, s.log.floor, 1)
	case item.Deleted:
		return e.deleted && acked >= e.seq
	}
	return !e.deleted && e.hash == Sum(item.Key, item.Body) && acked >= e.seq
}

// Rejections returns the items that the receiver rejects, sorted by key.
func (s *Sender) Rejections() []Rejection {
	list := make([]Rejection, 0, len(s.rejected))
	for _, key := range slices.SortedFunc(maps.Keys(s.rejected), compareKeys) {
		list = append(list, Rejection{key, s.rejected[key]})
	}
	return list
}

// RejectsMore reports that the receiver rejects more items than [Sender.Rejections] lists. The receiver acks nothing
// then.
func (s *Sender) RejectsMore() bool { return s.rejectsMore }

// RejectingOwners returns the owners whose resources the receiver may store in another state, at any position: the
// receiver rejects one of them, or the log waits for the owner.
func (s *Sender) RejectingOwners() map[kind.Owner]bool {
	owners := maps.Clone(s.withheld)
	for key := range s.rejected {
		owners[key.Owner] = true
	}
	return owners
}

// step handles one frame of the receiver. After an error, the stream must end.
func (s *Sender) step(f *wire.Frame) error {
	switch m := f.Message.(type) {
	case *wire.Frame_Position:
		s.receiverPosition = m.Position
		return nil
	case *wire.Frame_Digest:
		return s.handleDigest(m.Digest)
	case *wire.Frame_Ack:
		return s.applyAck(m.Ack)
	}
	return fmt.Errorf("a frame of type %T is not for a sender", f.Message)
}

// ready returns the frames to send now.
func (s *Sender) ready() []*wire.Frame {
	s.log.mu.RLock()
	defer s.log.mu.RUnlock()
	if !s.log.open {
		return nil
	}
	if s.receiverPosition != nil {
		s.resume(s.receiverPosition)
		s.receiverPosition = nil
	}
	if s.streaming && s.outdated() {
		s.compare()
	}
	for s.streaming && len(s.window) < s.log.Window && s.inFlight() < s.log.WindowBytes {
		batch := s.nextBatch()
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

// inFlight returns the number of unacked bytes of items.
func (s *Sender) inFlight() (bytes int) {
	for _, batch := range s.window {
		bytes += batch.bytes
	}
	return bytes
}

// resume continues at the receiver's position. It starts a comparison if the log does not have all changes since.
func (s *Sender) resume(position *wire.Position) {
	if !s.log.continues(Position{Epoch: position.Epoch, Seq: position.Seq}, s.way) {
		s.compare()
		return
	}
	s.streaming, s.catching = true, true
	s.cursor, s.known = position.Seq, position.Seq
	s.applied = position.Seq
	s.comparing, s.receiverHas, s.gone = nil, nil, nil
}

// outdated reports that a deletion may be missing, or that an awaited owner has completed.
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

// nextBatch returns the next batch, or nil if there is nothing to send.
func (s *Sender) nextBatch() *wire.Batch {
	if len(s.gone) > 0 {
		return s.nextDeletions()
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
	// A batch in the middle has no position: an item that changed since the receiver connected is only in a later
	// batch.
	switch {
	case s.catching && len(next) == 0:
		s.catching, s.receiverHas, batch.Complete = false, nil, true
	case s.receiverHas != nil:
		batch.Seq = 0 // the receiver may apply the deletions of a comparison at its end
	}
	if len(batch.Items) == 0 && !batch.Complete {
		return nil
	}
	return batch
}

// nextDeletions returns a batch of deletions without entries in the log.
func (s *Sender) nextDeletions() *wire.Batch {
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

// wants reports whether an entry is to be sent to this receiver.
func (s *Sender) wants(e *entry) bool {
	if e.superseded || !s.way.permits(e.key.Owner) {
		return false
	}
	return s.receiverHas == nil || e.seq > s.known || !e.deleted && !s.receiverHas.has(e.id)
}

func (s *Sender) applyAck(ack *wire.Ack) error {
	acknowledged := s.sent - uint64(len(s.window))
	if ack.Batches < acknowledged || ack.Batches > s.sent {
		return fmt.Errorf("%d batches are acknowledged, of %d that were sent and %d that were acknowledged before",
			ack.Batches, s.sent, acknowledged)
	}
	for range ack.Batches - acknowledged {
		s.applied = max(s.applied, s.window[0].seq)
		s.window = s.window[1:]
	}
	s.acked, s.rejectsMore = ackedIn(ack), ack.More
	return s.applyRejections(ack)
}

func (s *Sender) applyRejections(ack *wire.Ack) error {
	for _, cleared := range ack.Cleared {
		key, err := readKey(cleared)
		if err != nil {
			return err
		}
		s.keepRejection(key, "", false)
	}
	for _, rejection := range ack.Rejected {
		key, err := readKey(rejection.Key)
		if err != nil {
			return err
		}
		if s.keepRejection(key, truncate(rejection.Reason), true); len(s.rejected) > s.log.RejectedItems ||
			s.rejectedBytes > s.log.RejectedBytes {
			return fmt.Errorf("more than %d items or %d bytes are rejected, which are not listed any more",
				s.log.RejectedItems, s.log.RejectedBytes)
		}
	}
	return nil
}

// keepRejection replaces the recorded rejection of a key, or removes it.
func (s *Sender) keepRejection(key Key, reason string, rejected bool) {
	if was, had := s.rejected[key]; had {
		s.rejectedBytes -= bytesOf(key) + len(was)
		delete(s.rejected, key)
	}
	if rejected {
		s.rejectedBytes += bytesOf(key) + len(reason)
		s.rejected[key] = reason
	}
}
