package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// reply is an HTTP response, read to its end.
type reply struct {
	status int
	body   []byte
}

func get(ctx context.Context, client *http.Client, url string) (reply, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return reply{}, err
	}
	response, err := client.Do(request)
	if err != nil {
		return reply{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return reply{response.StatusCode, body}, err
}

// call asks a demo service. An answer other than 200 is an error that holds it.
func call(ctx context.Context, client *http.Client, url string) (Answer, error) {
	var answer Answer
	r, err := get(ctx, client, url)
	if err != nil {
		return answer, err
	}
	if r.status != http.StatusOK {
		return answer, fmt.Errorf("%d %s", r.status, firstLine(string(r.body)))
	}
	return answer, json.Unmarshal(r.body, &answer)
}

// requestTimeout is when a client of the demo gives up; a request that takes longer has failed.
const requestTimeout = 5 * time.Second

// traffic sends requests at a constant rate, whatever becomes of those before, as many clients would.
type traffic struct {
	stop     context.CancelFunc
	stopped  chan struct{}
	requests sync.WaitGroup

	mu    sync.Mutex
	tally tally
}

// tally is what became of the requests.
type tally struct {
	sent     int
	slowest  time.Duration
	answered map[string]int // by instance
	failed   map[string]int // by reason
}

// startTraffic sends rate requests a second to url until finish is called.
func startTraffic(ctx context.Context, url string, rate int) *traffic {
	ctx, stop := context.WithCancel(ctx)
	t := &traffic{stop: stop, stopped: make(chan struct{}), tally: tally{answered: map[string]int{}, failed: map[string]int{}}}
	client := &http.Client{Timeout: requestTimeout, Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	go func() {
		defer close(t.stopped)
		defer client.CloseIdleConnections()
		tick := time.NewTicker(time.Second / time.Duration(rate))
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				t.requests.Go(func() { t.one(client, url) })
			case <-ctx.Done():
				t.requests.Wait()
				return
			}
		}
	}()
	return t
}

// one sends a request; it outlives the order to stop, so that what was begun is also counted.
func (t *traffic) one(client *http.Client, url string) {
	began := time.Now()
	answer, err := call(context.Background(), client, url)
	took := time.Since(began)

	t.mu.Lock()
	defer t.mu.Unlock()
	t.tally.sent++
	t.tally.slowest = max(t.tally.slowest, took)
	if err != nil {
		t.tally.failed[err.Error()]++
		return
	}
	t.tally.answered[answer.Instance]++
}

// finish stops, waits for the requests that are under way, and answers the tally.
func (t *traffic) finish() tally {
	t.stop()
	<-t.stopped
	return t.tally
}

// verdict says what became of the requests; it is an error where any failed, or where none was sent.
func (t tally) verdict() (string, error) {
	if len(t.failed) == 0 && t.sent > 0 {
		return fmt.Sprintf("%d requests, none failed, the slowest took %d ms", t.sent, t.slowest.Milliseconds()), nil
	}
	failures, reasons := 0, []string{}
	for _, reason := range slices.Sorted(maps.Keys(t.failed)) {
		failures += t.failed[reason]
		reasons = append(reasons, fmt.Sprintf("%d x %s", t.failed[reason], reason))
	}
	return "", fmt.Errorf("%d of %d requests failed: %s", failures, t.sent, strings.Join(reasons, "; "))
}
