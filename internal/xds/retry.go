package xds

import (
	"maps"
	"slices"
	"time"
)

// What a client refuses is sent again after a while, since the reason may have gone: a port that was taken
// is free. The wait is doubled each time; something new that is refused begins it anew.
const (
	firstRetry = 10 * time.Second
	lastRetry  = 5 * time.Minute
)

// retry makes all that is refused due once its time has come. It answers when to ask again; zero: once
// something is refused.
func (s *session) retry(now time.Time) (next time.Time) {
	refusing, fresh := false, false
	for t := range s.subs {
		sub := &s.subs[t]
		refusing = refusing || len(sub.refused) > 0
		fresh, sub.fresh = fresh || sub.fresh, false
	}
	switch {
	case !refusing:
		s.retryAt = time.Time{}
	case fresh || s.retryAt.IsZero():
		s.retryAfter = firstRetry
		if at := now.Add(firstRetry); s.retryAt.IsZero() || at.Before(s.retryAt) {
			s.retryAt = at
		}
	case !now.Before(s.retryAt):
		for t := range s.subs {
			s.subs[t].again = slices.Sorted(maps.Keys(s.subs[t].refused))
		}
		s.retryAfter = min(2*s.retryAfter, lastRetry)
		s.retryAt = now.Add(s.retryAfter)
	}
	return s.retryAt
}
