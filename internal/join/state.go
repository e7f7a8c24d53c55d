package join

import (
	"time"

	"weft/internal/zonesync"
)

// StreamState is the state of one kind between two control planes, as one side knows it.
type StreamState struct {
	// Sent is the other side's progress with this side's items. It is current at position 0 for a kind of which this
	// side sends nothing.
	Sent zonesync.Progress
	// Received is the position of the other side's log up to which this side has stored it; zero if it is not known
	// yet.
	Received zonesync.Position
	// LastItem is when an item was last sent or received.
	LastItem time.Time
	// ItemsSent and ItemsReceived count from the beginning of the stream.
	ItemsSent, ItemsReceived uint64
	// Rejected are the resources that this side has rejected, and Rejects those that the other side has rejected.
	Rejected, Rejects []zonesync.Rejection

	at time.Time // of this state
}

// state returns the state of the stream.
func (c *conversation) state() StreamState {
	s := c.traffic
	s.at, s.Sent.Current = time.Now(), true
	if c.sender != nil {
		s.Sent, s.Rejects = c.sender.Progress(s.at), c.sender.Rejections()
	}
	if c.receiver != nil {
		s.Received, s.Rejected = c.receiver.Position(), c.receiver.Rejections()
	}
	return s
}

// now returns the state with a lag that grows while nothing is received.
func (s StreamState) now() StreamState {
	if s.Sent.Lag > 0 {
		s.Sent.Lag += time.Since(s.at)
	}
	return s
}
