package wait

import (
	"math"
	"sync"
	"time"
)

// Rate bounds events to a number at once, and a number per second afterwards. It is safe for concurrent use.
type Rate struct {
	burst, perSecond float64

	mu    sync.Mutex
	level float64 // the events that are left; negative: they were charged ahead of time
	last  time.Time
}

// NewRate returns a rate at which the whole burst is left.
func NewRate(burst, perSecond int) *Rate {
	return &Rate{burst: float64(burst), perSecond: float64(perSecond), level: float64(burst)}
}

// Allows charges one event, and returns whether it may happen now. One that may not is not charged.
func (r *Rate) Allows(now time.Time) bool {
	_, ok := r.Charge(1, now, 0)
	return ok
}

// Charge charges events, and returns the time after which they may happen, in their turn. Where that is longer than
// most, they are not charged, and ok is false.
func (r *Rate) Charge(events int, now time.Time, most time.Duration) (after time.Duration, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if passed := now.Sub(r.last).Seconds(); !r.last.IsZero() && passed > 0 {
		r.level = min(r.burst, r.level+passed*r.perSecond)
	}
	r.last = now
	left := r.level - float64(events)
	after = time.Duration(math.Ceil(max(0, -left) / r.perSecond * float64(time.Second)))
	if after > most {
		return after, false
	}
	r.level = left
	return after, true
}
