package reconcile

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"weft/internal/graph"
)

// settleWriters write at the same time, so that the store can commit what is of one moment together.
const settleWriters = 32

// settle begins to wait for a topic, unless that is waited for already, and then writes. Whatever came of
// it, the unit is asked anew.
func (rc *Reconciler) settle(ctx context.Context, u Unit, s *Settle) {
	rc.mu.Lock()
	_, waiting := rc.behind[s.Topic]
	if !waiting {
		rc.behind[s.Topic] = nil
	}
	rc.mu.Unlock()
	if waiting {
		return
	}
	go func() {
		err := rc.settler.Settled(ctx, s.Mesh, s.Everybody, s.Rows, func(behind []graph.ProxyKey) {
			rc.noteBehind(s.Topic, behind)
			rc.ask(u, time.Now())
		})
		if err == nil {
			err = rc.writeSettled(ctx, s)
		}
		rc.mu.Lock()
		delete(rc.behind, s.Topic)
		rc.mu.Unlock()
		if err != nil && ctx.Err() == nil {
			rc.log.Warn("what has settled could not be stored", "topic", s.Topic, "again", retry, "error", err)
		}
		rc.ask(u, time.Now().Add(retry))
	}()
}

func (rc *Reconciler) writeSettled(ctx context.Context, s *Settle) error {
	writers, ctx := errgroup.WithContext(ctx)
	writers.SetLimit(settleWriters)
	for _, o := range s.Then {
		writers.Go(func() error { return rc.writer.Put(ctx, o) })
	}
	return writers.Wait()
}

func (rc *Reconciler) noteBehind(topic string, behind []graph.ProxyKey) {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	rc.behind[topic] = behind
}

// behindOf are the proxies that a topic waits for, as far as it is known.
func (rc *Reconciler) behindOf(topic string) []graph.ProxyKey {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	return rc.behind[topic]
}
