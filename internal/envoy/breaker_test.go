package envoy

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"weft/internal/service"
	"weft/internal/testwait"
	"weft/kind"
)

// overflowed reports whether a response says that a limit is reached.
func overflowed(r *http.Response) bool {
	return r != nil && r.StatusCode == 503 && r.Header.Get("x-envoy-overloaded") == "true"
}

// endless lets a stalled request of a destination last as long as the test, and endlessInbound that of an inbound.
const (
	endless        = ", MeshTimeout: {http: {requestTimeout: 0s}}"
	endlessInbound = ", MeshTimeout: [{match: {}, conf: {http: {requestTimeout: 0s}}}]"
)

// TestLimitsHaveTheirEffect: each limit of a MeshCircuitBreaker does to traffic what it says, in one Envoy.
func TestLimitsHaveTheirEffect(t *testing.T) {
	l := newLab(t)
	stall, begun := l.stalling()
	of := func(limits string) service.Effective {
		return effectiveOf(t, "MeshCircuitBreaker: {connectionLimits: {"+limits+"}}"+endless)
	}
	requests := l.destination(kind.HTTP, of("maxRequests: 1"), l.server(stall))
	pools := l.destination(kind.HTTP, of("maxConnectionPools: 1"), l.server(stall), l.server(stall))
	many := service.DestinationKey{Kind: service.MultiZoneService, Mesh: "default", Service: "many", Port: 80}
	zones := l.add(&service.Destination{Key: many, Protocol: kind.HTTP, Local: &service.Servers{},
		Effective: of("maxRequests: 1")}, Assignment(&service.Endpoints{
		Destination: many.WithLocality(service.LocalLocality), Endpoints: []service.Endpoint{l.server(stall)}}))
	one := service.DestinationKey{Mesh: "default", Zone: "east", Service: "one", Port: 80}
	pending := l.add(&service.Destination{Key: one, Protocol: kind.HTTP, Servers: service.Servers{TCPInbound: true},
		Effective: of("maxConnections: 1, maxPendingRequests: 1")},
		Assignment(&service.Endpoints{Destination: one, Endpoints: []service.Endpoint{l.server(stall)}}))
	echo, _ := listener(t)
	connections := l.destination(kind.TCP, of("maxConnections: 1"), endpointAt(echo))
	breaking := breakingFirst(stall)
	retrying, retried := l.destination(kind.HTTP, of("maxRetries: 1"), l.server(breaking), l.server(breaking)), begun
	l.start()

	for name, d := range map[string]*labDestination{"maxRequests": requests, "maxRequests of several zones": zones} {
		go d.send()
		<-begun
		if got := d.send(); !overflowed(got) {
			t.Errorf("%s: the second request gets %v", name, got)
		}
	}
	go pools.send()
	<-begun // at one of the endpoints
	if got := pools.send(); got == nil || got.StatusCode != 503 || pools.stat("upstream_cx_pool_overflow") == 0 {
		t.Errorf("maxConnectionPools: the request to the second endpoint gets %v", got)
	}
	if left := requests.stat("circuit_breakers.default.remaining_rq"); left != 0 ||
		requests.stat("circuit_breakers.default.remaining_cx") == 0 {
		t.Errorf("%d requests and %d connections are shown as left", left,
			requests.stat("circuit_breakers.default.remaining_cx"))
	}

	results := make(chan *http.Response, 3)
	go pending.send()
	<-begun
	for range 2 {
		go func() { results <- pending.send() }()
	}
	if got := <-results; !overflowed(got) {
		t.Errorf("maxPendingRequests: the third request gets %v", got)
	}
	if n := pending.stat("upstream_cx_total"); n != 1 {
		t.Errorf("maxConnections: %d HTTP/1.1 connections", n)
	}

	checkOneConnection(t, connections, "maxConnections of TCP")

	go retrying.send("x-request", "1")
	<-retried // its retry runs
	if got := retrying.send("x-request", "2"); got == nil || got.StatusCode != 503 ||
		retrying.stat("upstream_rq_retry_overflow") == 0 {
		t.Errorf("maxRetries: the second request gets %v", got)
	}
}

// checkOneConnection checks that TCP clients of a destination get one connection, and that Envoy closes a second one.
func checkOneConnection(t *testing.T, to *labDestination, limit string) {
	t.Helper()
	first, err := net.Dial("tcp", to.address)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	exchange(t, first)
	second, err := net.Dial("tcp", to.address)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if rest, err := io.ReadAll(second); len(rest) > 0 || to.stat("upstream_cx_overflow") != 1 {
		t.Errorf("%s: the second connection gets %q, %v", limit, rest, err)
	}
}

// breakingFirst closes the connection of the first attempt of each request, which the header x-request names, and hands
// over the next ones.
func breakingFirst(next http.HandlerFunc) http.HandlerFunc {
	var firsts sync.Map
	return func(w http.ResponseWriter, r *http.Request) {
		if _, seen := firsts.LoadOrStore(r.Header.Get("x-request"), true); !seen {
			panic(http.ErrAbortHandler)
		}
		next(w, r)
	}
}

func exchange(t *testing.T, conn net.Conn) {
	t.Helper()
	if _, err := io.WriteString(conn, "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
}

// TestEjectionsHaveTheirEffect: each field of a MeshCircuitBreaker's outlierDetection does to traffic what it says, in
// one Envoy. Of the servers of a destination, the first one fails as told, and the other two do not.
func TestEjectionsHaveTheirEffect(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	well := []service.Endpoint{l.server(responding(200)), l.server(responding(200))}
	of := func(outliers string) service.Effective {
		return effectiveOf(t, "MeshCircuitBreaker: {outlierDetection: {"+outliers+"}}")
	}
	enforced := func(detector string, least int) func(*testing.T, *labDestination) {
		return func(t *testing.T, d *labDestination) {
			n := 0
			d.until(t, "an ejection by "+detector, func(*http.Response) bool {
				n++ // each look takes as long as several requests
				return n%10 == 0 && d.stat("outlier_detection.ejections_enforced_"+detector) >= least
			})
		}
	}
	none := func(t *testing.T, d *labDestination) {
		for range 30 {
			d.send()
		}
		if n := d.stat("outlier_detection.ejections_enforced_total"); n > 0 {
			t.Errorf("%d ejections", n)
		}
	}
	steadily := func(status, times int) func(*testing.T, *labDestination) {
		return func(t *testing.T, d *labDestination) {
			inRow := 0
			d.until(t, fmt.Sprintf("%d responses with %d in a row", times, status), func(r *http.Response) bool {
				if inRow++; r.StatusCode != status {
					inRow = 0
				}
				return inRow >= times
			})
		}
	}
	const long = "interval: 100ms, baseEjectionTime: 1m, "
	const rated = "interval: 1s, baseEjectionTime: 1m, "
	// crowded sends many requests at once, so that a busy machine too serves as many in an interval as are wanted.
	crowded := func(detector string) func(*testing.T, *labDestination) {
		return func(t *testing.T, d *labDestination) {
			testwait.UntilTrue(t, "an ejection by "+detector, func() bool {
				var crowd sync.WaitGroup
				for range 30 {
					crowd.Go(func() { d.send() })
				}
				crowd.Wait()
				return d.stat("outlier_detection.ejections_enforced_"+detector) > 0
			})
		}
	}
	rows := []struct {
		name, outliers string
		status         int // of the first server; 0: it is not reached
		alone          bool
		effect         func(*testing.T, *labDestination)
	}{
		{"totalFailures", long + "detectors: {totalFailures: {consecutive: 3}}", 500, false, steadily(200, 12)},
		{"totalFailures of a server that is well", long + "detectors: {totalFailures: {consecutive: 3}}", 404, false,
			none},
		{"gatewayFailures", long + "detectors: {gatewayFailures: {consecutive: 3}}", 503, false, steadily(200, 12)},
		{"gatewayFailures of another failure", long + "detectors: {gatewayFailures: {consecutive: 1}}", 500, false,
			none},
		{"localOriginFailures", long + "detectors: {localOriginFailures: {consecutive: 5}}", 0, false,
			enforced("consecutive_local_origin_failure", 1)},
		{"localOriginFailures by default", long + "detectors: {totalFailures: {}}", 0, false,
			enforced("consecutive_local_origin_failure", 1)},
		{"localOriginFailures above", "detectors: {localOriginFailures: {consecutive: 1000}}", 0, false, none},
		{"splitExternalAndLocalErrors", long + "splitExternalAndLocalErrors: false, detectors: {totalFailures: " +
			"{consecutive: 3}}", 0, false, enforced("consecutive_5xx", 1)},
		{"successRate", rated + `detectors: {successRate: {minimumHosts: 3, requestVolume: 3, ` +
			`standardDeviationFactor: "0.5"}}`,
			500, false, crowded("success_rate")},
		{"successRate of too few hosts", rated + `detectors: {successRate: {minimumHosts: 4, requestVolume: 3, ` +
			`standardDeviationFactor: "0.5"}}`, 500, false, none},
		{"failurePercentage", rated + "detectors: {failurePercentage: {minimumHosts: 3, requestVolume: 3, " +
			"threshold: 50}}",
			500, false, crowded("failure_percentage")},
		{"disabled", "disabled: true", 0, false, none},
		{"maxEjectionPercent", long + "maxEjectionPercent: 33, detectors: {totalFailures: {consecutive: 3}}", 500,
			false, none}, // one of three is more
		{"baseEjectionTime and interval", "interval: 100ms, baseEjectionTime: 200ms, detectors: {totalFailures: " +
			"{consecutive: 3}}", 500, false, enforced("consecutive_5xx", 3)},
		{"healthyPanicThreshold 0", long + "maxEjectionPercent: 100, healthyPanicThreshold: 0, detectors: " +
			"{totalFailures: {consecutive: 3}}", 500, true, steadily(503, 12)},
		{"healthyPanicThreshold 50", long + "maxEjectionPercent: 100, healthyPanicThreshold: 50, detectors: " +
			"{totalFailures: {consecutive: 3}}", 500, true, func(t *testing.T, d *labDestination) {
			enforced("consecutive_5xx", 1)(t, d)
			steadily(500, 12)(t, d)
		}},
	}
	var destinations []*labDestination
	for _, row := range rows {
		servers := []service.Endpoint{dead(t, "")}
		if row.status != 0 {
			servers[0] = l.server(responding(row.status))
		}
		if !row.alone {
			servers = append(servers, well...)
		}
		destinations = append(destinations, l.destination(kind.HTTP, of(row.outliers), servers...))
	}
	l.start()
	began := time.Now()
	for i, row := range rows {
		t.Run(row.name, func(t *testing.T) { row.effect(t, destinations[i]) })
	}
	t.Logf("%d effects in %s", len(rows), time.Since(began))
}

// TestLimitsOfApplicationsHaveTheirEffect: the rules of a MeshCircuitBreaker do to the traffic of an inbound to its
// application what they say, in one Envoy.
func TestLimitsOfApplicationsHaveTheirEffect(t *testing.T) {
	l := newLab(t)
	stall, begun := l.stalling()
	of := func(conf string) string { return "MeshCircuitBreaker: [{match: {}, conf: {" + conf + "}}]" }
	limits := func(conf string) string { return of("connectionLimits: {"+conf+"}") + endlessInbound }
	ejecting := func(conf string) string {
		return of("outlierDetection: {interval: 100ms, baseEjectionTime: 1m, " + conf + "}")
	}
	requests := l.inbound(kind.HTTP2, limits("maxRequests: 1"), l.server(stall))
	pending := l.inbound(kind.HTTP, limits("maxConnections: 1, maxPendingRequests: 1"), l.server(stall))
	echo, _ := listener(t)
	connections := l.inbound(kind.TCP, limits("maxConnections: 1"), endpointAt(echo))
	const well, failures = 404, "detectors: {totalFailures: {consecutive: 3}}"
	rows := []struct {
		name, conf    string
		status, after int // of the application, 0 where it is not reached, and of the responses in the end
	}{
		{"no policy", "", 500, 500},
		{"totalFailures", ejecting("healthyPanicThreshold: 0, " + failures), 500, 503},
		{"totalFailures of an application that is well", ejecting("healthyPanicThreshold: 0, " + failures), well, well},
		{"healthyPanicThreshold by default", ejecting(failures), 500, 500},
		{"disabled", ejecting("disabled: true, healthyPanicThreshold: 0, " + failures), 500, 500},
		{"maxEjectionPercent", ejecting("maxEjectionPercent: 99, healthyPanicThreshold: 0, " + failures), 500, 500},
		{"gatewayFailures", ejecting("healthyPanicThreshold: 0, detectors: {gatewayFailures: {consecutive: 3}}"), 502,
			503},
		{"gatewayFailures of another failure", ejecting("healthyPanicThreshold: 0, detectors: {gatewayFailures: " +
			"{consecutive: 3}}"), 500, 500},
	}
	var inbounds []*labDestination
	for _, row := range rows {
		inbounds = append(inbounds, l.inbound(kind.HTTP, row.conf, l.server(responding(row.status))))
	}
	const unreached = "healthyPanicThreshold: 0, detectors: {localOriginFailures: {consecutive: 3}}"
	dark := l.inbound(kind.HTTP, ejecting(unreached), dead(t, ""))
	counted := l.inbound(kind.HTTP, ejecting("healthyPanicThreshold: 0, "+failures), dead(t, ""))
	l.start()

	go requests.send()
	<-begun
	if got := requests.send(); !overflowed(got) || requests.stat("circuit_breakers.default.remaining_rq") != 0 {
		t.Errorf("maxRequests: the second request gets %v", got)
	}
	results := make(chan *http.Response, 3)
	go pending.send()
	<-begun
	for range 2 {
		go func() { results <- pending.send() }()
	}
	if got := <-results; !overflowed(got) || pending.stat("upstream_cx_total") != 1 {
		t.Errorf("maxConnections and maxPendingRequests: the third request gets %v", got)
	}
	checkOneConnection(t, connections, "maxConnections of TCP")
	for i, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			if row.after == 503 {
				// Envoy's main thread ejects, some requests later. The client's proxy tries another server.
				inbounds[i].until(t, "a response that is marked", func(r *http.Response) bool {
					return r.StatusCode == 503 && r.Header.Get(unservedHeader) == unservedNotReached
				})
			}
			for range 10 {
				last := inbounds[i].send()
				if last == nil || last.StatusCode != row.after {
					t.Fatalf("the response is %v, want %d", last, row.after)
				}
				if got := last.Header.Get(unservedHeader) == unservedNotReached; got != (row.after == 503) {
					t.Errorf("the response is marked: %t", got)
				}
			}
		})
	}
	for name, ejected := range map[string]struct {
		*labDestination
		by string
	}{"localOriginFailures": {dark, "local_origin_failure"}, "failures to connect without it": {counted, "5xx"}} {
		ejected.until(t, "an ejection by "+name, func(r *http.Response) bool {
			return r.Header.Get("test-body") == "no healthy upstream"
		})
		if ejected.stat("outlier_detection.ejections_enforced_consecutive_"+ejected.by) == 0 {
			t.Errorf("%s ejects nothing", name)
		}
	}
}
