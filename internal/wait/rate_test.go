package wait_test

import (
	"testing"
	"time"

	"weft/internal/wait"
)

// TestRate: a burst is allowed, and a permanent load is slowed down. A clock that is put back gives nothing.
func TestRate(t *testing.T) {
	r, now := wait.NewRate(400, 20), time.Unix(1_800_000_000, 0)
	allowed := func() (n int) {
		for range 1000 {
			if r.Allows(now) {
				n++
			}
		}
		return n
	}
	for i, want := range []int{400, 20, 0} {
		if got := allowed(); got != want {
			t.Errorf("%d events in step %d, want %d", got, i, want)
		}
		now = now.Add([]time.Duration{time.Second, -time.Hour, 0}[i])
	}
}

// TestEventsWaitForTheirTurn: events that are charged ahead of time wait for those before them, and some that would
// wait for too long cost nothing.
func TestEventsWaitForTheirTurn(t *testing.T) {
	r, now := wait.NewRate(10, 5), time.Unix(1_800_000_000, 0)
	for _, step := range []struct {
		events int
		passed time.Duration
		after  time.Duration
		ok     bool
	}{
		{10, 0, 0, true},
		{5, 0, time.Second, true},
		{5, 0, 2 * time.Second, true},
		{1, 0, 2200 * time.Millisecond, false},
		{1, 200 * time.Millisecond, 2 * time.Second, true},
		{1, time.Hour, 0, true},
	} {
		now = now.Add(step.passed)
		if after, ok := r.Charge(step.events, now, 2*time.Second); after != step.after || ok != step.ok {
			t.Errorf("%d events wait for %s (%t), want %s (%t)", step.events, after, ok, step.after, step.ok)
		}
	}
}
