// Package wait has waits that end with a context.
package wait

import (
	"context"
	"sync"
	"time"
)

// Sleep returns nil after a duration, or the error of ctx when ctx ends first.
func Sleep(ctx context.Context, d time.Duration) error { return Change(ctx, nil, d) }

// Change returns nil when changed is closed or receives, at the latest after a duration, or the error of ctx when ctx
// ends first.
func Change(ctx context.Context, changed <-chan struct{}, most time.Duration) error {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-changed:
		return nil
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Until repeats an attempt with pauses until it succeeds. When ctx ends first, it returns the error of the last
// attempt.
func Until(ctx context.Context, pause time.Duration, attempt func(context.Context) error) error {
	for {
		err := attempt(ctx)
		if err == nil || Sleep(ctx, pause) != nil {
			return err
		}
	}
}

// Earliest returns the first of several times, ignoring zero times; zero where all are.
func Earliest(times ...time.Time) (first time.Time) {
	for _, t := range times {
		if first.IsZero() || !t.IsZero() && t.Before(first) {
			first = t
		}
	}
	return first
}

// Signal wakes one goroutine, which receives from it. Signals that it has not received yet are one.
type Signal chan struct{}

// NewSignal returns a signal that is not sent.
func NewSignal() Signal { return make(Signal, 1) }

// Send wakes the goroutine, or has it awake when it next receives. It does not block.
func (s Signal) Send() {
	select {
	case s <- struct{}{}:
	default: // one is pending
	}
}

// Broadcast wakes every goroutine that waits for the next change of a state. The zero value is ready for use. Its
// methods may be called with the lock of the state.
type Broadcast struct {
	mu   sync.Mutex
	next chan struct{}
}

// Next returns a channel that the next Send closes. A goroutine that takes it before it reads the state misses no
// change.
func (b *Broadcast) Next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next == nil {
		b.next = make(chan struct{})
	}
	return b.next
}

// Send wakes the goroutines that wait. Call it after the state has changed.
func (b *Broadcast) Send() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next != nil {
		close(b.next)
		b.next = nil
	}
}
