package traffic

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weft/internal/bubble"
	"weft/internal/testwait"
)

// serveUntil responds with "backend-1", and breaks the connections that broken selects. reached closes at the n-th
// request.
func serveUntil(t *testing.T, n int32, broken func(request int32) bool) (url string, reached chan struct{}) {
	t.Helper()
	reached = make(chan struct{})
	var count atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		i := count.Add(1)
		if i == n {
			close(reached)
		}
		if broken(i) {
			http.Error(w, "upstream connect error", http.StatusServiceUnavailable)
			return
		}
		io.WriteString(w, "backend-1 here")
	}))
	t.Cleanup(server.Close)
	return server.URL, reached
}

func TestTrafficCountsEveryFailure(t *testing.T) {
	url, reached := serveUntil(t, 20, func(i int32) bool { return i == 3 || i == 7 })
	began := time.Now()
	running := Start(500, testwait.Timeout, Get(url))
	<-reached
	count := running.Stop()
	if count.FirstFailed.Before(began) || !count.LastFailed.After(count.FirstFailed) ||
		count.LastFailed.After(time.Now()) {
		t.Errorf("failed from %s to %s, want two times since %s", count.FirstFailed, count.LastFailed, began)
	}
	if count.Sent < 20 || count.Responses["backend-1"] != count.Sent-2 {
		t.Errorf("%d sent, %d answered, want at least 20 and all but two", count.Sent, count.Responses["backend-1"])
	}
	_, err := count.Verdict()
	if err == nil || !strings.Contains(err.Error(), "2 x 503 upstream connect error") {
		t.Errorf("the verdict is %v, want it to name both failures and their answer", err)
	}
}

func TestTrafficWithoutFailureHolds(t *testing.T) {
	url, reached := serveUntil(t, 10, func(int32) bool { return false })
	running := Start(500, testwait.Timeout, Get(url))
	<-reached
	if text, err := running.Stop().Verdict(); err != nil || !strings.Contains(text, "none failed") {
		t.Errorf("the verdict is %q, %v, want that none failed", text, err)
	}
}

func TestTrafficThatNeverRanProvesNothing(t *testing.T) {
	if text, err := (Tally{}).Verdict(); err == nil {
		t.Errorf("the verdict on no requests is %q, want an error", text)
	}
}

func TestTrafficCountsLostConnections(t *testing.T) {
	reached := make(chan struct{})
	var once sync.Once
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		once.Do(func() { close(reached) })
		panic(http.ErrAbortHandler) // closes the connection without a response
	}))
	t.Cleanup(server.Close)
	running := Start(500, testwait.Timeout, Get(server.URL))
	<-reached
	count := running.Stop()
	if count.Failed["connection closed"] != count.Sent || count.Sent == 0 {
		t.Errorf("of %d requests failed %v, want all, by one cause", count.Sent, count.Failed)
	}
}

func TestTheRateHoldsWhenResponsesAreSlow(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		running := Start(1000, 5*time.Second, func(context.Context) (string, error) {
			time.Sleep(time.Second)
			return "slow", nil
		})
		time.Sleep(3 * time.Second)
		count := running.Stop()
		if count.Sent < 2990 || count.Sent > 3010 || count.Slowest != time.Second {
			t.Errorf("%d requests in 3 s, the slowest took %v; want 1000 a second that took a second each", count.Sent,
				count.Slowest)
		}
	})
}

func TestNoMoreRequestsAreOpenThanTheLoadAllows(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		load := Load{PerSecond: 1000, Timeout: 5 * time.Second, MaxOpen: 10}
		var open atomic.Int64
		running := load.Start(func(context.Context) (string, error) {
			if n := open.Add(1); n > 10 {
				t.Errorf("%d requests are open, want 10 at most", n)
			}
			time.Sleep(time.Second)
			open.Add(-1)
			return "slow", nil
		})
		time.Sleep(2500 * time.Millisecond)
		count := running.Stop()
		if count.Sent != 30 || count.Unsent < 2400 || count.Unsent > 2500 {
			t.Errorf("%d sent and %d not, want 10 at once, and the others not", count.Sent, count.Unsent)
		}
		if text, err := count.Verdict(); err != nil || !strings.Contains(text, "due while too many were open") {
			t.Errorf("the verdict is %q, %v, want the number of unsent requests", text, err)
		}
	})
}

func TestOpenRequestsAreCountedByTheTimeOfTheirBeginning(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		running := Start(10, 5*time.Second, func(context.Context) (string, error) {
			time.Sleep(time.Second)
			return "slow", nil
		})
		time.Sleep(2050 * time.Millisecond)
		began := time.Now()
		if n := running.Open(began); n != 10 {
			t.Errorf("%d of the requests of the last second are open, want 10", n)
		}
		time.Sleep(500 * time.Millisecond)
		if early, all := running.Open(began), running.Open(time.Now()); early != 5 || all != 10 {
			t.Errorf("%d are open, %d of them of the time before, want 10 and 5", all, early)
		}
		running.Stop()
		if n := running.Open(time.Now()); n != 0 {
			t.Errorf("%d are open after the end", n)
		}
	})
}

func TestTalliesAreAdded(t *testing.T) {
	early, later, last := time.Unix(1, 0), time.Unix(2, 0), time.Unix(3, 0)
	one := Tally{Sent: 3, Unsent: 1, Slowest: 2, SlowestAfter: 7, Responses: map[string]int{"a": 2},
		Failed: map[string]int{"x": 1}, FirstFailed: early, LastFailed: later}
	other := Tally{Sent: 4, Unsent: 2, Slowest: 5, SlowestAfter: 1, Responses: map[string]int{"a": 1, "b": 2},
		Failed: map[string]int{"x": 1}, FirstFailed: later, LastFailed: last}
	want := Tally{Sent: 7, Unsent: 3, Slowest: 5, SlowestAfter: 1, Responses: map[string]int{"a": 3, "b": 2},
		Failed: map[string]int{"x": 2}, FirstFailed: early, LastFailed: last}
	for _, sum := range []Tally{one.Plus(other), other.Plus(one)} {
		if !reflect.DeepEqual(sum, want) {
			t.Errorf("the sum is %+v, want %+v", sum, want)
		}
	}
	if one.Responses["a"] != 2 || one.Failed["x"] != 1 {
		t.Errorf("an addend has changed: %+v", one)
	}
}

func TestDeadlinesAreLeftOut(t *testing.T) {
	all := Tally{Sent: 5, Responses: map[string]int{"backend-1": 2},
		Failed: map[string]int{deadlinePassed: 2, "503 overflow": 1}}
	rest := all.WithoutDeadlines()
	if _, err := rest.Verdict(); err == nil ||
		!strings.Contains(err.Error(), "1 of 3 requests failed: 1 x 503 overflow") {
		t.Errorf("the verdict is %v, want the one failure of 3 requests", err)
	}
	if all.Failed[deadlinePassed] != 2 {
		t.Errorf("the whole tally has changed: %v", all)
	}
}
