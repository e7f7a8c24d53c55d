package e2e

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"weft/internal/testwait"
	"weft/internal/traffic"
)

// freeze is an event during which no process of a mesh runs, or each one runs slowly.
type freeze struct {
	name  string
	lasts time.Duration
	begin func() (end func())
}

// stopped stops every process of the worlds. A PING that a proxy has just sent gets its response after the stall, and
// its connection is closed after 3 s. Beside other tests that response takes a while, so the stall is shorter.
func stopped(worlds ...*world) freeze {
	lasts := 3 * time.Second
	if !*showDrills {
		lasts = 2 * time.Second
	}
	return freeze{fmt.Sprintf("every process is stopped for %.0f s", lasts.Seconds()), lasts, func() func() {
		var pids []int
		for _, w := range worlds {
			pids = append(pids, w.running()...)
		}
		signal := func(s syscall.Signal) {
			for _, pid := range pids {
				if err := syscall.Kill(pid, s); err != nil {
					worlds[0].t.Errorf("%s to process %d: %v", s, pid, err)
				}
			}
		}
		signal(syscall.SIGSTOP)
		return func() { signal(syscall.SIGCONT) }
	}}
}

// starved runs 6 busy processes beside a mesh.
func starved(t *testing.T) freeze {
	lasts := 10 * time.Second
	if !*showDrills {
		lasts = 3 * time.Second
	}
	return freeze{"6 busy processes", lasts, func() func() {
		end, err := startBusy(6)
		if err != nil {
			t.Error(err)
		}
		return end
	}}
}

// running returns the processes of a world that run: control plane, agents and Envoys.
func (w *world) running() []int {
	w.t.Helper()
	var pids []int
	for _, p := range w.processes {
		if p.HasExited() {
			continue
		}
		pids = append(pids, p.PID())
		if child := w.envoyOf(p); child != 0 {
			pids = append(pids, child)
		}
	}
	return pids
}

// timeline records when each request began and how long it took. Reads cost what they look at, since the machine that
// they would keep busy is the one that is measured.
type timeline struct {
	mu       sync.Mutex
	requests []timedRequest // in the order of their beginnings
}

type timedRequest struct {
	began time.Time
	took  time.Duration // 0 while it has no response
}

func (l *timeline) record(send traffic.Send) traffic.Send {
	return func(ctx context.Context) (string, error) {
		l.mu.Lock()
		began, n := time.Now(), len(l.requests)
		l.requests = append(l.requests, timedRequest{began: began})
		l.mu.Unlock()
		by, err := send(ctx)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.requests[n].took = time.Since(began)
		return by, err
	}
}

// between returns the requests that began in a span.
func (l *timeline) between(from, to time.Time) []timedRequest {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := func(t time.Time) int {
		i, _ := slices.BinarySearchFunc(l.requests, t, func(r timedRequest, t time.Time) int {
			return r.began.Compare(t)
		})
		return i
	}
	return slices.Clone(l.requests[at(from):at(to)])
}

// percentile returns the 99th percentile of the latency of requests that began in a span, or 0 if none did. The latency
// of a request without a response is the time since it began.
func (l *timeline) percentile(from, to time.Time) time.Duration {
	var took []time.Duration
	for _, r := range l.between(from, to) {
		took = append(took, cmp.Or(r.took, time.Since(r.began)))
	}
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[len(took)*99/100]
}

const (
	// latencySpan is the length of the spans whose latencies are compared.
	latencySpan = 250 * time.Millisecond
	// normalFor is the duration of normal latency that ends a recovery.
	normalFor = time.Second
)

// leastNormal is a latency that is normal independent of the latency before the stall.
const leastNormal = 100 * time.Millisecond

// normal returns the highest normal latency after a stall: three times the latency of a span before it.
func (l *timeline) normal(from, to time.Time) time.Duration {
	return max(3*l.percentile(from, to), leastNormal)
}

// recovered returns the time from the end of a stall until the latency became normal for at least normalFor. It is
// negative if the latency is not normal yet.
func (l *timeline) recovered(over, now time.Time, normal time.Duration) time.Duration {
	at := over
	for n := now.Sub(over) / latencySpan; n >= 0; n-- { // the last span above normal ends the search
		from := over.Add(n * latencySpan)
		if l.percentile(from, from.Add(latencySpan)) > normal {
			at = from.Add(latencySpan)
			break
		}
	}
	// Requests of the last span may have no response yet.
	if now.Sub(at) < normalFor+min(normal, time.Second) {
		return -1
	}
	return at.Sub(over)
}

// stalls runs traffic through a stall. No request fails, except that a client's deadline may pass where it is a part of
// the load. Every request of the stall gets its response, and so do later ones. No POST is repeated.
func (w *world) stalls(what string, l traffic.Load, s freeze, web *countedService, client stallClient) {
	w.t.Helper()
	times := &timeline{}
	executed := web.posts.Load()
	var posts atomic.Int64
	counted := func(ctx context.Context) (string, error) {
		posts.Add(1)
		return client.post(ctx)
	}
	d := w.drillUnder(l, fmt.Sprintf("a stall %s: %s", what, s.name), times.record(inTurn(client.get, counted)))
	d.deadlinesMayPass = l.Timeout < testwait.Timeout
	began := time.Now()
	d.sendFor(2*time.Second, "the traffic has begun, and its latency is measured")
	normal := times.normal(began.Add(time.Second), time.Now())
	end := s.begin()
	testwait.Pass(s.lasts, "the stall lasts this long")
	end()
	over := time.Now()
	d.awaitResponses("after the stall")
	d.more(50)
	if *showDrills && !*busy {
		w.eventually("latency is normal again, and not high for ever", func() error {
			now := time.Now()
			if d.recovery = times.recovered(over, now, normal); d.recovery < 0 {
				return fmt.Errorf("99 of 100 requests take up to %s, normal is %s",
					times.percentile(now.Add(-2*normalFor), now), normal)
			}
			return nil
		})
	}
	d.end()
	if n := web.posts.Load() - executed; n > posts.Load() {
		w.t.Errorf("%s: the application got %d POSTs of %d: some are repeated", d.name, n, posts.Load())
	}
}

// stallLoad is the load of the drills. All requests of a stall may be open at once.
func stallLoad() traffic.Load {
	l := drillLoad()
	l.MaxOpen = 5 * l.PerSecond
	return l
}

// countedService is an application that counts the POSTs that it gets.
type countedService struct{ posts atomic.Int64 }

func (c *countedService) serveAt(w *world, host int, name string) {
	server := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			c.posts.Add(1)
		}
		fmt.Fprint(rw, name)
	})}
	go server.Serve(w.listen(host, 18080))
	w.t.Cleanup(func() { server.Close() })
}

// stallClient is a client of a service.
type stallClient struct{ get, post traffic.Send }

// http1Client returns a client with one connection for each concurrent request.
func http1Client(dial traffic.Dial, url string) stallClient {
	return stallClient{dial.Get(url), dial.Post(url)}
}

// http2Client returns a client with many requests on each connection, as gRPC has.
func http2Client(dial traffic.Dial, url string) stallClient {
	transport := http2Transport(dial)
	return stallClient{traffic.SendOver(transport, http.MethodGet, url),
		traffic.SendOver(transport, http.MethodPost, url)}
}

// http2Transport returns a transport for HTTP/2 without TLS.
func http2Transport(dial traffic.Dial) http.RoundTripper {
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	return &http2.Transport{AllowHTTP: true, DialTLSContext: func(ctx context.Context, network, address string,
		_ *tls.Config) (net.Conn, error) {
		return dial(ctx, network, address)
	}}
}

// capacity returns the highest rate, in requests a second, at which 99 of 100 requests have their response within
// carriedWithin. It sends at constant rates, as the drills do. Clients that wait for a response before the next request
// would measure a higher rate on a machine with high latency.
func capacity(client stallClient) int {
	carried, tooMany := 0, closedLoop(client)
	for range 5 {
		if rate := (carried + tooMany) / 2; carries(client, rate) {
			carried = rate
		} else {
			tooMany = rate
		}
	}
	return max(1, carried)
}

const (
	// capacitySpan is the duration of the traffic at one rate.
	capacitySpan = 2 * time.Second
	// carriedWithin is the highest latency at a rate that the machine carries.
	carriedWithin = 50 * time.Millisecond
)

// carries returns whether the machine carries a rate, in requests a second. The first quarter of the time, in which
// connections are made, is not measured.
func carries(client stallClient, perSecond int) bool {
	if perSecond == 0 {
		return true
	}
	times := &timeline{}
	began := time.Now()
	run := traffic.Start(perSecond, capacitySpan, times.record(inTurn(client.get, client.post)))
	testwait.Pass(capacitySpan, "the rate is measured over this time")
	failed, _ := run.Stop().Failures()
	return failed == 0 && times.percentile(began.Add(capacitySpan/4), began.Add(capacitySpan)) <= carriedWithin
}

// closedLoop returns the requests a second of 64 clients that wait for each response.
func closedLoop(client stallClient) int {
	ctx, cancel := context.WithCancel(context.Background())
	var served atomic.Int64
	var clients sync.WaitGroup
	send := inTurn(client.get, client.post)
	for range 64 {
		clients.Go(func() {
			for ctx.Err() == nil {
				if _, err := send(ctx); err == nil {
					served.Add(1)
				}
			}
		})
	}
	testwait.Pass(capacitySpan, "the rate is measured over this time")
	cancel()
	clients.Wait()
	return int(float64(served.Load()) / capacitySpan.Seconds())
}

// allStalls stalls a mesh under the load of the drills and, in the long form, under 70 % of what the machine carries.
// Its proxies have no timeout of a request. At 70 % the clients give up after 1 s. Without that, the backlog of a stall
// of 3 s would take 7 s.
func (w *world) allStalls(where string, web *countedService, dial traffic.Dial, url string, worlds ...*world) {
	w.t.Helper()
	for _, s := range []freeze{stopped(worlds...), starved(w.t)} {
		w.stalls(where, stallLoad(), s, web, http1Client(dial, url))
	}
	if !*showDrills || *busy {
		return
	}
	client := http2Client(dial, url)
	for _, s := range []freeze{stopped(worlds...), starved(w.t)} {
		carried := capacity(client)
		w.t.Logf("%s: the machine carries %d requests a second", where, carried)
		l := traffic.Load{PerSecond: max(1, carried*7/10),
			Timeout: testwait.Input(time.Second, "the clients give up: those of the stall cancel their requests")}
		w.stalls(where+" at 70 %", l, s, web, client)
	}
}

// A stall of a machine fails no request that its client still waits for.
func TestDrillAStallWithinAZone(t *testing.T) {
	w := newWorld(t)
	web := &countedService{}
	web.serveAt(w, 2, "web-1")
	web.serveAt(w, 4, "web-2")
	w.apply(timeoutPolicy(withoutTimeout))
	_, url := w.pair()
	w.allStalls("within a zone", web, nil, url, w)
}

func TestDrillAStallAcrossZones(t *testing.T) {
	if !*showDrills {
		t.Skip("a long drill: make drills")
	}
	f := newFederation(t)
	east, west := f.eastAndWestBy(crossZoneRules + "---\n" + timeoutPolicy(withoutTimeout))
	web := &countedService{}
	web.serveAt(east, 4, "web-2")
	east.proxy("default", "web-2", webServer("web-2", 4))
	east.processOf("web-1").Kill() // its application counts nothing
	url := west.outbound(3, "http")
	west.passes(url, "web-2")
	west.allStalls("across zones", web, traffic.Dial(west.machine.dial), url, f.global, east, west)
}

// Requests of one client reach every server of an ingress, which balances connections.
func TestRequestsReachEveryServerOfAnIngress(t *testing.T) {
	f := newFederation(t)
	east, west := f.eastAndWest()
	want := []string{"web-1"}
	for host := 4; host < 8; host++ {
		name := fmt.Sprintf("web-%d", host-2)
		east.service(host, 18080, name)
		east.proxy("default", name, webServer(name, host))
		want = append(want, name)
	}
	var mu sync.Mutex
	seen := map[string]bool{}
	send := west.get(west.outbound(3, "http"))
	d := west.drillUnder(load(400, 32), "requests to 5 servers of an ingress",
		func(ctx context.Context) (string, error) {
			by, err := send(ctx)
			mu.Lock()
			defer mu.Unlock()
			seen[by] = true
			return by, err
		})
	west.eventually("every server gets requests of one client", func() error {
		mu.Lock()
		defer mu.Unlock()
		for _, name := range want {
			if !seen[name] {
				return fmt.Errorf("%s gets none, of %d requests", name, d.Begun())
			}
		}
		return nil
	})
	d.end()
}

// Requests that queue while a server is stopped get their responses when it continues.
func TestRequestsThatPileUpAreServed(t *testing.T) {
	const pile = 1500 // more than Envoy's default of 1,024
	w := newWorld(t)
	var waiting atomic.Int64
	all := make(chan struct{})
	app := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/pile" && waiting.Add(1) == pile {
			close(all)
		}
		if r.URL.Path == "/pile" {
			select {
			case <-all:
			case <-r.Context().Done():
			}
		}
		fmt.Fprint(rw, "web-1")
	})}
	go app.Serve(w.listen(2, 18080))
	t.Cleanup(func() { app.Close() })
	w.apply(timeoutPolicy(withoutTimeout))
	w.proxy("default", "web-1", server("web-1", "web", "http", 2, 20080))
	w.proxy("default", "client", caller("client", 3, "tags: {kuma.io/service: web}"))
	url := fmt.Sprintf("http://%s:10001/", w.address(3))
	w.eventually("a request passes", func() error { return get(url) })
	send := http2Client(nil, url+"pile").post
	ctx, cancel := context.WithCancel(testwait.Context(t))
	defer cancel()
	var requests sync.WaitGroup
	for range pile {
		requests.Go(func() {
			if _, err := send(ctx); err != nil {
				t.Error(err)
				cancel()
			}
		})
	}
	requests.Wait()
}

// Clients whose deadlines pass cancel thousands of requests. The proxies do not treat them as an attack: other requests
// on the same connections continue.
func TestCanceledRequestsFailNoOthers(t *testing.T) {
	const canceled, most = 6000, 200
	w := newWorld(t)
	var arrived atomic.Int64
	enough := make(chan struct{})
	app := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/long":
			arrived.Add(1)
			select {
			case <-enough:
			case <-r.Context().Done():
			}
		case "/never":
			<-r.Context().Done()
		}
		fmt.Fprint(rw, "web-1")
	})}
	go app.Serve(w.listen(2, 18080))
	t.Cleanup(func() { app.Close() })
	w.apply(timeoutPolicy(withoutTimeout))
	w.proxy("default", "web-1", server("web-1", "web", "http", 2, 20080))
	w.proxy("default", "client", caller("client", 3, "tags: {kuma.io/service: web}"))
	url := fmt.Sprintf("http://%s:10001/", w.address(3))
	w.eventually("a request passes", func() error { return get(url) })

	ctx := testwait.Context(t)
	transport := http2Transport(nil)
	long, never := traffic.SendOver(transport, http.MethodPost, url+"long"),
		traffic.SendOver(transport, http.MethodGet, url+"never")
	var others sync.WaitGroup
	for range 20 {
		others.Go(func() {
			if _, err := long(ctx); err != nil {
				t.Errorf("a POST that ran beside canceled requests: %v", err)
			}
		})
	}
	w.eventually("the POSTs run", func() error {
		if n := arrived.Load(); n < 20 {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	slots := make(chan struct{}, most)
	var requests sync.WaitGroup
	for range canceled {
		slots <- struct{}{}
		requests.Go(func() {
			defer func() { <-slots }()
			short, cancel := context.WithCancel(ctx)
			go func() {
				testwait.Pass(50*time.Millisecond, "a client gives up after this time")
				cancel()
			}()
			if _, err := never(short); !errors.Is(err, context.Canceled) {
				t.Errorf("a request without a response: %v, want that its client canceled it", err)
			}
		})
	}
	requests.Wait()
	close(enough)
	others.Wait()
}

// The drills detect a latency that stays high, and measure when it became normal.
func TestRecoveryIsWhenLatencyBecameNormal(t *testing.T) {
	const normal = 100 * time.Millisecond
	over := time.Now()
	line := func(slowUntil time.Duration) *timeline {
		l := &timeline{}
		for at := time.Duration(0); at < 5*time.Second; at += 10 * time.Millisecond {
			r := timedRequest{over.Add(at), 5 * time.Millisecond}
			if at < slowUntil {
				r.took = time.Second
			}
			l.requests = append(l.requests, r)
		}
		return l
	}
	for slowUntil, want := range map[time.Duration]time.Duration{
		0: 0, 700 * time.Millisecond: 750 * time.Millisecond, 2 * time.Second: 2 * time.Second, 5 * time.Second: -1,
	} {
		if got := line(slowUntil).recovered(over, over.Add(5*time.Second), normal); got != want {
			t.Errorf("slow for %s: %s, want %s", slowUntil, got, want)
		}
	}
}
