package webhook

import (
	"context"
	"crypto/tls"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// shutdownGrace is the time for which a stopping server waits for requests under way. It is more than the handlers
// need, and less than the time for which the API server waits.
const shutdownGrace = 3 * time.Second

// Serve serves webhooks over TLS until ctx ends, and returns after the requests under way. certificate returns the
// certificate for each new connection.
func Serve(ctx context.Context, at net.Listener, certificate func() *tls.Certificate, handler http.Handler,
	logger *slog.Logger) error {
	server := &http.Server{
		Handler:           handler,
		ErrorLog:          log.New(errorLog{logger}, "", 0),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       maxTimeout,
		WriteTimeout:      2 * maxTimeout,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
	}
	secured := tls.NewListener(at, &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certificate(), nil },
	})
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(secured) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serving webhooks on %s: %w", at.Addr(), err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
	defer cancel()
	if server.Shutdown(grace) != nil {
		server.Close()
	}
	return nil
}

// errorLog writes the messages of the HTTP server. A failed handshake shows that the API server has another caBundle.
type errorLog struct{ *slog.Logger }

// Write implements io.Writer.
func (l errorLog) Write(line []byte) (int, error) {
	l.Warn("webhook server", "message", string(line))
	return len(line), nil
}
