package push_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"weft/internal/bubble"
	"weft/internal/graph"
	"weft/internal/push"
	"weft/internal/table"
	"weft/internal/xds"
	"weft/resource"
)

// A value that waits for a time is recomputed then, also where an earlier time came while a later one was waited for.
func TestATimeThatAValueWaitsForIsCommitted(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		state, began := graph.NewState("east"), time.Now()
		past := table.NewDerived(state.Tables.DB, "past", func(r *table.Reader, in time.Duration) bool {
			return r.Past(began.Add(in))
		},
			func(a, b bool) bool { return a == b })
		hub := push.NewHub(state, xds.NewCatalog(), slog.New(slog.DiscardHandler))
		came := map[time.Duration]time.Duration{}
		hub.Follow(func(_ []resource.Any, _ []resource.Key, commits []*table.Changes, now time.Time) {
			for _, c := range commits {
				for in := range table.ChangedValues(past, c) {
					came[in] = now.Sub(began)
				}
			}
		})
		hub.Commit(func(*table.Tx) {})
		past.Pin(time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go hub.KeepTime(ctx)
		synctest.Wait()
		hub.Commit(func(*table.Tx) { past.Pin(time.Minute) })
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		for _, in := range []time.Duration{time.Minute, time.Hour} {
			if came[in] != in {
				t.Errorf("what waits for %v is recomputed after %v", in, came[in])
			}
		}
	})
}
