package view

import (
	"context"
	"errors"
	"time"

	"weft/internal/store"
	"weft/internal/wait"
)

// lagPeriod is the time between two comparisons of the state with the store.
const lagPeriod = 5 * time.Second

// Lag is a time in which the state lacks changes that are stored, of this replica or of others.
type Lag struct {
	Since  time.Time // the first comparison that has failed; zero: the state has everything
	Reason string    // for users
}

// ObserveLag compares the state with the store until ctx ends. Whatever the reason is for which no change arrives, such
// as a notification that is never sent, it shows. A store without an order of all writes has nothing to compare.
func (v *View) ObserveLag(ctx context.Context) {
	for wait.Sleep(ctx, lagPeriod) == nil {
		began := time.Now()
		err := v.awaitStored(ctx, Timeout)
		if ctx.Err() == nil {
			v.recordLag(began, err)
		}
	}
}

func (v *View) recordLag(began time.Time, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case err == nil:
		v.lag = Lag{}
		return
	case v.lag.Since.IsZero():
		v.lag.Since = began
	}
	if v.lag.Reason = errLagging.Error(); !errors.Is(err, errLagging) {
		v.lag.Reason = store.Why(err)
	}
}

// Lag returns what [View.ObserveLag] has found last.
func (v *View) Lag() Lag {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.lag
}
