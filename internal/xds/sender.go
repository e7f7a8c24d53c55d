package xds

import "sync/atomic"

// sender is the state of the goroutine that sends on a stream. It exists only while something may be ready.
type sender struct {
	state atomic.Int32
	idle  chan struct{} // closed by the goroutine that ends after the stream
}

// States of a sender.
const (
	senderIdle    int32 = iota // there is no goroutine
	senderSending              // one is sending
	senderRoused               // it has to look again for what is ready
	senderEnded                // the stream ends, and the goroutine, if there is one
)

// start reports whether the caller has to start the goroutine. A goroutine that is sending is made to look again.
func (s *sender) start() bool {
	for {
		state := s.state.Load()
		next := senderRoused
		switch state {
		case senderIdle:
			next = senderSending
		case senderRoused, senderEnded:
			return false
		}
		if s.state.CompareAndSwap(state, next) {
			return state == senderIdle
		}
	}
}

// again reports whether the goroutine has to look again. Otherwise it must end.
func (s *sender) again() bool {
	if s.state.CompareAndSwap(senderSending, senderIdle) {
		return false
	}
	if s.state.CompareAndSwap(senderRoused, senderSending) {
		return true
	}
	close(s.idle)
	return false
}

// end waits for the goroutine, and lets none start any more. The transport must not be used after its handler returned.
func (s *sender) end() {
	if state := s.state.Swap(senderEnded); state == senderSending || state == senderRoused {
		<-s.idle
	}
}
