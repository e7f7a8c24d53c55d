package wait_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weft/internal/bubble"
	"weft/internal/wait"
)

func TestSleep(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		began := time.Now()
		if err := wait.Sleep(t.Context(), time.Minute); err != nil || time.Since(began) != time.Minute {
			t.Errorf("%v after %s, want nil after a minute", err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began = time.Now()
		if err := wait.Sleep(ctx, time.Minute); !errors.Is(err, context.DeadlineExceeded) ||
			time.Since(began) != time.Second {
			t.Errorf("%v after %s, want the error of the context after a second", err, time.Since(began))
		}
	})
}

// The error is that of the attempt, which says more than that of the context.
func TestUntil(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		began, attempts, pending := time.Now(), 0, errors.New("pending")
		third := func(context.Context) error {
			if attempts++; attempts < 3 {
				return pending
			}
			return nil
		}
		if err := wait.Until(t.Context(), time.Second, third); err != nil || time.Since(began) != 2*time.Second {
			t.Errorf("%v after %s, want nil after two pauses of a second", err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began = time.Now()
		never := func(context.Context) error { return pending }
		if err := wait.Until(ctx, time.Second, never); !errors.Is(err, pending) || time.Since(began) != time.Minute {
			t.Errorf("%v after %s, want the error of the attempt after a minute", err, time.Since(began))
		}
	})
}

// One Send wakes all that wait, and none that begins to wait afterwards.
func TestBroadcast(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var changed wait.Broadcast
		changed.Send() // for no goroutine
		var woken atomic.Int32
		for range 3 {
			next := changed.Next()
			go func() { <-next; woken.Add(1) }()
			synctest.Wait()
		}
		if n := woken.Load(); n != 0 {
			t.Fatalf("%d goroutines are awake before Send", n)
		}
		changed.Send()
		later := changed.Next()
		synctest.Wait()
		if n := woken.Load(); n != 3 {
			t.Errorf("Send woke %d goroutines, want 3", n)
		}
		select {
		case <-later:
			t.Error("a goroutine that waits after Send is awake")
		default:
		}
		changed.Send()
		<-later
	})
}
