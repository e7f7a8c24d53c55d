package bubble_test

import (
	"sync"
	"testing"
	"time"

	"weft/internal/bubble"
)

// Timers that expire while nothing waits for them are run by the goroutines that receive from them, several at once.
// Under the race detector two of three runs of this test crash where [bubble.Test] is synctest.Test.
func TestReceiversOfExpiredTimersRunTogether(t *testing.T) {
	for range 200 {
		bubble.Test(t, func(*testing.T) {
			began := time.Now()
			var receivers sync.WaitGroup
			for range 8 {
				receivers.Go(func() {
					for range 100 {
						<-time.After(0)
						time.Sleep(time.Millisecond)
					}
				})
			}
			receivers.Wait()
			if took := time.Since(began); took != 100*time.Millisecond {
				t.Errorf("took %s of simulated time, want 100ms", took)
			}
		})
	}
}
