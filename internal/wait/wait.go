// Package wait has waits that end with a context.
package wait

import (
	"context"
	"sync"
	"time"
)

// Sleep returns nil after a duration, or the error of ctx when ctx ends first.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
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
