package agent

import (
	"context"
	"sync"

	"weft/internal/wait"
)

// watched is a value whose readers can wait for a change. Readers may miss intermediate values, but never the last one.
type watched[T any] struct {
	mu      sync.Mutex
	value   T
	changed wait.Broadcast
}

func watch[T any](value T) *watched[T] {
	return &watched[T]{value: value}
}

// load returns the value, and a channel that is closed at the next change.
func (w *watched[T]) load() (T, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.value, w.changed.Next()
}

func (w *watched[T]) store(value T) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.value = value
	w.changed.Send()
}

// await returns the first value that satisfies a condition, or the error of ctx.
func (w *watched[T]) await(ctx context.Context, right func(T) bool) (T, error) {
	for {
		value, changed := w.load()
		if right(value) {
			return value, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return value, ctx.Err()
		}
	}
}
