package agent

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"

	"weft/internal/agent/probecall"
	"weft/internal/agent/redirect"
	"weft/internal/connlimit"
	"weft/internal/wait"
	"weft/resource"
)

// ProbeProxy forwards probes of the kubelet, which has no certificate of the mesh, to the application of a Pod.
//
// The path is /PORT/PATH for HTTP, /tcp/PORT, or /grpc/PORT. Any client can connect. So only the calls that the Pod
// declares are forwarded, with the headers that it declares: its hosts, and its timeouts. A call runs once at a time
// for all callers ([result]), so strangers keep neither the application nor the kubelet busy.
type ProbeProxy struct {
	Port        int    // of all addresses of the machine; 0: none
	Application string // the IP address of the application. The kubelet would call the address of the Pod
	// Declared are the calls that are forwarded, each a [probecall.Declaration].
	Declared []string
}

const (
	maxProbeTimeout   = 10 * time.Minute
	maxProbeResponse  = 10 << 10 // of which the kubelet reads no more
	maxProbeRedirects = 10
	maxOpening        = time.Second // of a port
	// resultPeriod is the time for which the result of a call is that of the next ones. The kubelet repeats a probe
	// after a second at the earliest.
	resultPeriod = 100 * time.Millisecond
	// maxProbeConns and maxProbeConnsOfSource bound the connections. The kubelet has one for each probe of the Pod.
	maxProbeConns         = 512
	maxProbeConnsOfSource = 64
	// probeRequestTimeout bounds the time in which a request arrives.
	probeRequestTimeout = 5 * time.Second
)

func (p ProbeProxy) serve(ctx context.Context, parts *errgroup.Group) error {
	if p.Port == 0 {
		return nil
	}
	listener, err := net.Listen("tcp", fmt.Sprintf(":%d", p.Port))
	if err != nil {
		return fmt.Errorf("the port of the probe proxy: %w; choose another with --probe-proxy-port", err)
	}
	server := p.server(ctx)
	context.AfterFunc(ctx, func() { server.Close() })
	parts.Go(func() error {
		server.Serve(connlimit.NewListener(listener, maxProbeConns, maxProbeConnsOfSource))
		return nil
	})
	return nil
}

// server returns the server of the port. A connection carries one request, as those of the kubelet do. The calls end
// with ctx.
func (p ProbeProxy) server(ctx context.Context) *http.Server {
	server := &http.Server{Handler: newProber(ctx, p), ReadTimeout: probeRequestTimeout,
		WriteTimeout: maxProbeTimeout + probeRequestTimeout, MaxHeaderBytes: 64 << 10}
	server.SetKeepAlivesEnabled(false)
	return server
}

// prober forwards the calls of a ProbeProxy.
type prober struct {
	ProbeProxy
	ctx    context.Context // of the calls, which outlive the request that began them
	period time.Duration   // resultPeriod
	dialer net.Dialer
	opened sync.Map // the addresses of the application that have accepted a connection

	mu      sync.Mutex
	results map[string]*result // by declaration, the last one of each
}

// result is the response to a call, which all requests get that come while the call runs, and shortly after.
type result struct {
	done chan struct{} // closed when the fields below are set
	code int
	kind string // the Content-Type
	body []byte
	at   time.Time
}

func newProber(ctx context.Context, p ProbeProxy) *prober {
	made := &prober{ProbeProxy: p, ctx: ctx, period: resultPeriod, results: map[string]*result{}}
	if to := net.ParseIP(p.Application); to.To4() != nil && !to.IsLoopback() {
		made.dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(redirect.DeliverySource)}
	}
	return made
}

// ServeHTTP implements http.Handler.
func (p *prober) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	declaration := probecall.Declaration(r.URL.RequestURI(), r.Header)
	if r.Method != http.MethodGet || r.ContentLength != 0 || !slices.Contains(p.Declared, declaration) {
		http.Error(w, "the Pod has no such probe: want its path and its headers", http.StatusNotFound)
		return
	}
	of := p.call(declaration, r)
	select {
	case <-of.done:
	case <-r.Context().Done():
		return
	}
	if of.kind != "" {
		w.Header().Set("Content-Type", of.kind)
	}
	w.WriteHeader(of.code)
	_, _ = w.Write(of.body)
}

// call returns the result of a declared call: of the one that runs, of one that has ended within the period, or of a
// new one.
func (p *prober) call(declaration string, r *http.Request) *result {
	p.mu.Lock()
	defer p.mu.Unlock()
	if last := p.results[declaration]; last != nil {
		select {
		case <-last.done:
			if time.Since(last.at) < p.period {
				return last
			}
		default:
			return last
		}
	}
	made := &result{done: make(chan struct{})}
	p.results[declaration] = made
	path, header := r.URL.RequestURI(), r.Header.Clone()
	go func() {
		defer close(made.done)
		ctx, cancel := context.WithTimeout(p.ctx, timeoutOfProbe(header))
		defer cancel()
		if err := p.run(ctx, made, path, header); err != nil {
			made.code, made.kind, made.body = http.StatusServiceUnavailable, "text/plain; charset=utf-8",
				[]byte(resource.Line(err)+"\n")
		}
		made.at = time.Now()
	}()
	return made
}

// run calls the application.
func (p *prober) run(ctx context.Context, into *result, path string, header http.Header) error {
	into.code = http.StatusOK
	switch first, rest, _ := strings.Cut(path[1:], "/"); first {
	case "tcp":
		return p.connects(ctx, rest)
	case "grpc":
		return p.serves(ctx, rest, header.Get(probecall.GRPCServiceHeader))
	default:
		return p.forward(ctx, into, first, "/"+rest, header)
	}
}

// timeoutOfProbe returns the timeout of a probe, a second by default, as in Kubernetes.
func timeoutOfProbe(header http.Header) time.Duration {
	seconds, err := strconv.ParseUint(header.Get(probecall.TimeoutHeader), 10, 16)
	if err != nil || seconds == 0 {
		return time.Second
	}
	return min(time.Duration(seconds)*time.Second, maxProbeTimeout)
}

// address returns the address of a port of the application.
func (p ProbeProxy) address(port string) string { return net.JoinHostPort(p.Application, port) }

func (p *prober) connects(ctx context.Context, port string) error {
	conn, err := p.dial(ctx, "tcp", p.address(port))
	if err != nil {
		return err
	}
	return conn.Close()
}

// dial opens a connection to the application that is not redirected, although it is of the proxy's user. A port that
// has accepted none yet is that of an application that starts: dial waits for it, for half of the time of the probe and
// [maxOpening] at most. The kubelet probes a container at the moment of its start, and at each change of a sidecar
// beside it; a failed probe is an event, and delays the Pod by the period of the probe.
func (p *prober) dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	attempt := func(context.Context) error {
		conn, err = p.dialer.DialContext(ctx, network, address)
		return err
	}
	if _, opened := p.opened.Load(address); opened {
		err = attempt(ctx)
		return conn, err
	}
	opening := maxOpening
	if deadline, ok := ctx.Deadline(); ok {
		opening = min(opening, time.Until(deadline)/2)
	}
	bounded, cancel := context.WithTimeout(ctx, opening)
	defer cancel()
	if err := wait.Until(bounded, 20*time.Millisecond, attempt); err != nil {
		return nil, err
	}
	p.opened.Store(address, true)
	return conn, nil
}

// serves checks the health of a gRPC service (grpc.health.v1).
func (p *prober) serves(ctx context.Context, port, service string) error {
	conn, err := grpc.NewClient("passthrough:///"+p.address(port),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return p.dial(ctx, "tcp", address)
		}))
	if err != nil {
		return err
	}
	defer conn.Close()
	response, err := grpc_health_v1.NewHealthClient(conn).Check(ctx,
		&grpc_health_v1.HealthCheckRequest{Service: service})
	if err == nil && response.Status != grpc_health_v1.HealthCheckResponse_SERVING {
		return fmt.Errorf("the service %q is %s", service, response.Status)
	}
	return err
}

// forward sends a probe to the application, and returns its response. Like the kubelet, it does not verify a
// certificate, and follows redirects to the same host only.
func (p *prober) forward(ctx context.Context, into *result, port, path string, header http.Header) error {
	scheme := "http"
	if strings.EqualFold(header.Get(probecall.SchemeHeader), "https") {
		scheme = "https"
	}
	target, err := url.Parse(scheme + "://" + p.address(port) + path)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return err
	}
	for name, values := range header {
		if !strings.HasPrefix(name, probecall.HeaderPrefix) {
			request.Header[name] = values
		}
	}
	request.Host = header.Get(probecall.HostHeader)
	if header.Get("User-Agent") == "" {
		request.Header["User-Agent"] = []string{""} // as the probe has it; without it, Go would send its own
	}
	client := &http.Client{
		// The application gets the headers of the probe, and no Accept-Encoding that the kubelet does not send.
		Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true, DialContext: p.dial,
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, // as the kubelet
		CheckRedirect: func(next *http.Request, via []*http.Request) error {
			if next.URL.Hostname() != target.Hostname() || len(via) >= maxProbeRedirects {
				return http.ErrUseLastResponse
			}
			return nil
		},
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	into.code, into.kind = response.StatusCode, response.Header.Get("Content-Type")
	into.body, _ = io.ReadAll(io.LimitReader(response.Body, maxProbeResponse)) // the status decides, as for the kubelet
	return nil
}
