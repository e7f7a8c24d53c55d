package agent

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weft/internal/bubble"
	"weft/internal/testwait"
	"weft/internal/wire"
)

// scripted is Envoy's administration interface with a list of responses for each path, the last of which is repeated.
// "" is a transport error, as of an Envoy that is too busy to respond in time.
type scripted struct {
	mu        sync.Mutex
	responses map[string][]string
	calls     []string
}

func (s *scripted) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, r.URL.Path)
	queue := s.responses[r.URL.Path]
	if len(queue) > 1 {
		s.responses[r.URL.Path] = queue[1:]
	}
	if len(queue) == 0 || queue[0] == "" {
		return nil, errors.New("timed out")
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(queue[0])), Request: r}, nil
}

func (s *scripted) count(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, call := range s.calls {
		if call == path {
			n++
		}
	}
	return n
}

// asEnvoy starts a process in place of Envoy.
func asEnvoy(t *testing.T) *envoy {
	t.Helper()
	command := exec.Command("sleep", "600")
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	e := &envoy{process: command.Process, done: make(chan struct{})}
	go func() { e.err = command.Wait(); close(e.done) }()
	t.Cleanup(e.kill)
	return e
}

const (
	oneOpen  = `{"stats":[{"name":"listener.10.0.0.1_20300.downstream_cx_active","value":1}]}`
	noneOpen = `{"stats":[{"name":"listener.10.0.0.1_20300.downstream_cx_active","value":0},` +
		`{"name":"listener.admin.downstream_cx_active","value":1}]}`
	flushing = `{"stats":[{"name":"listener.10.0.0.1_20300.downstream_cx_active","value":0},` +
		`{"name":"tcp.ingress.upstream_flush_active","value":1}]}`
)

// An Envoy that is too busy to respond to one request has not closed its connections.
func TestAnEnvoyThatDoesNotRespondIsNotDrained(t *testing.T) {
	for name, counts := range map[string][]string{
		"its statistics time out":           {oneOpen, "", "", oneOpen, noneOpen},
		"what was sent is on its way still": {flushing, flushing, noneOpen},
	} {
		t.Run(name, func(t *testing.T) {
			s := &scripted{responses: map[string][]string{
				"/healthcheck/fail": {"", "OK"}, "/drain_listeners": {"", "OK"}, "/stats": counts,
			}}
			e := asEnvoy(t)
			e.drain(t.Context(), &admin{&http.Client{Transport: s}}, testwait.Timeout, slog.New(slog.DiscardHandler))
			<-e.done
			if got := s.count("/stats"); got != len(counts) {
				t.Errorf("it was ended after %d of %d responses", got, len(counts))
			}
			if s.count("/healthcheck/fail") < 2 || s.count("/drain_listeners") < 2 {
				t.Errorf("a request to drain that failed was not repeated: %v", s.calls)
			}
		})
	}
}

func TestConnectionsThatDoNotEndAreCutAtTheBound(t *testing.T) {
	s := &scripted{responses: map[string][]string{"/healthcheck/fail": {"OK"}, "/drain_listeners": {"OK"},
		"/stats": {oneOpen}}}
	e, began := asEnvoy(t), time.Now()
	e.drain(t.Context(), &admin{&http.Client{Transport: s}}, time.Second, slog.New(slog.DiscardHandler))
	<-e.done
	if took := time.Since(began); took < time.Second {
		t.Errorf("it was ended after %s", took)
	}
}

// A draining agent waits for the control plane while it has a session, and continues once there has been none for 10 s.
// A session shorter than 10 s does not restart that time. A drain waits for 50 s at most.
func TestADrainWaitsForTheControlPlane(t *testing.T) {
	// steady has one session that lasts.
	steady := func(a *agent) { a.session.store(time.Now().Add(-time.Hour)) }
	// breaking has sessions of a duration, with equal pauses.
	breaking := func(lasting time.Duration) func(*agent) {
		return func(a *agent) {
			for range 100 {
				a.settings.store(&wire.Settings{})
				a.session.store(time.Now())
				time.Sleep(lasting)
				a.session.store(time.Time{})
				time.Sleep(lasting)
			}
		}
	}
	const second = time.Second
	for name, c := range map[string]struct {
		control     func(*agent)
		least, most time.Duration
		drained     bool
	}{
		"its clients have acked": {func(a *agent) {
			steady(a)
			time.Sleep(35 * second)
			a.settings.store(&wire.Settings{Drained: true})
		}, 35 * second, 35 * second, true},
		"it never says so": {steady, 50 * second, 50 * second, false},
		"there is none":    {func(*agent) {}, 10 * second, 10 * second, false},
		"it restarts": {func(a *agent) {
			steady(a)
			time.Sleep(4 * second)
			a.session.store(time.Time{})
			time.Sleep(9 * second)
			steady(a)
			time.Sleep(6 * second)
			a.settings.store(&wire.Settings{Drained: true})
		}, 19 * second, 19 * second, true},
		"it goes": {func(a *agent) {
			steady(a)
			time.Sleep(20 * second)
			a.session.store(time.Time{})
		}, 30 * second, 30 * second, false},
		"its sessions break at once": {breaking(100 * time.Millisecond), 10 * second, 11 * second, false},
		"its sessions break soon":    {breaking(2 * second), 10 * second, 12 * second, false},
		"its sessions break late":    {breaking(9 * second), 27 * second, 27 * second, false},
		"a long session breaks, and then short ones": {func(a *agent) {
			steady(a)
			time.Sleep(15 * second)
			a.session.store(time.Time{})
			time.Sleep(second)
			breaking(2 * second)(a)
		}, 25 * second, 27 * second, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				a := &agent{settings: watch(&wire.Settings{}), session: watch(time.Time{})}
				began := time.Now()
				go c.control(a)
				synctest.Wait()
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
				defer cancel()
				err := a.awaitDrained(ctx)
				if took := time.Since(began); took < c.least || took > c.most || (err == nil) != c.drained {
					t.Errorf("the drain waited for %s, want %s to %s, and returned %v", took, c.least, c.most, err)
				}
				time.Sleep(time.Hour) // the control plane of this test exits
			})
		})
	}
}

// TestAnUnusedProxyEndsAtOnce: nothing is lost with a proxy that has no listener for clients and whose applications
// have ended. Others wait for the control plane.
func TestAnUnusedProxyEndsAtOnce(t *testing.T) {
	served := []*wire.Listener{{Address: "10.0.0.1", Port: 80}}
	for name, c := range map[string]struct {
		endsLast bool
		settings *wire.Settings
		atOnce   bool
	}{
		"in a Pod with a native sidecar":      {true, &wire.Settings{}, true},
		"in a Pod that has completed":         {false, &wire.Settings{Completed: true}, true},
		"beside a running application":        {false, &wire.Settings{}, false},
		"with an inbound":                     {true, &wire.Settings{Listeners: served}, false},
		"with an inbound, in a completed Pod": {false, &wire.Settings{Listeners: served, Completed: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				a := &agent{Config: Config{EndsLast: c.endsLast}, settings: watch(c.settings),
					session: watch(time.Now().Add(-time.Hour))}
				began := time.Now()
				_ = a.awaitDrained(t.Context())
				if took := time.Since(began); (took == 0) != c.atOnce {
					t.Errorf("the drain waited for %s", took)
				}
			})
		})
	}
}
