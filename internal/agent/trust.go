package agent

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"sync"

	"google.golang.org/grpc/credentials"
)

// trustedRoots are the CAs of the control plane's certificate. Their file is read at the beginning of each connection,
// since another control plane, or a replaced CA, writes it while the agent runs. Where the file can't be read, as in
// the moment of its replacement, the former CAs stay trusted.
type trustedRoots struct {
	file string

	mu   sync.Mutex
	pool *x509.CertPool
}

func newTrustedRoots(file string) (*trustedRoots, error) {
	pool, err := readRoots(file)
	return &trustedRoots{file: file, pool: pool}, err
}

// tls returns the configuration of the next connection.
func (r *trustedRoots) tls() *tls.Config {
	r.mu.Lock()
	defer r.mu.Unlock()
	if pool, err := readRoots(r.file); err == nil {
		r.pool = pool
	}
	return &tls.Config{RootCAs: r.pool, MinVersion: tls.VersionTLS12}
}

// credentials returns the credentials of a gRPC client, which call tls for each connection.
func (r *trustedRoots) credentials() credentials.TransportCredentials {
	return &currentTLS{TransportCredentials: credentials.NewTLS(r.tls()), roots: r}
}

// currentTLS is TLS with the CAs of each connection's beginning.
type currentTLS struct {
	credentials.TransportCredentials // for everything but the handshake
	roots                            *trustedRoots
}

// ClientHandshake implements credentials.TransportCredentials.
func (c *currentTLS) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn,
	credentials.AuthInfo, error) {
	return credentials.NewTLS(c.roots.tls()).ClientHandshake(ctx, authority, conn)
}

// Clone implements credentials.TransportCredentials.
func (c *currentTLS) Clone() credentials.TransportCredentials {
	return &currentTLS{TransportCredentials: c.TransportCredentials.Clone(), roots: c.roots}
}

func readRoots(file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("the control plane's CA (--ca-cert-file): %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s (--ca-cert-file) holds no certificate in PEM", file)
	}
	return roots, nil
}
