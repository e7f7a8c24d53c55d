package dpserver

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"weft/internal/bubble"
)

func TestMemoryIsGivenBackOnceManyStreamsAreInSync(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var streams, sent atomic.Int64
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		synced := make(chan struct{})
		freed := 0
		r := newReclaim(func() int { return int(streams.Load()) }, func() uint64 { return uint64(sent.Load()) })
		go r.run(ctx, func(context.Context) { <-synced }, func() { freed++ })
		send := func(bytes int64) {
			sent.Add(bytes)
			r.noteInSync()
			synctest.Wait()
		}

		streams.Store(1000)
		send(1000*workEach - 1)
		if freed != 0 || len(r.wake) != 0 {
			t.Errorf("a few bytes are worth %d collections", freed)
		}
		send(1)
		if freed != 0 {
			t.Error("memory is given back before the streams are in sync")
		}
		streams.Store(1200) // more streams have opened meanwhile
		synced <- struct{}{}
		synctest.Wait()
		if freed != 0 {
			t.Error("memory is given back while proxies connect")
		}
		send(200 * workEach)
		synced <- struct{}{}
		synctest.Wait()
		if freed != 1 {
			t.Errorf("1,200 streams are in sync, and memory was given back %d times, want once", freed)
		}
		synced <- struct{}{} // it waited again, since more was sent meanwhile
		synctest.Wait()
		send(680 * 1200)
		if freed != 1 || len(r.wake) != 0 {
			t.Errorf("%d collections for a change of one endpoint, want none", freed-1)
		}
		streams.Store(10)
		send(10 * workEach)
		if freed != 1 || len(r.wake) != 0 {
			t.Errorf("%d collections for a few streams, want none", freed-1)
		}
		// Proxies that reconnect and are sent nothing leave memory too.
		streams.Store(400)
		for range 400 {
			r.noteOpened()
		}
		synctest.Wait()
		synced <- struct{}{}
		synctest.Wait()
		if freed != 2 {
			t.Errorf("many proxies came back, and memory was given back %d times, want once", freed-1)
		}
		close(synced)
	})
}
