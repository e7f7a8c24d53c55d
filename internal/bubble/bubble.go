// Package bubble runs tests whose time is simulated, in bubbles of testing/synctest.
package bubble

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
)

// Test runs f in a new bubble, as [synctest.Test] does: time advances when every goroutine of the bubble waits.
//
// Under the race detector all goroutines run on one processor for as long as any bubble exists. The timers of a bubble
// have one context of the race detector, which the runtime uses on each thread where a goroutine receives from a timer
// that has expired; on two threads at once the detector itself crashes (SIGSEGV in __tsan::SlotLock, Go 1.26). Races
// are still found: the detector compares the order that locks and channels give, not the times.
func Test(t *testing.T, f func(*testing.T)) {
	t.Helper()
	if raceEnabled {
		oneProcessor.enter()
		defer oneProcessor.leave()
	}
	synctest.Test(t, f)
}

var oneProcessor processors

// processors counts the bubbles that exist, so that the first of them takes the processors away and the last returns
// them, also where tests are parallel.
type processors struct {
	mu      sync.Mutex
	bubbles int
	before  int
}

func (p *processors) enter() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bubbles == 0 {
		p.before = runtime.GOMAXPROCS(1)
	}
	p.bubbles++
}

func (p *processors) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bubbles--
	if p.bubbles == 0 {
		runtime.GOMAXPROCS(p.before)
	}
}
