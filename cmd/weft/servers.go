package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"weft/internal/access"
	"weft/internal/adminsocket"
	"weft/internal/admit"
	"weft/internal/certfile"
	"weft/internal/diag"
	"weft/internal/metrics"
	"weft/internal/rest"
	"weft/internal/settings"
)

// shutdownGrace is how long a stopping control plane waits for what it is answering.
const shutdownGrace = 3 * time.Second

// ports are the control plane's listeners, all open before anything else happens, so that one that is
// taken stops the start before it has changed anything. Those of the API are nil where they are turned off; a zone has
// dataPlane, a global control plane zones. The administrator's socket is opened later, by openAdminSocket.
type ports struct{ api, apiOverTLS, dataPlane, diagnostics, zones, admin net.Listener }

func listen(s *settings.Settings) (*ports, error) {
	p := &ports{}
	for _, l := range []struct {
		name string
		at   settings.OptionalAddress
		into *net.Listener
	}{
		{"KUMA_API_SERVER_HTTP_PORT", s.API, &p.api},
		{"KUMA_API_SERVER_HTTPS_PORT", s.APIOverTLS.OptionalAddress, &p.apiOverTLS},
		{"KUMA_DP_SERVER_PORT", settings.OptionalAddress{Enabled: s.Mode == settings.Zone, Address: s.DataPlane}, &p.dataPlane},
		{"KUMA_DIAGNOSTICS_SERVER_PORT", settings.OptionalAddress{Enabled: true, Address: s.Diagnostics}, &p.diagnostics},
		{"KUMA_MULTIZONE_GLOBAL_KDS_GRPC_PORT", settings.OptionalAddress{Enabled: s.Mode == settings.Global, Address: s.ZoneSync.Address}, &p.zones},
	} {
		if !l.at.Enabled {
			continue
		}
		listener, err := net.Listen("tcp", l.at.String())
		if err != nil {
			p.close()
			if errors.Is(err, syscall.EADDRINUSE) {
				return nil, fmt.Errorf("%s is taken; stop what listens there, or choose another port with %s", l.at, l.name)
			}
			return nil, fmt.Errorf("listening on %s: %w", l.at, err)
		}
		*l.into = listener
	}
	return p, nil
}

func (p *ports) close() {
	for _, l := range []net.Listener{p.api, p.apiOverTLS, p.dataPlane, p.diagnostics, p.zones, p.admin} {
		if l != nil {
			l.Close()
		}
	}
}

// openAdminSocket opens the socket of the machine's own administrators in the data directory, which no other control
// plane uses by now, and lets their command line find it. That it can't be found there is no reason not to start.
func (p *plane) openAdminSocket() (err error) {
	if err := os.MkdirAll(p.settings.DataDir, 0o700); err != nil {
		return err
	}
	denied := func(peer string) {
		p.refused.Note("a caller of the administrator's socket is denied: it runs as another user", "from", peer)
	}
	if p.ports.admin, err = adminsocket.Listen(p.settings.DataDir, denied); err != nil {
		return err
	}
	folder, err := socketsFolder()
	if err == nil {
		var withdraw func()
		if withdraw, err = adminsocket.Announce(folder, p.settings.DataDir, p.ports.announced()); err == nil {
			p.onClose(withdraw)
			return nil
		}
	}
	p.log.Warn("weft on this machine does not find the administrator's socket by the address of the API; name it with --api unix:"+
		filepath.Join(p.settings.DataDir, adminsocket.Name), "reason", err)
	return nil
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

// certificates are what the servers show, and what the API's callers may show.
type certificates struct {
	server *certfile.Certificate // for proxies, and for zones that have no other
	zones  *certfile.Certificate
	api    *tls.Config // nil where the API is not served over TLS
}

func loadCertificates(ctx context.Context, s *settings.Settings, writer *admit.Writer, log *slog.Logger) (*certificates, error) {
	server, err := serverCertificate(ctx, s, writer, log)
	if err != nil {
		return nil, err
	}
	c := &certificates{server: server, zones: server}
	if s.ZoneSync.CertFile != "" {
		if c.zones, err = certfile.NewCertificate(s.ZoneSync.CertFile, s.ZoneSync.KeyFile, log); err != nil {
			return nil, fmt.Errorf("multizone.global.kds.tlsCertFile and multizone.global.kds.tlsKeyFile: %w", err)
		}
	}
	if s.APIOverTLS.Enabled {
		c.api, err = apiTLS(s.APIOverTLS, server, log)
	}
	return c, err
}

// apiTLS asks for a client certificate only where there is a CA that could have signed it. One of another CA
// ends the handshake.
func apiTLS(s settings.APIOverTLS, certificate *certfile.Certificate, log *slog.Logger) (*tls.Config, error) {
	if s.CertFile != "" {
		own, err := certfile.NewCertificate(s.CertFile, s.KeyFile, log)
		if err != nil {
			return nil, fmt.Errorf("apiServer.https.tlsCertFile and apiServer.https.tlsKeyFile: %w", err)
		}
		certificate = own
	}
	config := &tls.Config{GetCertificate: certificate.ForClient, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	if s.ClientCAFile == "" && s.ClientCADir == "" {
		return config, nil
	}
	users, err := certfile.NewRoots(s.ClientCAFile, s.ClientCADir, log)
	if err != nil {
		return nil, fmt.Errorf("apiServer.https.tlsCaFile and apiServer.auth.clientCertsDir: %w", err)
	}
	config.ClientAuth = tls.VerifyClientCertIfGiven
	if s.RequireClientCert {
		config.ClientAuth = tls.RequireAndVerifyClientCert
	}
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		current := config.Clone()
		current.ClientCAs = users.Now()
		return current, nil
	}
	return config, nil
}

// diagnostics answers health to everybody, and the process's figures and profiles to those who may see them.
func diagnostics(guard *rest.Guard, figures *metrics.Metrics) http.Handler {
	mux := http.NewServeMux()
	ok := func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "OK") }
	mux.HandleFunc("GET /ready", ok)
	mux.HandleFunc("GET /healthy", ok)
	mux.Handle("/debug/", guard.Protect(access.ViewDiagnostics, diag.Handler()))
	mux.Handle("GET /metrics", guard.Protect(access.ViewMetrics, figures.Handler()))
	return mux
}

// administration is what the administrator's socket serves: the API, and the diagnostics beside it.
func administration(api, diagnostics http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", api)
	for _, path := range []string{"/ready", "/healthy", "/debug/", "/metrics"} {
		mux.Handle(path, diagnostics)
	}
	return rest.AsAdministrator(mux)
}

// serveAPI serves the API on the ports that are open for it.
func serveAPI(ctx context.Context, group *errgroup.Group, ports *ports, secured *tls.Config, handler http.Handler, refused *access.Denials) {
	if ports.api != nil {
		group.Go(func() error { return serveHTTP(ctx, ports.api, handler, refused) })
	}
	if ports.apiOverTLS != nil {
		group.Go(func() error { return serveHTTP(ctx, tls.NewListener(ports.apiOverTLS, secured), handler, refused) })
	}
}

// addr answers where a listener listens, "off" where there is none.
func addr(l net.Listener) string {
	if l == nil {
		return "off"
	}
	return l.Addr().String()
}

// serveHTTP returns once what was being answered is answered, or has had its time.
func serveHTTP(ctx context.Context, at net.Listener, handler http.Handler, refused *access.Denials) error {
	return serveUntil(ctx, at, rest.NewHTTPServer(handler, refused))
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

// serveGRPC ends streams at once when it is told to stop: their clients find another instance, or wait
// for this one.
func serveGRPC(ctx context.Context, at net.Listener, server *grpc.Server) error {
	stopped := context.AfterFunc(ctx, server.Stop)
	defer stopped()
	if err := server.Serve(endingListener{at, ctx}); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serving on %s: %w", at.Addr(), err)
	}
	return nil
}

// endingListener closes its connections when the context ends. A gRPC server that stops waits for those
// which have not finished their TLS handshake, as long as they may take for it.
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

// Close implements net.Conn.
func (c *endingConn) Close() error {
	c.release()
	return c.Conn.Close()
}
