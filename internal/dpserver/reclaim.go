package dpserver

import (
	"context"
	"runtime"
	"runtime/debug"
	"sync/atomic"

	"weft/internal/push"
	"weft/internal/wait"
)

// memoryReclaimer returns memory to the operating system after many proxies have connected: requests, responses,
// handshakes and grown stacks. The Go runtime would keep it for minutes. It runs once all streams are in sync after
// much work, so that a garbage collection costs little compared to that work.
type memoryReclaimer struct {
	streams func() int
	sent    func() uint64 // bytes to all streams since the start
	wake    wait.Signal
	opened  atomic.Uint64 // streams since the start
	last    atomic.Uint64 // work when memory was released last
}

// Much work is workEach bytes per stream, and at least workLeast.
const (
	workEach  = 32 << 10 // bytes sent; an opened stream counts as many
	workLeast = 8 << 20
)

// releaseMemory releases unused memory. The second collection releases the buffer pools and stacks that the first one
// has freed.
func releaseMemory() {
	runtime.GC()
	debug.FreeOSMemory()
}

func newReclaim(streams func() int, sent func() uint64) *memoryReclaimer {
	return &memoryReclaimer{streams: streams, sent: sent, wake: wait.NewSignal()}
}

// workDone is the work for streams since the start, in bytes sent.
func (m *memoryReclaimer) workDone() uint64 { return m.sent() + workEach*m.opened.Load() }

// noteOpened is called when a stream is opened. It does not block.
func (m *memoryReclaimer) noteOpened() {
	m.opened.Add(1)
	m.noteInSync()
}

// noteInSync is called when a stream is in sync. It does not block.
func (m *memoryReclaimer) noteInSync() {
	if m.due() {
		m.wake.Send()
	}
}

func (m *memoryReclaimer) due() bool {
	return m.workDone()-m.last.Load() >= max(workLeast, workEach*uint64(m.streams()))
}

// run calls free when all streams are in sync after much work, until ctx ends. awaitInSync returns once all open
// streams are in sync; it waits at most [push.Bound] for a stream that never is.
func (m *memoryReclaimer) run(ctx context.Context, inSync func(context.Context), free func()) {
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
			m.last.Store(m.workDone())
			free()
		}
	}
}
