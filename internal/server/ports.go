package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"google.golang.org/grpc"

	"weft/internal/access"
	"weft/internal/adminsocket"
	"weft/internal/diag"
	"weft/internal/metrics"
	"weft/internal/outage"
	"weft/internal/rest"
	"weft/internal/settings"
)

// shutdownGrace is how long a stopping control plane waits for requests under way.
const shutdownGrace = 3 * time.Second

// ports are the control plane's listeners. Those of the API are nil where they are turned off; a zone has dataPlane, a
// global control plane zones. On Kubernetes there are webhooks, and with a store that replicas share there is replicas.
type ports struct {
	api, apiOverTLS, dataPlane, diagnostics, zones, webhooks, replicas net.Listener
	admin                                                              *adminsocket.Socket
}

// listen opens all ports but the administrator's socket.
func (s *Server) listen(context.Context) error {
	c, p := s.settings, &s.ports
	s.onClose(p.close)
	for _, l := range []struct {
		name string
		at   settings.OptionalAddress
		into *net.Listener
	}{
		{"KUMA_API_SERVER_HTTP_PORT", c.API, &p.api},
		{"KUMA_API_SERVER_HTTPS_PORT", c.APIOverTLS.OptionalAddress, &p.apiOverTLS},
		{"KUMA_DP_SERVER_PORT", settings.OptionalAddress{Enabled: c.Mode == settings.Zone, Address: c.DataPlane},
			&p.dataPlane},
		{"KUMA_DIAGNOSTICS_SERVER_PORT", settings.OptionalAddress{Enabled: true, Address: c.Diagnostics},
			&p.diagnostics},
		{"KUMA_MULTIZONE_GLOBAL_KDS_GRPC_PORT", settings.OptionalAddress{Enabled: c.Mode == settings.Global,
			Address: c.ZoneSync.Address}, &p.zones},
		{"KUMA_RUNTIME_KUBERNETES_ADMISSION_SERVER_PORT", settings.OptionalAddress{
			Enabled: c.Store == settings.KubernetesAPI, Address: c.Admission.Address}, &p.webhooks},
		{"KUMA_INTER_CP_SERVER_PORT", settings.OptionalAddress{Enabled: sharesStore(c),
			Address: settings.Address{Port: c.ReplicaQueries.Port}}, &p.replicas},
	} {
		if !l.at.Enabled {
			continue
		}
		listener, err := net.Listen("tcp", l.at.String())
		if errors.Is(err, syscall.EADDRINUSE) {
			return fmt.Errorf("%s is taken; stop what listens there, or choose another port with %s", l.at, l.name)
		}
		if err != nil {
			return fmt.Errorf("listening on %s: %w", l.at, err)
		}
		*l.into = listener
	}
	return nil
}

func (p *ports) close() {
	for _, l := range []net.Listener{p.api, p.apiOverTLS, p.dataPlane, p.diagnostics, p.zones, p.webhooks,
		p.replicas} {
		if l != nil {
			l.Close()
		}
	}
	if p.admin != nil {
		p.admin.Close()
	}
}

// openAdminSocket opens the administrator's socket in the data directory, which no other control plane uses by now, and
// links to it for the command line. The start continues where the links cannot be made.
func (s *Server) openAdminSocket(context.Context) (err error) {
	if err := os.MkdirAll(s.settings.DataDir, 0o700); err != nil {
		return err
	}
	denied := func(peer string) {
		s.denials.Note("a caller of the administrator's socket is denied: it runs as another user", "from", peer)
	}
	socket, err := adminsocket.Listen(s.settings.DataDir, denied)
	if errors.Is(err, syscall.ENOSPC) {
		s.log.Warn("there is no administrator's socket until the next start", "error", err)
		return nil
	}
	if s.ports.admin = socket; err != nil || s.socketLinks == "" {
		return err
	}
	remove, err := adminsocket.Announce(s.socketLinks, s.settings.DataDir, s.ports.announced())
	if err != nil {
		s.log.Warn("weft on this machine does not find the administrator's socket by the address of the API; name it "+
			"with --api unix:"+
			filepath.Join(s.settings.DataDir, adminsocket.Name), "reason", err)
		return nil
	}
	s.onClose(remove)
	return nil
}

// Addresses are the addresses of a control plane's listeners; "off" where there is none. AdminSocket is a path.
type Addresses struct{ API, APIOverTLS, DataPlane, Diagnostics, Zones, AdminSocket, Webhooks, Replicas string }

// Addresses returns the addresses at which the control plane listens.
func (s *Server) Addresses() Addresses {
	p := &s.ports
	return Addresses{
		API: addressOf(p.api), APIOverTLS: addressOf(p.apiOverTLS), DataPlane: addressOf(p.dataPlane),
		Diagnostics: addressOf(p.diagnostics), Zones: addressOf(p.zones), AdminSocket: p.adminSocket(),
		Webhooks: addressOf(p.webhooks), Replicas: addressOf(p.replicas),
	}
}

func (p *ports) adminSocket() string {
	if p.admin == nil {
		return "off"
	}
	return p.admin.Addr().String()
}

func addressOf(l net.Listener) string {
	if l == nil {
		return "off"
	}
	return l.Addr().String()
}

// announced are the addresses at which the machine's own administrators look for the API.
func (p *ports) announced() []net.Addr {
	var addresses []net.Addr
	for _, l := range []net.Listener{p.api, p.apiOverTLS, p.diagnostics} {
		if l != nil {
			addresses = append(addresses, l.Addr())
		}
	}
	return addresses
}

// diagnostics serves health to every client, and the process's metrics and profiles to permitted users.
//
// A control plane whose store takes no writes is ready: proxies get their configuration and certificates.
func diagnostics(guard *rest.Guard, m *metrics.Metrics, store *outage.Outage) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "OK")
		if since, why, ok := store.Now(); ok {
			fmt.Fprintf(w, "the store takes no writes since %s: %s\n", since.UTC().Format(time.RFC3339), why)
		}
	})
	mux.HandleFunc("GET /healthy", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "OK") })
	mux.Handle("/debug/", guard.Protect(access.ViewDiagnostics, diag.Handler()))
	mux.Handle("GET /metrics", guard.Protect(access.ViewMetrics, m.Handler()))
	return mux
}

// administration is what the administrator's socket serves: the API, and the diagnostics beside it. A request without
// the proof of the socket has the credentials that it brings, as over TCP.
func administration(proves func(*http.Request) bool, api, diagnostics http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", api)
	for _, path := range []string{"/ready", "/healthy", "/debug/", "/metrics"} {
		mux.Handle(path, diagnostics)
	}
	proven := rest.AsAdministrator(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if proves(r) {
			proven.ServeHTTP(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// serveAPI serves the API on the ports that are open for it.
func (s *Server) serveAPI(ctx context.Context, handler http.Handler) {
	if s.ports.api != nil {
		s.group.Go(func() error { return serveHTTP(ctx, s.ports.api, handler, s.denials) })
	}
	if s.ports.apiOverTLS != nil {
		secured := tls.NewListener(s.ports.apiOverTLS, s.certificates.api)
		s.group.Go(func() error { return serveHTTP(ctx, secured, handler, s.denials) })
	}
}

// serveHTTP serves until ctx ends, and returns after the requests under way, for which it waits shutdownGrace at most.
func serveHTTP(ctx context.Context, at net.Listener, handler http.Handler, denials *access.Denials) error {
	return serveUntil(ctx, at, rest.NewHTTPServer(handler, denials))
}

// serveUntil serves until ctx ends, as [serveHTTP] does.
func serveUntil(ctx context.Context, at net.Listener, server *http.Server) error {
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(at) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serving on %s: %w", at.Addr(), err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
	defer cancel()
	if server.Shutdown(grace) != nil {
		server.Close()
	}
	return nil
}

// serveGRPC serves until ctx ends, and then closes its streams at once: their clients connect to another replica, or
// reconnect to this one.
func serveGRPC(ctx context.Context, at net.Listener, server *grpc.Server) error {
	stopped := context.AfterFunc(ctx, server.Stop)
	defer stopped()
	if err := server.Serve(endingListener{at, ctx}); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serving on %s: %w", at.Addr(), err)
	}
	return nil
}

// endingListener closes its connections when the context ends. A stopping gRPC server
// waits for connections in their TLS handshake until the handshake's timeout.
type endingListener struct {
	net.Listener
	ctx context.Context
}

// Accept implements net.Listener.
func (l endingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &endingConn{c, context.AfterFunc(l.ctx, func() { c.Close() })}, nil
}

type endingConn struct {
	net.Conn
	release func() (stopped bool)
}

// SyscallConn implements syscall.Conn.
func (c *endingConn) SyscallConn() (syscall.RawConn, error) {
	socket, ok := c.Conn.(syscall.Conn)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return socket.SyscallConn()
}

// Close implements net.Conn.
func (c *endingConn) Close() error {
	c.release()
	return c.Conn.Close()
}
