package xds

import (
	"maps"
	"slices"
	"time"
)

// A rejected resource is sent again after a while, since the reason may have gone: a port that was in use may be free.
// The wait doubles each time; a newly rejected resource resets it.
const (
	firstRetry = 10 * time.Second
	lastRetry  = 5 * time.Minute
)

// retry makes all rejected resources due once their time has come. It returns the time of the next call; zero: none is
// needed until a resource is rejected.
func (s *session) retry(now time.Time) (next time.Time) {
	rejecting, fresh := false, false
	for t := range s.subs {
		sub := &s.subs[t]
		rejecting = rejecting || len(sub.nacks) > 0
		fresh, sub.fresh = fresh || sub.fresh, false
	}
	switch {
	case !rejecting:
		s.retryAt = time.Time{}
	case fresh || s.retryAt.IsZero():
		s.retryAfter = firstRetry
		if at := now.Add(firstRetry); s.retryAt.IsZero() || at.Before(s.retryAt) {
			s.retryAt = at
		}
	case !now.Before(s.retryAt):
		for t := range s.subs {
			s.subs[t].again = slices.Sorted(maps.Keys(s.subs[t].nacks))
		}
		s.retryAfter = min(2*s.retryAfter, lastRetry)
		s.retryAt = now.Add(s.retryAfter)
	}
	return s.retryAt
}
