package join

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"weft/internal/zonesync"
)

// Of a connection on which nothing is said: when the other side is asked whether it is there, and how long it
// has to answer.
const (
	pingAfter   = 10 * time.Second
	pingTimeout = 5 * time.Second
)

// Dial answers a zone's connection to the global control plane at "HOST:PORT", over TLS. CAs answers those of
// its certificate; nil: the machine's. Token answers the zone token and is asked for each call, so that one
// which is renewed takes effect. It says which zone it is, so that a
// token of another one is told apart, and the ID of its store ([StoreID]).
func Dial(address string, cas func() *x509.CertPool, token func() (string, error), zone, storeID string) (*grpc.ClientConn, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if cas != nil {
		config.InsecureSkipVerify = true // the standard check knows no CAs that change; this one is the same
		config.VerifyConnection = func(s tls.ConnectionState) error { return verify(s, cas()) }
	}
	return grpc.NewClient(address,
		grpc.WithTransportCredentials(credentials.NewTLS(config)),
		grpc.WithPerRPCCredentials(bearer{token, zone, storeID}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(zonesync.MaxFrame), grpc.MaxCallSendMsgSize(zonesync.MaxFrame)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingAfter, Timeout: pingTimeout}),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: redial, MinConnectTimeout: pingTimeout}),
	)
}

// verify does what crypto/tls does with CAs that it is given from the start.
func verify(s tls.ConnectionState, cas *x509.CertPool) error {
	if len(s.PeerCertificates) == 0 {
		return errors.New("the global control plane has no certificate")
	}
	intermediates := x509.NewCertPool()
	for _, certificate := range s.PeerCertificates[1:] {
		intermediates.AddCert(certificate)
	}
	_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{DNSName: s.ServerName, Roots: cas, Intermediates: intermediates})
	return err
}

// bearer proves with each call which zone it is of, and says which store it has.
type bearer struct {
	token         func() (string, error)
	zone, storeID string
}

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	token, err := b.token()
	if err != nil {
		return nil, fmt.Errorf("the zone token: %w", err)
	}
	return map[string]string{"authorization": "Bearer " + token, zonesync.ZoneMetadata: b.zone, zonesync.StoreMetadata: b.storeID}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (b bearer) RequireTransportSecurity() bool { return true }
