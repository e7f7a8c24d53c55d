// Package traffic sends requests at a constant rate and counts what becomes of each: the measure of every
// claim that nothing is lost.
//
// The rate does not yield to slow answers, as many clients would not, so that a stall shows as requests
// that pile up and not as fewer of them. A run knows nothing of what it asks.
package traffic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Send sends one request and returns the name of the server. Its context ends at the timeout of the client.
type Send func(ctx context.Context) (by string, err error)

// Run is traffic that flows until Stop.
type Run struct {
	send     Send
	timeout  time.Duration
	stop     context.CancelFunc
	stopped  chan struct{}
	requests sync.WaitGroup
	begun    atomic.Int64

	mu    sync.Mutex
	tally Tally
}

// Start sends perSecond requests a second. A request that takes longer than the timeout has failed.
func Start(perSecond int, timeout time.Duration, send Send) *Run {
	ctx, stop := context.WithCancel(context.Background())
	r := &Run{
		send: send, timeout: timeout, stop: stop, stopped: make(chan struct{}),
		tally: Tally{Responses: map[string]int{}, Failed: map[string]int{}},
	}
	go r.keep(ctx, perSecond)
	return r
}

// keep holds the rate over the whole time: what a late tick left out is made up for.
func (r *Run) keep(ctx context.Context, perSecond int) {
	defer close(r.stopped)
	began := time.Now()
	tick := time.NewTicker(max(time.Millisecond, time.Second/time.Duration(perSecond)))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			due := int64(time.Since(began).Seconds() * float64(perSecond))
			for r.begun.Load() < due {
				r.begun.Add(1)
				r.requests.Go(r.one)
			}
		case <-ctx.Done():
			r.requests.Wait()
			return
		}
	}
}

// one outlives the order to stop, so that what was begun is also counted.
func (r *Run) one() {
	ctx, cancel := context.WithTimeout(context.Background(), r.timeout)
	defer cancel()
	began := time.Now()
	by, err := r.send(ctx)
	took := time.Since(began)

	r.mu.Lock()
	defer r.mu.Unlock()
	r.tally.Sent++
	r.tally.Slowest = max(r.tally.Slowest, took)
	if err != nil {
		r.tally.Failed[cause(err)]++
		return
	}
	r.tally.Responses[by]++
}

// Begun is how many requests were sent so far.
func (r *Run) Begun() int64 { return r.begun.Load() }

// Stop waits for the requests that are under way, and answers what became of all.
func (r *Run) Stop() Tally {
	r.stop()
	<-r.stopped
	return r.tally
}

// Tally is what became of the requests of a run.
type Tally struct {
	Sent      int
	Slowest   time.Duration
	Responses map[string]int // by who served
	Failed    map[string]int // by cause
}

// Failures is how many requests failed, and why: "3 x 503 no healthy upstream; 1 x timeout".
func (t Tally) Failures() (count int, causes string) {
	var each []string
	for _, cause := range slices.Sorted(maps.Keys(t.Failed)) {
		count += t.Failed[cause]
		each = append(each, fmt.Sprintf("%d x %s", t.Failed[cause], cause))
	}
	return count, strings.Join(each, "; ")
}

// Verdict is an error where any request failed, or where none was sent: that would prove nothing.
func (t Tally) Verdict() (string, error) {
	failures, causes := t.Failures()
	switch {
	case failures > 0:
		return "", fmt.Errorf("%d of %d requests failed: %s", failures, t.Sent, causes)
	case t.Sent == 0:
		return "", errors.New("no request was sent")
	}
	return fmt.Sprintf("%d requests, none failed, the slowest took %d ms", t.Sent, t.Slowest.Milliseconds()), nil
}

// deadlinePassed is the cause of requests whose client has reached its timeout.
const deadlinePassed = "timeout"

// WithoutDeadlines returns the tally of the requests that did not fail by their client's deadline.
func (t Tally) WithoutDeadlines() Tally {
	t.Sent -= t.Failed[deadlinePassed]
	t.Failed = maps.Clone(t.Failed)
	delete(t.Failed, deadlinePassed)
	return t
}

// cause leaves out of an error what differs from one request to the next, such as a connection's port.
func cause(err error) string {
	var number syscall.Errno
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return deadlinePassed
	case errors.As(err, &number):
		return number.Error()
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "connection closed"
	}
	first, _, _ := strings.Cut(strings.TrimSpace(err.Error()), "\n")
	return first
}

// Dial makes the connections of a client, as [net.Dialer.DialContext] does; nil is that one.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// Get asks a URL.
func Get(url string) Send { return Dial(nil).Get(url) }

// Post asks a URL in a way that no proxy may repeat once it was seen.
func Post(url string) Send { return Dial(nil).Post(url) }

// Get asks a URL over these connections.
func (d Dial) Get(url string) Send { return d.request(http.MethodGet, url) }

// Post asks a URL over these connections, in a way that no proxy may repeat once it was seen.
func (d Dial) Post(url string) Send { return d.request(http.MethodPost, url) }

// request makes requests of one method. An answer other than 200 is a failure, with its status and first line; the first word of
// another one is who served it. Few connections idle, so that requests share them as a client's do.
func (d Dial) request(method, url string) Send {
	return By(&http.Transport{MaxIdleConnsPerHost: 64, DialContext: d}, method, url)
}

// By asks a URL with a method over a transport of the caller's.
func By(transport http.RoundTripper, method, url string) Send {
	client := &http.Client{Transport: transport}
	return func(ctx context.Context) (string, error) {
		request, err := http.NewRequestWithContext(ctx, method, url, nil)
		if err != nil {
			return "", err
		}
		response, err := client.Do(request)
		if err != nil {
			return "", err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		switch {
		case err != nil:
			return "", err
		case response.StatusCode != http.StatusOK:
			return "", fmt.Errorf("%d %s", response.StatusCode, body)
		}
		by, _, _ := strings.Cut(string(body), " ")
		return by, nil
	}
}
