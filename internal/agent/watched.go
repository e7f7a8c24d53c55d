package agent

import (
	"context"
	"sync"

	"weft/internal/wait"
)

// watched is a value whose readers can wait for the next one. Readers may miss values in between and
// never miss the last.
type watched[T any] struct {
	mu      sync.Mutex
	value   T
	changed wait.Broadcast
}

func watch[T any](value T) *watched[T] {
	return &watched[T]{value: value}
}

// load answers the value, and a channel that is closed once there is another.
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

// await answers the first value that is right, or the error of ctx.
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
