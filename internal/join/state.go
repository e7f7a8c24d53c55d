package join

import (
	"time"

	"weft/internal/zonesync"
)

// StreamState is how one kind stands between two control planes, as the side that answers knows it.
type StreamState struct {
	// Sent is how far the other side is with what this one tells it; zero where nothing goes that way.
	Sent zonesync.Progress
	// Received is up to where this side has stored the other's log; zero where that is not known yet.
	Received zonesync.Position
	// LastItem is when an item last went over the stream, one way or the other.
	LastItem time.Time
	// ItemsSent and ItemsReceived are counted from the beginning of the stream.
	ItemsSent, ItemsReceived uint64
	// Rejected are the resources that this side did not take, and Refuses those that the other did not.
	Rejected, Rejects []zonesync.Rejection

	at time.Time // of which this is
}

// state answers how the stream stands.
func (c *conversation) state() StreamState {
	s := c.traffic
	s.at = time.Now()
	if c.sender != nil {
		s.Sent, s.Rejects = c.sender.Progress(s.at), c.sender.Rejected()
	}
	if c.receiver != nil {
		s.Received, s.Rejected = c.receiver.Position(), c.receiver.Rejected()
	}
	return s
}

// now answers the state with a lag that grows while nothing is heard.
func (s StreamState) now() StreamState {
	if s.Sent.Lag > 0 {
		s.Sent.Lag += time.Since(s.at)
	}
	return s
}
