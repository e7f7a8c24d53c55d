package server

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"weft/internal/access"
	"weft/internal/bubble"
	"weft/internal/pki"
	"weft/internal/rest"
)

// pipes is a listener of connections that are channels, so that their ends wait in a bubble.
type pipes struct {
	accepted chan net.Conn
	closed   chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accepted:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	close(p.closed)
	return nil
}

func (*pipes) Addr() net.Addr { return &net.TCPAddr{} }

// TestAStopOfAServerIsBounded: a server with clients that are idle, or have sent a part of a request, ends after
// shutdownGrace. A server of gRPC ends at once, also while a client does not continue its TLS handshake.
func TestAStopOfAServerIsBounded(t *testing.T) {
	certificate, err := pki.ServerCertificate(t.TempDir(), []string{"localhost"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for name, server := range map[string]struct {
		serve func(context.Context, net.Listener) error
		says  []string // the clients
		most  time.Duration
	}{
		"HTTP": {func(ctx context.Context, at net.Listener) error {
			read := func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }
			return serveUntil(ctx, at, rest.NewHTTPServer(http.HandlerFunc(read),
				access.NewDenials(slog.New(slog.DiscardHandler))))
		}, []string{"", "GET / HTTP/1.1\r\nHost: x\r\n", "PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"},
			shutdownGrace},
		"gRPC": {func(ctx context.Context, at net.Listener) error {
			secured := credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{certificate}})
			return serveGRPC(ctx, at, grpc.NewServer(grpc.Creds(secured)))
		}, []string{"", "\x16\x03\x01\x02"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				at, ended := &pipes{make(chan net.Conn), make(chan struct{})}, make(chan error)
				go func() { ended <- server.serve(ctx, at) }()
				for _, says := range server.says {
					client, accepted := net.Pipe()
					defer client.Close()
					at.accepted <- accepted
					if says == "" {
						continue
					}
					if _, err := io.WriteString(client, says); err != nil {
						t.Fatal(err)
					}
				}
				synctest.Wait()
				began := time.Now()
				stop()
				if err := <-ended; err != nil || time.Since(began) > server.most {
					t.Errorf("it ends after %s with %v, want %s at most", time.Since(began), err, server.most)
				}
			})
		})
	}
}
