package agent

import (
	"context"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/backoff"
)

// reconnect is how the connection to the control plane comes back: soon, and with enough jitter that the
// agents of a large mesh do not come all at once.
var reconnect = backoff.Config{BaseDelay: 200 * time.Millisecond, Multiplier: 1.6, Jitter: 0.3,
	MaxDelay: 5 * time.Second}

// refusedPause is how long a proxy waits at most until it asks again that was refused, so that it is back soon after
// it is let in, and a thousand of them cost nothing.
const refusedPause = 20 * time.Second

// retry grows from a fifth of a second to ten seconds, each wait somewhere between half and all of it.
type retry struct{ next time.Duration }

func newBackoff() *retry { return &retry{next: 200 * time.Millisecond} }

func (r *retry) wait(ctx context.Context) { r.waitOr(ctx, nil) }

// waitOr waits until something has changed, and as long as wait at most.
func (r *retry) waitOr(ctx context.Context, changed <-chan struct{}) {
	pause := r.next/2 + rand.N(r.next/2)
	r.next = min(2*r.next, 10*time.Second)
	select {
	case <-changed:
	case <-time.After(pause):
	case <-ctx.Done():
	}
}

// waitAtLeast waits for a time that the control plane gave, and then for up to a fifth of a second more, so that agents
// with the same time do not come together. It waits as wait does where that is longer.
func (r *retry) waitAtLeast(ctx context.Context, pause time.Duration) {
	if pause <= r.next {
		r.wait(ctx)
		return
	}
	select {
	case <-time.After(pause + rand.N(200*time.Millisecond)):
	case <-ctx.Done():
	}
}

// refused makes the next wait as long as one may be whom the control plane refuses: it is to change its mind only
// when a person has done something.
func (r *retry) refused() { r.next = refusedPause }

func (r *retry) reset() { *r = *newBackoff() }
