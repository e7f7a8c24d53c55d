package server

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"weft/internal/bubble"
	"weft/internal/table"
	"weft/internal/wait"
)

// TestStatusesAreComputedSoonAfterAChange: a pass follows each change at once, and changes in quick succession are one
// further pass. Expensive passes have long pauses, a minute at most, and at rest there is none.
func TestStatusesAreComputedSoonAfterAChange(t *testing.T) {
	for name, test := range map[string]struct {
		takes time.Duration
		want  []time.Duration // when passes begin
	}{
		"cheap":     {0, []time.Duration{0, 10 * time.Second, 11 * time.Second, 100 * time.Second}},
		"expensive": {time.Second / 2, []time.Duration{0, 18500 * time.Millisecond, 100 * time.Second}},
		"huge":      {10 * time.Second, []time.Duration{0, 70 * time.Second, 140 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				var changed wait.Broadcast
				var passes []time.Duration
				began, ended := time.Now(), make(chan struct{})
				go func() {
					defer close(ended)
					followSnapshots(ctx, changed.Next, func() *table.Snapshot { return nil }, func(*table.Snapshot) {
						passes = append(passes, time.Since(began))
						time.Sleep(test.takes)
					})
				}()
				time.Sleep(10 * time.Second)
				synctest.Wait()
				for range 5 {
					changed.Send()
					time.Sleep(100 * time.Millisecond)
				}
				time.Sleep(100*time.Second - time.Since(began))
				changed.Send()
				time.Sleep(time.Hour)
				cancel()
				<-ended
				if !slices.Equal(passes, test.want) {
					t.Errorf("passes begin after %v, want %v", passes, test.want)
				}
			})
		})
	}
}
