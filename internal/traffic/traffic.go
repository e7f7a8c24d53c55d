// Package traffic sends requests at a constant rate and counts their results. Tests use it to show that no request is
// lost.
//
// Slow responses do not reduce the rate, so a stall shows as concurrent requests and not as fewer requests, up to the
// bound of the Load. A Run does not know its server.
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

// Load is the requests that a client sends.
type Load struct {
	PerSecond int
	// Timeout is the time after which a request without a response has failed.
	Timeout time.Duration
	// MaxOpen is the largest number of requests without a response. While as many are open, no request is sent, so
	// that a machine that is too slow for the rate gets fewer requests instead of ever more. 0: there is no bound.
	MaxOpen int
}

// Run is traffic until Stop.
type Run struct {
	load     Load
	send     Send
	stop     context.CancelFunc
	stopped  chan struct{}
	requests sync.WaitGroup
	begun    atomic.Int64

	mu    sync.Mutex
	open  map[int64]time.Time // the times at which requests without a response were sent, by their numbers
	tally Tally
	start time.Time
}

// Start sends perSecond requests a second. A request without a response after timeout has failed.
func Start(perSecond int, timeout time.Duration, send Send) *Run {
	return Load{PerSecond: perSecond, Timeout: timeout}.Start(send)
}

// Start sends the requests of the load.
func (l Load) Start(send Send) *Run {
	ctx, stop := context.WithCancel(context.Background())
	r := &Run{
		load: l, send: send, stop: stop, stopped: make(chan struct{}), start: time.Now(), open: map[int64]time.Time{},
		tally: Tally{Responses: map[string]int{}, Failed: map[string]int{}},
	}
	go r.keep(ctx)
	return r
}

// keep keeps the average rate: after a late tick it sends the missing requests. Requests above the bound are not sent
// later.
func (r *Run) keep(ctx context.Context) {
	defer close(r.stopped)
	tick := time.NewTicker(max(time.Millisecond, time.Second/time.Duration(r.load.PerSecond)))
	defer tick.Stop()
	for decided := int64(0); ; {
		select {
		case <-tick.C:
			due := int64(time.Since(r.start).Seconds() * float64(r.load.PerSecond))
			for ; decided < due; decided++ {
				if number, began := r.begin(); number > 0 {
					r.requests.Go(func() { r.complete(number, began) })
				}
			}
		case <-ctx.Done():
			r.requests.Wait()
			return
		}
	}
}

// begin opens a request and returns its number, or 0 while as many are open as the load allows.
func (r *Run) begin() (number int64, began time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.load.MaxOpen > 0 && len(r.open) >= r.load.MaxOpen {
		r.tally.Unsent++
		return 0, time.Time{}
	}
	number, began = r.begun.Add(1), time.Now()
	r.open[number] = began
	return number, began
}

// complete sends an open request and counts its result. It continues after Stop, so that each open request is counted.
func (r *Run) complete(number int64, began time.Time) {
	ctx, cancel := context.WithTimeout(context.Background(), r.load.Timeout)
	defer cancel()
	by, err := r.send(ctx)
	took := time.Since(began)

	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, number)
	r.tally.Sent++
	if took > r.tally.Slowest {
		r.tally.Slowest, r.tally.SlowestAfter = took, began.Sub(r.start)
	}
	if err != nil {
		r.tally.Failed[cause(err)]++
		r.tally.fail(began, began)
		return
	}
	r.tally.Responses[by]++
}

// Begun returns the number of requests sent so far.
func (r *Run) Begun() int64 { return r.begun.Load() }

// Open returns the number of requests without a response that were sent before a time.
func (r *Run) Open(before time.Time) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, began := range r.open {
		if began.Before(before) {
			n++
		}
	}
	return n
}

// Stop waits for open requests and returns the results of all.
func (r *Run) Stop() Tally {
	r.stop()
	<-r.stopped
	return r.tally
}

// Tally has the results of the requests of a run.
type Tally struct {
	Sent int
	// Unsent counts the requests that were due while as many as the load allows were open. They are no failures.
	Unsent  int
	Slowest time.Duration
	// SlowestAfter is the time from the start of the run until the slowest request was sent.
	SlowestAfter time.Duration
	Responses    map[string]int // by server
	Failed       map[string]int // by cause
	// FirstFailed and LastFailed are the times at which the first and the last of the failed requests were sent.
	FirstFailed, LastFailed time.Time
}

// fail extends the time of the failed requests.
func (t *Tally) fail(first, last time.Time) {
	if t.FirstFailed.IsZero() || first.Before(t.FirstFailed) {
		t.FirstFailed = first
	}
	if last.After(t.LastFailed) {
		t.LastFailed = last
	}
}

// Failures returns the number of failed requests and their causes: "3 x 503 no healthy upstream; 1 x timeout".
func (t Tally) Failures() (count int, causes string) {
	var each []string
	for _, cause := range slices.Sorted(maps.Keys(t.Failed)) {
		count += t.Failed[cause]
		each = append(each, fmt.Sprintf("%d x %s", t.Failed[cause], cause))
	}
	return count, strings.Join(each, "; ")
}

// Verdict returns an error where a request failed, or where none was sent.
func (t Tally) Verdict() (string, error) {
	failures, causes := t.Failures()
	switch {
	case failures > 0:
		const ofLogs = "15:04:05.000Z"
		return "", fmt.Errorf("%d of %d requests failed: %s (sent from %s to %s)", failures, t.Sent, causes,
			t.FirstFailed.UTC().Format(ofLogs), t.LastFailed.UTC().Format(ofLogs))
	case t.Sent == 0:
		return "", errors.New("no request was sent")
	}
	unsent := ""
	if t.Unsent > 0 {
		unsent = fmt.Sprintf(", %d more were due while too many were open", t.Unsent)
	}
	return fmt.Sprintf("%d requests, none failed, the slowest took %d ms%s", t.Sent, t.Slowest.Milliseconds(), unsent),
		nil
}

// Plus returns the tally of the requests of both.
func (t Tally) Plus(o Tally) Tally {
	sum := t
	if o.Slowest > t.Slowest {
		sum.Slowest, sum.SlowestAfter = o.Slowest, o.SlowestAfter
	}
	if !o.FirstFailed.IsZero() {
		sum.fail(o.FirstFailed, o.LastFailed)
	}
	sum.Sent, sum.Unsent = t.Sent+o.Sent, t.Unsent+o.Unsent
	sum.Responses, sum.Failed = plus(t.Responses, o.Responses), plus(t.Failed, o.Failed)
	return sum
}

func plus(a, b map[string]int) map[string]int {
	sum := map[string]int{}
	for _, counts := range []map[string]int{a, b} {
		for name, n := range counts {
			sum[name] += n
		}
	}
	return sum
}

// deadlinePassed is the cause of requests whose client has reached its timeout.
const deadlinePassed = "timeout"

// WithoutDeadlines returns the tally without requests that failed by their client's deadline.
func (t Tally) WithoutDeadlines() Tally {
	t.Sent -= t.Failed[deadlinePassed]
	t.Failed = maps.Clone(t.Failed)
	delete(t.Failed, deadlinePassed)
	return t
}

// cause removes from an error the parts that differ between requests, such as a connection's port.
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

// Dial opens the connections of a client, like [net.Dialer.DialContext], which is the default.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// Get sends GET requests to a URL.
func Get(url string) Send { return Dial(nil).Get(url) }

// Post sends POST requests to a URL. No proxy may retry such a request once a server may have seen it.
func Post(url string) Send { return Dial(nil).Post(url) }

// Get sends GET requests to a URL over these connections.
func (d Dial) Get(url string) Send { return d.request(http.MethodGet, url) }

// Post sends POST requests to a URL over these connections. No proxy may retry such a request once a server may have
// seen it.
func (d Dial) Post(url string) Send { return d.request(http.MethodPost, url) }

// request returns a Send of one method. A response other than 200 is a failure, with its status and first line; the
// first word of a 200 is the server's name. Few connections are idle, so that requests share them as a client's do.
func (d Dial) request(method, url string) Send {
	return SendOver(&http.Transport{MaxIdleConnsPerHost: 64, DialContext: d}, method, url)
}

// SendOver sends requests of a method to a URL over a transport of the caller.
func SendOver(transport http.RoundTripper, method, url string) Send {
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
