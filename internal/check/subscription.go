package check

import (
	"context"
	"time"

	"weft/internal/wait"
)

// Difference is what has changed since a subscriber looked last.
type Difference struct {
	Revision uint64 // of the table, from which the findings are at least
	// Came and Went are the findings that exist now and did not, and those that do not exist any more. A finding whose
	// severity or text differs by more than an age is in both. One that came and went again is in neither.
	Came, Went []Finding
}

// Subscription follows the findings of a [Tracker]. It is for one goroutine.
type Subscription struct {
	tracker *Tracker
	changed wait.Signal
	known   *findingSet
}

// Subscribe begins a subscription, whose first difference is to the present findings. The caller closes it.
// Findings of objects are followed with each commit, and those of policies and of the control plane itself are as old
// as refreshInterval. It has no findings of other replicas and zones.
func (t *Tracker) Subscribe(ctx context.Context) (*Subscription, error) {
	if _, err := t.refresh(ctx); err != nil {
		return nil, err
	}
	s := &Subscription{tracker: t, changed: wait.NewSignal()}
	t.mu.Lock()
	t.subscriptions[s] = struct{}{}
	t.mu.Unlock()
	s.known = t.current()
	t.wake.Send()
	return s, nil
}

// Wakeups receives after findings have changed. Several changes are one until it has been received.
func (s *Subscription) Wakeups() <-chan struct{} { return s.changed }

// Next returns the difference to the findings of the former call. It costs as much as there are findings.
func (s *Subscription) Next() Difference {
	former, now := s.known, s.tracker.current()
	s.known = now
	return Difference{now.revision, findingsOf(now.without(former), time.Now()),
		findingsOf(former.without(now), time.Now())}
}

// Close ends the subscription.
func (s *Subscription) Close() {
	s.tracker.mu.Lock()
	defer s.tracker.mu.Unlock()
	delete(s.tracker.subscriptions, s)
}
