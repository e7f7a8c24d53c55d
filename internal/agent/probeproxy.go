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

	"weft/internal/agent/redirect"
	"weft/internal/wait"
)

// ProbeProxy forwards probes of the kubelet, which has no certificate of the mesh, to the application of a Pod.
//
// The path is /PORT/PATH for HTTP, /tcp/PORT, or /grpc/PORT. Only the probes that the Pod has are forwarded, since any
// client can connect.
type ProbeProxy struct {
	Port        int      // of all addresses of the machine; 0: none
	Application string   // the IP address of the application. The kubelet would call the address of the Pod
	Paths       []string // the paths, with their queries, that are forwarded
}

// Headers of a probe, which the injector writes.
const (
	probeHeaders      = "X-Kuma-Probes-"
	probeHost         = probeHeaders + "Host"
	probeScheme       = probeHeaders + "Scheme"
	probeTimeout      = probeHeaders + "Timeout" // seconds
	probeGRPCService  = probeHeaders + "Grpc-Service"
	maxProbeTimeout   = 10 * time.Minute
	maxProbeResponse  = 10 << 10 // of which the kubelet reads no more
	maxProbeRedirects = 10
	maxOpening        = time.Second // of a port
)

func (p ProbeProxy) serve(ctx context.Context, parts *errgroup.Group) error {
	if p.Port == 0 {
		return nil
	}
	listener, err := net.Listen("tcp", fmt.Sprintf(":%d", p.Port))
	if err != nil {
		return fmt.Errorf("the port of the probe proxy: %w; choose another with --probe-proxy-port", err)
	}
	server := &http.Server{Handler: newProber(p), ReadHeaderTimeout: 5 * time.Second, MaxHeaderBytes: 64 << 10}
	context.AfterFunc(ctx, func() { server.Close() })
	parts.Go(func() error {
		server.Serve(listener)
		return nil
	})
	return nil
}

// prober forwards the probes of a ProbeProxy.
type prober struct {
	ProbeProxy
	dialer net.Dialer
	opened sync.Map // the addresses of the application that have accepted a connection
}

func newProber(p ProbeProxy) *prober {
	made := &prober{ProbeProxy: p}
	if to := net.ParseIP(p.Application); to.To4() != nil && !to.IsLoopback() {
		made.dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(redirect.DeliverySource)}
	}
	return made
}

// ServeHTTP implements http.Handler.
func (p *prober) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet || !slices.Contains(p.Paths, r.URL.RequestURI()) {
		http.Error(w, "the Pod has no such probe", http.StatusNotFound)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), timeoutOfProbe(r.Header))
	defer cancel()
	first, rest, _ := strings.Cut(r.URL.RequestURI()[1:], "/")
	var err error
	switch first {
	case "tcp":
		err = p.connects(ctx, rest)
	case "grpc":
		err = p.serves(ctx, rest, r.Header.Get(probeGRPCService))
	default:
		err = p.forward(ctx, w, first, "/"+rest, r.Header)
		if err == nil {
			return // it responded
		}
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	}
}

// timeoutOfProbe returns the timeout of a probe, a second by default, as in Kubernetes.
func timeoutOfProbe(header http.Header) time.Duration {
	seconds, err := strconv.ParseUint(header.Get(probeTimeout), 10, 16)
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

// forward sends a probe to the application, and its response to the kubelet. Like the kubelet, it does not verify a
// certificate, and follows redirects to the same host only.
func (p *prober) forward(ctx context.Context, w http.ResponseWriter, port, path string, header http.Header) error {
	scheme := "http"
	if strings.EqualFold(header.Get(probeScheme), "https") {
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
		if !strings.HasPrefix(name, probeHeaders) {
			request.Header[name] = values
		}
	}
	request.Host = header.Get(probeHost)
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
	w.Header().Set("Content-Type", response.Header.Get("Content-Type"))
	w.WriteHeader(response.StatusCode)
	_, _ = io.Copy(w, io.LimitReader(response.Body, maxProbeResponse))
	return nil
}
