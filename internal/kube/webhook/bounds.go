package webhook

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"runtime"
	"sync"
	"time"

	"weft/internal/connlimit"
)

// Bounds of the port. Every client reaches it, and an API server has no certificate there by default. An API server has
// one or two connections, and its requests have little to wait for.
const (
	maxConns, maxConnsOfSource = 128, 16
	// maxStreams bounds the requests of a connection.
	maxStreams = 100
	// maxBodies and maxBodiesOfSource bound the bodies that are in memory, each of maxBody at most.
	maxBodies, maxBodiesOfSource = 32, 16
	// bodyTimeout is the time in which a body arrives, so that a slow client keeps no place of another one.
	bodyTimeout = 5 * time.Second
)

// maxReviews is the number of handlers that run at once, of one source half as many. They need processor time.
func maxReviews() int { return max(4, 2*runtime.GOMAXPROCS(0)) }

// places are the places of requests, as a whole and for each source. A request waits for a place.
type places struct {
	total, each int

	mu    sync.Mutex
	taken int
	of    map[netip.Prefix]int
	// freed is closed when a place becomes free.
	freed chan struct{}
}

func newPlaces(total, each int) *places {
	return &places{total: total, each: each, of: map[netip.Prefix]int{}, freed: make(chan struct{})}
}

// errBusy is the error of a request that got no place while its client waited.
var errBusy = errors.New("the control plane reviews as many requests as it may; send the request again")

// take waits for a place for a source, until ctx ends. The returned function frees it.
func (p *places) take(ctx context.Context, source netip.Prefix) (free func(), err error) {
	for {
		p.mu.Lock()
		if p.taken < p.total && p.of[source] < p.each {
			p.taken++
			p.of[source]++
			p.mu.Unlock()
			return sync.OnceFunc(func() { p.free(source) }), nil
		}
		freed := p.freed
		p.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
			return nil, errBusy
		}
	}
}

func (p *places) free(source netip.Prefix) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
	if p.of[source]--; p.of[source] == 0 {
		delete(p.of, source)
	}
	close(p.freed)
	p.freed = make(chan struct{})
}

// sourceOf returns the source of a request.
func sourceOf(request *http.Request) netip.Prefix { return connlimit.Source(request.RemoteAddr) }
