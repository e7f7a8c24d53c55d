package dpserver

import (
	"context"
	"runtime"
	"runtime/debug"
	"sync/atomic"

	"weft/internal/push"
)

// reclaim gives back to the operating system what connecting proxies have left behind: requests, responses, handshakes
// and grown stacks. The Go runtime would keep it for minutes. The event is that all streams are in sync after much work,
// so that the cost of a collection is a small share of the cost of that work.
type reclaim struct {
	streams func() int
	sent    func() uint64 // bytes to all streams, ever
	wake    chan struct{} // of one
	opened  atomic.Uint64 // streams, ever
	last    atomic.Uint64 // work, when memory was last given back
}

// Much work is workEach bytes for each stream, and workLeast at the least.
const (
	workEach  = 32 << 10 // bytes sent; opening a stream counts as many
	workLeast = 8 << 20
)

// giveBack gives to the operating system what is not in use. The first collection leaves the pools of buffers and the
// freed stacks to the second one.
func giveBack() {
	runtime.GC()
	debug.FreeOSMemory()
}

func newReclaim(streams func() int, sent func() uint64) *reclaim {
	return &reclaim{streams: streams, sent: sent, wake: make(chan struct{}, 1)}
}

// work is what was done for streams, ever, in bytes sent.
func (m *reclaim) work() uint64 { return m.sent() + workEach*m.opened.Load() }

// noteOpened is called when a stream is opened. It does not block.
func (m *reclaim) noteOpened() {
	m.opened.Add(1)
	m.note()
}

// note is called when a stream is in sync. It does not block.
func (m *reclaim) note() {
	if m.due() {
		select {
		case m.wake <- struct{}{}:
		default: // run looks anyway
		}
	}
}

func (m *reclaim) due() bool {
	return m.work()-m.last.Load() >= max(workLeast, workEach*uint64(m.streams()))
}

// run calls free when all streams are in sync after much work, until ctx ends. inSync returns once the streams
// that are open are in sync; streams that never are hold it up for [push.Bound].
func (m *reclaim) run(ctx context.Context, inSync func(context.Context), free func()) {
	for {
		select {
		case <-m.wake:
		case <-ctx.Done():
			return
		}
		for before := -1; before != m.streams() && ctx.Err() == nil; {
			before = m.streams()
			bounded, cancel := context.WithTimeout(ctx, push.Bound)
			inSync(bounded)
			cancel()
		}
		if m.due() && ctx.Err() == nil {
			m.last.Store(m.work())
			free()
		}
	}
}
