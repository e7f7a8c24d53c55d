package webhook

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"weft/internal/testwait"
)

// serverOf starts the server of a handler at /h, as a control plane has it without TLS. It returns its address, and
// the number of requests that have arrived.
func serverOf(t *testing.T, h Handler) (string, *atomic.Int32) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	arrived := &atomic.Int32{}
	handler := New(map[string]Handler{"/h": h}, log)
	server := NewHTTPServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrived.Add(1)
		handler.ServeHTTP(w, r)
	}), log)
	go server.Serve(listener)
	t.Cleanup(func() { server.Close() })
	return listener.Addr().String(), arrived
}

// sendFrom sends a review from a source address, and returns the status.
func sendFrom(t *testing.T, source, address string) int {
	t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}}
	client := &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}}
	response, err := client.Post("http://"+address+"/h", "application/json", strings.NewReader(review))
	if err != nil {
		t.Error(err)
		return 0
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode
}

// TestAFloodKeepsNoPlaceOfOthers: a client that floods the port has half of the reviews at once, and a request from
// another address is reviewed meanwhile. The requests of the flood wait.
func TestAFloodKeepsNoPlaceOfOthers(t *testing.T) {
	t.Parallel()
	var running, most atomic.Int32
	release := make(chan struct{})
	flooded := make(chan struct{}, 1000)
	address, arrived := serverOf(t, func(ctx context.Context, _ *Request) (Response, error) {
		most.Store(max(most.Load(), running.Add(1)))
		defer running.Add(-1)
		flooded <- struct{}{}
		select {
		case <-release:
		case <-ctx.Done():
		}
		return Response{}, nil
	})
	each := maxReviews() / 2
	var flood sync.WaitGroup
	for range 3 * each {
		flood.Go(func() {
			if code := sendFrom(t, "127.0.0.2", address); code != http.StatusOK {
				t.Errorf("a request that waits gets %d, want 200", code)
			}
		})
	}
	for range each {
		testwait.Receive(t, "the reviews of a source", flooded)
	}
	testwait.UntilTrue(t, "all requests of the flood", func() bool { return int(arrived.Load()) == 3*each })
	var other sync.WaitGroup
	other.Go(func() {
		if code := sendFrom(t, "127.0.0.3", address); code != http.StatusOK {
			t.Errorf("another client gets %d, want 200", code)
		}
	})
	testwait.Receive(t, "the review of another source", flooded)
	if got := int(most.Load()); got > each+1 {
		t.Errorf("%d requests are reviewed at once, want %d of one source and one more", got, each)
	}
	close(release)
	other.Wait()
	flood.Wait()
}

// TestASlowBodyKeepsNoPlace: a body that does not arrive is not waited for as long as the API server would wait.
func TestASlowBodyKeepsNoPlace(t *testing.T) {
	t.Parallel()
	address, _ := serverOf(t, func(context.Context, *Request) (Response, error) { return Response{}, nil })
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(testwait.Deadline())
	if _, err := io.WriteString(conn, "POST /h HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"+
		"Content-Length: 1000\r\n\r\n{"); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(conn)
	if !strings.HasPrefix(string(got), "HTTP/1.1 400 ") {
		t.Errorf("the client of a slow body gets %q (%v), want 400 and the end of the connection", got, err)
	}
}

// TestPlaces: the places of a source and of all are bounded, and one that is freed is taken again.
func TestPlaces(t *testing.T) {
	p := newPlaces(2, 1)
	free, err := p.take(t.Context(), sourceOf(&http.Request{RemoteAddr: "192.0.2.1:1"}))
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.take(ended, sourceOf(&http.Request{RemoteAddr: "192.0.2.1:2"})); err == nil {
		t.Error("a source has two places, want one")
	}
	if _, err := p.take(ended, sourceOf(&http.Request{RemoteAddr: "192.0.2.2:1"})); err != nil {
		t.Errorf("another source: %v", err)
	}
	free()
	free() // a place is freed once
	if _, err := p.take(ended, sourceOf(&http.Request{RemoteAddr: "192.0.2.1:3"})); err != nil {
		t.Errorf("after the place was freed: %v", err)
	}
	if _, err := p.take(ended, sourceOf(&http.Request{RemoteAddr: "192.0.2.3:1"})); err == nil {
		t.Error("there are three places, want two")
	}
}
