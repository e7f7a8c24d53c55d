package envoy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	"weft/internal/service"
	"weft/internal/testwait"
	"weft/kind"
)

// checkedServer is an application of which a test sees the checks.
type checkedServer struct {
	service.Endpoint
	mu     sync.Mutex
	checks []check
	others int // requests that are no check
}

type check struct {
	at     time.Time
	from   string
	host   string
	header http.Header
}

// checked starts an application that responds to the n-th request of the path /check with a status, and to others with
// 200. A status of 0 stalls.
func (l *lab) checked(status func(n int) int) *checkedServer {
	s := &checkedServer{}
	s.Endpoint = l.server(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		if r.URL.RequestURI() != "/check?a=b" {
			s.others++
			s.mu.Unlock()
			return
		}
		n := len(s.checks)
		s.checks = append(s.checks, check{time.Now(), r.RemoteAddr, r.Host, r.Header})
		s.mu.Unlock()
		if code := status(n); code > 0 {
			w.WriteHeader(code)
		} else {
			<-r.Context().Done()
		}
	})
	return s
}

// eachCheck responds to each check with a status.
func eachCheck(status int) func(int) int { return func(int) int { return status } }

// seen returns the checks so far, and the number of other requests.
func (s *checkedServer) seen() ([]check, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.checks), s.others
}

// fast are intervals with which a test sees the effect of a check soon. No response that a busy machine delays counts
// as a failure.
const fast = "interval: 50ms, noTrafficInterval: 50ms, timeout: 10m, "

const checkPath = `http: {path: "/check?a=b"}`

func checksOf(t *testing.T, conf string) service.Effective {
	t.Helper()
	return effectiveOf(t, "MeshHealthCheck: {"+conf+"}")
}

// TestHealthChecksHaveTheirEffect: each field of a MeshHealthCheck does what it says, in one Envoy.
func TestHealthChecksHaveTheirEffect(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	effects := map[string]func(t *testing.T){}
	// avoided adds a destination of two servers, of which some are healthy, and the first is to be used or not.
	avoided := func(name string, protocol kind.Protocol, conf string, first *checkedServer, healthy int, used bool) {
		d := l.destination(protocol, checksOf(t, conf), first.Endpoint, l.server(responding(200)))
		effects[name] = func(t *testing.T) {
			testwait.UntilTrue(t, fmt.Sprintf("%d servers are healthy", healthy), func() bool {
				return d.stat("membership_healthy") == healthy
			})
			_, before := first.seen()
			for range 20 {
				if r := d.send(); r == nil || r.StatusCode != 200 {
					t.Fatalf("a request gets %v", r)
				}
			}
			if _, now := first.seen(); (now > before) != used {
				t.Errorf("the first server gets %d of 20 requests", now-before)
			}
		}
	}
	avoided("a failing check", kind.HTTP, fast+checkPath, l.checked(eachCheck(500)), 1, false)
	avoided("a failing check of HTTP/2", kind.HTTP2, fast+checkPath, l.checked(eachCheck(500)), 1, false)
	avoided("a successful check", kind.HTTP, fast+checkPath, l.checked(eachCheck(200)), 2, true)
	avoided("expectedStatuses", kind.HTTP, fast+`http: {path: "/check?a=b", expectedStatuses: [503, 204]}`,
		l.checked(eachCheck(204)), 1, true) // the other server responds with 200
	avoided("a status that is not expected", kind.HTTP, fast+checkPath, l.checked(eachCheck(204)), 1, false)
	// A port whose checker is disabled or absent is checked by connections.
	avoided("http.disabled", kind.HTTP, fast+`http: {disabled: true, path: "/check?a=b"}, tcp: {send: x}`,
		l.checked(eachCheck(500)), 2, true)
	avoided("http is absent", kind.HTTP2, fast+`tcp: {}, grpc: {}`, l.checked(eachCheck(500)), 2, true)
	avoided("grpc.disabled", kind.GRPC, fast+`grpc: {disabled: true}, tcp: {}`, l.checked(eachCheck(500)), 2, true)

	unchecked := l.destination(kind.HTTP, checksOf(t, fast+"http: {disabled: true}, tcp: {disabled: true}"),
		l.server(responding(200)))
	effects["tcp.disabled"] = func(t *testing.T) {
		if n := unchecked.stat("health_check.attempt"); n > 0 {
			t.Errorf("%d checks", n)
		}
	}
	unreachable := l.destination(kind.TCP, checksOf(t, fast+"tcp: {}"), dead(t, ""), l.server(responding(200)))
	effects["a connection that fails"] = func(t *testing.T) {
		testwait.UntilTrue(t, "one of two endpoints is healthy", func() bool {
			return unreachable.stat("membership_healthy") == 1
		})
		if n := unreachable.stat("health_check.failure"); n == 0 {
			t.Error("no check fails")
		}
	}

	stalling := l.checked(eachCheck(0))
	l.destination(kind.HTTP, checksOf(t, strings.Replace(fast, "10m", "100ms", 1)+checkPath), stalling.Endpoint)
	began := time.Now()
	effects["timeout"] = func(t *testing.T) {
		testwait.UntilTrue(t, "more checks have ended than by the default", func() bool {
			seen, _ := stalling.seen()
			return len(seen) > 2+2*int(time.Since(began)/checkTimeout)
		})
	}

	l.checkThresholds(effects)
	l.checkTimes(effects)
	l.checkTexts(effects)
	l.checkPanic(effects)
	l.start()
	testwait.UntilTrue(t, "listeners, which wait for the first checks", func() bool { return unchecked.send() != nil })
	for name, effect := range effects {
		t.Run(name, effect)
	}
}

// checkThresholds adds the effects of the numbers of checks in a row.
func (l *lab) checkThresholds(effects map[string]func(t *testing.T)) {
	// An endpoint that responds, and then stalls: a status that is not expected would suffice alone. It stalls once it
	// is healthy, since the first check of all decides alone.
	stalling := func(conf string) (d *labDestination, stall func(t *testing.T)) {
		var stalls atomic.Bool
		server := l.checked(func(int) int {
			if stalls.Load() {
				return 0
			}
			return 200
		})
		d = l.destination(kind.HTTP, checksOf(l.t, conf+checkPath), server.Endpoint)
		return d, func(t *testing.T) {
			t.Helper()
			testwait.UntilTrue(t, "a healthy endpoint", func() bool { return d.stat("membership_healthy") == 1 })
			stalls.Store(true)
		}
	}
	for name, tolerated := range map[string]int{"unhealthyThreshold": 3, "unhealthyThreshold by default": 5} {
		conf := "interval: 50ms, noTrafficInterval: 50ms, timeout: 500ms, "
		if tolerated == 3 {
			conf += "unhealthyThreshold: 3, "
		}
		d, stall := stalling(conf)
		effects[name] = func(t *testing.T) {
			stall(t)
			testwait.UntilTrue(t, "an unhealthy endpoint", func() bool { return d.stat("membership_healthy") == 0 })
			if n := d.stat("health_check.failure"); n < tolerated {
				t.Errorf("it is unhealthy after %d failures", n)
			}
		}
	}
	tolerant, stall := stalling("interval: 50ms, noTrafficInterval: 50ms, timeout: 50ms, unhealthyThreshold: 1000, ")
	effects["unhealthyThreshold of many"] = func(t *testing.T) {
		stall(t)
		before := tolerant.stat("health_check.failure")
		testwait.UntilTrue(t, "8 failures", func() bool { return tolerant.stat("health_check.failure") >= before+8 })
		if tolerant.stat("membership_healthy") != 1 {
			t.Error("it is unhealthy")
		}
	}
	recovering := l.checked(func(n int) int {
		if n == 0 {
			return 500
		}
		return 200
	})
	recovered := l.destination(kind.HTTP, checksOf(l.t, fast+"healthyThreshold: 4, "+checkPath), recovering.Endpoint)
	effects["healthyThreshold"] = func(t *testing.T) {
		testwait.UntilTrue(t, "a healthy endpoint", func() bool { return recovered.stat("membership_healthy") == 1 })
		if n := recovered.stat("health_check.success"); n < 4 {
			t.Errorf("it is healthy after %d checks", n)
		}
	}
}

// checkTimes adds the effects of intervals and of connections.
func (l *lab) checkTimes(effects map[string]func(t *testing.T)) {
	counted := func(conf string) (*checkedServer, *labDestination) {
		server := l.checked(eachCheck(200))
		return server, l.destination(kind.HTTP, checksOf(l.t, "timeout: 10m, "+conf+checkPath), server.Endpoint)
	}
	often, _ := counted(fast[:strings.Index(fast, "timeout")])
	// more waits for as many further checks as there are in a second at least.
	more := func(t *testing.T) {
		before, _ := often.seen()
		testwait.UntilTrue(t, "20 checks", func() bool { seen, _ := often.seen(); return len(seen) >= len(before)+20 })
	}
	effects["interval"] = more
	began := time.Now()
	seldom, _ := counted("interval: 50ms, ")
	effects["noTrafficInterval by default"] = func(t *testing.T) {
		more(t)
		seen, _ := seldom.seen()
		most := 1 + int((time.Since(began)+time.Second)/checkInterval) // a timer of Envoy may be early
		if len(seen) == 0 || len(seen) > most {
			t.Errorf("%d checks without traffic, want %d at most", len(seen), most)
		}
	}
	const quiet = 2 * time.Second
	busy, traffic := counted("interval: 50ms, noTrafficInterval: 2s, ")
	effects["interval with traffic"] = func(t *testing.T) {
		before, _ := busy.seen()
		traffic.send()
		sent := time.Now()
		testwait.UntilTrue(t, "there are more checks than without traffic", func() bool {
			seen, _ := busy.seen()
			return len(seen)-len(before) > 2+2*int(time.Since(sent)/quiet)
		})
	}
	added, _ := counted("interval: 50ms, noTrafficInterval: 50ms, intervalJitter: 8760h, ")
	effects["intervalJitter"] = func(t *testing.T) {
		more(t)
		if seen, _ := added.seen(); len(seen) != 1 {
			t.Errorf("%d checks with a jitter of a year", len(seen))
		}
	}
	share, _ := counted("interval: 200ms, noTrafficInterval: 200ms, intervalJitterPercent: 100, ")
	effects["intervalJitterPercent"] = func(t *testing.T) {
		testwait.UntilTrue(t, "31 checks", func() bool { seen, _ := share.seen(); return len(seen) >= 31 })
		seen, _ := share.seen()
		// The mean of many is far above: a machine may delay the first of them by some seconds.
		if mean := seen[30].at.Sub(seen[0].at) / 30; mean < 220*time.Millisecond {
			t.Errorf("checks come every %s, want 200ms and up to 100 %% more", mean)
		}
	}
	var spread []*checkedServer
	var endpoints []service.Endpoint
	for range 10 {
		spread = append(spread, l.checked(eachCheck(200)))
		endpoints = append(endpoints, spread[len(spread)-1].Endpoint)
	}
	l.destination(kind.HTTP, checksOf(l.t, "timeout: 10m, initialJitter: 6s, "+checkPath), endpoints...)
	effects["initialJitter"] = func(t *testing.T) {
		var first []time.Time
		for _, s := range spread {
			seen, _ := s.seen()
			if len(seen) == 0 {
				t.Fatal("an endpoint has no check")
			}
			first = append(first, seen[0].at)
		}
		slices.SortFunc(first, time.Time.Compare)
		if d := first[9].Sub(first[0]); d < 300*time.Millisecond {
			t.Errorf("the first checks of 10 endpoints come within %s", d)
		}
	}
	for name, reuse := range map[string]bool{"reuseConnection by default": true, "reuseConnection": false} {
		conf := fast
		if !reuse {
			conf += "reuseConnection: false, "
		}
		server, _ := counted(strings.Replace(conf, "timeout: 10m, ", "", 1))
		effects[name] = func(t *testing.T) {
			testwait.UntilTrue(t, "6 checks", func() bool { seen, _ := server.seen(); return len(seen) >= 6 })
			seen, _ := server.seen()
			if (seen[0].from == seen[5].from) != reuse {
				t.Errorf("checks come from %s and %s", seen[0].from, seen[5].from)
			}
		}
	}
	path := filepath.Join(l.t.TempDir(), "checks.json")
	failing := l.checked(eachCheck(500))
	l.destination(kind.HTTP, checksOf(l.t, fast+"alwaysLogHealthCheckFailures: true, eventLogPath: "+path+", "+
		checkPath), failing.Endpoint)
	effects["eventLogPath and alwaysLogHealthCheckFailures"] = func(t *testing.T) {
		testwait.UntilTrue(t, "3 logged failures", func() bool {
			text, _ := os.ReadFile(path)
			return strings.Count(string(text), `"health_check_failure_event"`) >= 3
		})
	}
	once := filepath.Join(l.t.TempDir(), "once.json")
	turning := l.checked(func(n int) int {
		if n == 0 {
			return 200
		}
		return 500
	})
	l.destination(kind.HTTP, checksOf(l.t, fast+"eventLogPath: "+once+", "+checkPath), turning.Endpoint)
	effects["eventLogPath"] = func(t *testing.T) {
		testwait.UntilTrue(t, "an endpoint that is logged as unhealthy", func() bool {
			text, _ := os.ReadFile(once)
			return strings.Contains(string(text), `"eject_unhealthy_event"`)
		})
		if text, _ := os.ReadFile(once); strings.Contains(string(text), `"health_check_failure_event"`) {
			t.Errorf("each failure is logged: %s", text)
		}
	}
}

// textServer responds to a line of text with one.
func (l *lab) textServer(response string) service.Endpoint {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { server.Close() })
	go func() {
		for {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				lines := bufio.NewReader(conn)
				for line, err := lines.ReadString('\n'); err == nil && line == "PING é%41\n"; {
					io.WriteString(conn, response)
					line, err = lines.ReadString('\n')
				}
			}()
		}
	}()
	return endpointAt(server.Addr())
}

// checkTexts adds the effects of what a check sends and expects.
func (l *lab) checkTexts(effects map[string]func(t *testing.T)) {
	const texts = `tcp: {send: "PING é%41\n", receive: ["+PO", "NG"]}`
	well, wrong := l.textServer("a +PO b NG"), l.textServer("NG +PO")
	// A check that gets another text ends at its timeout.
	exchanged := l.destination(kind.TCP, checksOf(l.t, strings.Replace(fast, "10m", "1s", 1)+texts), well, wrong)
	effects["tcp.send and tcp.receive"] = func(t *testing.T) {
		testwait.UntilTrue(t, "one of two endpoints is healthy", func() bool {
			return exchanged.stat("health_check.failure") > 0 && exchanged.stat("membership_healthy") == 1
		})
	}

	server := l.checked(eachCheck(200))
	l.destination(kind.HTTP, checksOf(l.t, fast+`http: {path: "/check?a=b", requestHeadersToAdd: {set: `+
		`[{name: X-Set, value: "50%, %REQ(a)%"}, {name: user-agent, value: me}], add: [{name: x-add, value: a}, `+
		`{name: x-add, value: b}]}}`), server.Endpoint)
	effects["path and requestHeadersToAdd"] = func(t *testing.T) {
		testwait.UntilTrue(t, "a check", func() bool { seen, _ := server.seen(); return len(seen) > 0 })
		seen, _ := server.seen()
		h := seen[0].header
		if h.Get("x-set") != "50%, %REQ(a)%" || fmt.Sprint(h.Values("user-agent")) != "[me]" ||
			fmt.Sprint(h.Values("x-add")) != "[a b]" {
			t.Errorf("the headers of a check are %v", h)
		}
	}

	var calls sync.Map // the names and authorities of calls
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		l.t.Fatal(err)
	}
	app := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, request any, _ *grpc.UnaryServerInfo,
		handler grpc.UnaryHandler) (any, error) {
		sent, _ := metadata.FromIncomingContext(ctx)
		calls.Store(request.(*healthpb.HealthCheckRequest).Service+" "+strings.Join(sent[":authority"], ","), true)
		return handler(ctx, request)
	}))
	statuses := health.NewServer()
	statuses.SetServingStatus("well", healthpb.HealthCheckResponse_SERVING)
	statuses.SetServingStatus("ill", healthpb.HealthCheckResponse_NOT_SERVING)
	healthpb.RegisterHealthServer(app, statuses)
	go app.Serve(listener)
	l.t.Cleanup(app.Stop)
	for service, healthy := range map[string]int{"well": 1, "ill": 0} {
		d := l.destination(kind.GRPC, checksOf(l.t, fast+"grpc: {serviceName: "+service+", authority: "+service+
			".example}"), endpointAt(listener.Addr()))
		effects["grpc.serviceName and grpc.authority, "+service] = func(t *testing.T) {
			testwait.UntilTrue(t, "a health", func() bool {
				return d.stat("health_check.attempt") > 0 && d.stat("membership_healthy") == healthy
			})
			testwait.UntilTrue(t, "a call", func() bool {
				_, made := calls.Load(service + " " + service + ".example")
				return made
			})
		}
	}
}

// checkPanic adds the effects on traffic when no endpoint is healthy.
func (l *lab) checkPanic(effects map[string]func(t *testing.T)) {
	for name, row := range map[string]struct {
		conf   string
		status int
	}{
		"panic by default":      {"", 200},
		"healthyPanicThreshold": {"MeshHealthCheck: {healthyPanicThreshold: 0, %s}", 503},
		"failTrafficOnPanic":    {"MeshHealthCheck: {failTrafficOnPanic: true, %s}", 503},
		"failTrafficOnPanic of RingHash": {"MeshLoadBalancingStrategy: {loadBalancer: {type: RingHash}}, " +
			"MeshHealthCheck: {failTrafficOnPanic: true, %s}", 200},
		"the threshold of a MeshCircuitBreaker decides": {"MeshCircuitBreaker: {outlierDetection: " +
			"{healthyPanicThreshold: 50}}, MeshHealthCheck: {healthyPanicThreshold: 0, %s}", 200},
	} {
		conf := row.conf
		if conf == "" {
			conf = "MeshHealthCheck: {%s}"
		}
		d := l.destination(kind.HTTP, effectiveOf(l.t, fmt.Sprintf(conf, fast+checkPath)),
			l.checked(eachCheck(500)).Endpoint)
		effects[name] = func(t *testing.T) {
			testwait.UntilTrue(t, "no healthy endpoint", func() bool { return d.stat("membership_healthy") == 0 })
			if r := d.send(); r == nil || r.StatusCode != row.status {
				t.Errorf("a request gets %v, want %d", r, row.status)
			}
		}
	}
}
