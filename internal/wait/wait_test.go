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

// TestChange: a change ends the wait at once, and a change before the wait counts. Without any, the duration does.
func TestChange(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		changed := wait.NewSignal()
		for _, step := range []struct {
			what  string
			send  func()
			takes time.Duration
		}{
			{"no change", func() {}, time.Minute},
			{"two signals before", func() { changed.Send(); changed.Send() }, 0},
			{"which were one", func() {}, time.Minute},
			{"a later signal", func() { time.AfterFunc(time.Second, changed.Send) }, time.Second},
		} {
			step.send()
			began := time.Now()
			err := wait.Change(t.Context(), changed, time.Minute)
			if took := time.Since(began); err != nil || took != step.takes {
				t.Errorf("%s: %v after %s, want nil after %s", step.what, err, took, step.takes)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := wait.Change(ctx, changed, time.Minute); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want the error of the context", err)
		}
	})
}

func TestEarliest(t *testing.T) {
	first, second, none := time.Unix(1_800_000_000, 0), time.Unix(1_800_000_001, 0), time.Time{}
	for _, times := range [][]time.Time{{first, second}, {second, first}, {none, second, first}, {first, none}} {
		if got := wait.Earliest(times...); !got.Equal(first) {
			t.Errorf("the earliest of %s is %s", times, got)
		}
	}
	if got := wait.Earliest(none, none); !got.IsZero() {
		t.Errorf("the earliest of no times is %s", got)
	}
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
