package check

import (
	"testing"
	"time"
)

// TestPassesOverPolicies: policies are evaluated again after a change that they may read, and at a time for which one
// waits: after ten times the cost of the former pass, and not more than ten seconds.
func TestPassesOverPolicies(t *testing.T) {
	now := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		took, passed time.Duration
		relevant     uint64
		deadline     time.Time
		due          bool
	}{
		"no change":              {time.Millisecond, time.Hour, 7, time.Time{}, false},
		"a cheap pass":           {time.Millisecond, 10 * time.Millisecond, 8, time.Time{}, true},
		"a cheap pass at once":   {time.Millisecond, 9 * time.Millisecond, 8, time.Time{}, false},
		"an expensive pass":      {5 * time.Second, 10 * time.Second, 8, time.Time{}, true},
		"an expensive pass soon": {5 * time.Second, 9 * time.Second, 8, time.Time{}, false},
		"a time has come":        {time.Millisecond, time.Minute, 7, now, true},
		"a time has not come":    {time.Millisecond, time.Minute, 7, now.Add(time.Second), false},
	} {
		tracker := &Tracker{relevant: c.relevant, policies: policyPass{revision: 7, done: now.Add(-c.passed),
			took: c.took, deadline: c.deadline}}
		if got := tracker.isPassDue(now); got != c.due {
			t.Errorf("%s: a pass is due: %t", name, got)
		}
	}
	if !(&Tracker{}).isPassDue(now) {
		t.Error("no first pass is due")
	}
}
