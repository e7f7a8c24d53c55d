package agent

import (
	"context"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/backoff"

	"weft/internal/wait"
)

// reconnect is the backoff of connections to the control plane. Its jitter keeps the agents of a large mesh from
// reconnecting at once.
var reconnect = backoff.Config{BaseDelay: 200 * time.Millisecond, Multiplier: 1.6, Jitter: 0.3,
	MaxDelay: 5 * time.Second}

// rejectedPause is the pause after a rejected request. The proxy is back soon after it is admitted, and a thousand
// rejected proxies cost little.
const rejectedPause = 20 * time.Second

// retry is a backoff from 0.2 s to 10 s. Each wait takes between half and all of it.
type retry struct{ next time.Duration }

func newBackoff() *retry { return &retry{next: 200 * time.Millisecond} }

func (r *retry) wait(ctx context.Context) { r.waitOr(ctx, nil) }

// waitOr waits until a change, or as long as wait.
func (r *retry) waitOr(ctx context.Context, changed <-chan struct{}) {
	pause := r.next/2 + rand.N(r.next/2)
	r.next = min(2*r.next, 10*time.Second)
	_ = wait.Change(ctx, changed, pause)
}

// waitAtLeast waits for a pause that the control plane gave, plus up to 0.2 s, so that agents with the same pause do
// not return at once. It waits as long as wait if that is longer.
func (r *retry) waitAtLeast(ctx context.Context, pause time.Duration) {
	if pause <= r.next {
		r.wait(ctx)
		return
	}
	_ = wait.Sleep(ctx, pause+rand.N(200*time.Millisecond))
}

// waitLonger sets the next wait to rejectedPause: only an operator's change lets the request succeed.
func (r *retry) waitLonger() { r.next = rejectedPause }

func (r *retry) reset() { *r = *newBackoff() }
