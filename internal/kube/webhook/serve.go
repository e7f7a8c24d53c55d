package webhook

import (
	"crypto/tls"
	"crypto/x509"
	"log"
	"log/slog"
	"net"
	"net/http"
	"time"

	"weft/internal/connlimit"
)

// NewHTTPServer returns a server of webhooks, for connections of [Listen].
func NewHTTPServer(handler http.Handler, logger *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		ErrorLog:          log.New(errorLog{logger}, "", 0),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       maxTimeout,
		WriteTimeout:      2 * maxTimeout,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
	}
}

// Listen returns a listener of TLS connections of API servers, with bounds of all of them and of those of one source
// address. certificate returns the certificate for each new connection, and authorities the CAs of which one must have
// signed the caller's certificate; a nil authorities asks for none.
func Listen(at net.Listener, certificate func() *tls.Certificate, authorities func() *x509.CertPool) net.Listener {
	config := &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certificate(), nil },
	}
	if authorities != nil {
		ofCaller := config.Clone()
		ofCaller.ClientAuth = tls.RequireAndVerifyClientCert
		config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
			current := ofCaller.Clone()
			current.ClientCAs = authorities()
			return current, nil
		}
	}
	return tls.NewListener(connlimit.NewListener(at, maxConns, maxConnsOfSource), config)
}

// errorLog writes the messages of the HTTP server. A failed handshake shows that the API server has another caBundle.
type errorLog struct{ *slog.Logger }

// Write implements io.Writer.
func (l errorLog) Write(line []byte) (int, error) {
	l.Warn("webhook server", "message", string(line))
	return len(line), nil
}
