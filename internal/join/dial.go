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

// Keepalive of an idle connection: when a ping is sent, and how long the other side has to respond.
const (
	pingAfter   = 10 * time.Second
	pingTimeout = 5 * time.Second
)

// Dial returns a zone's connection to the global control plane at "HOST:PORT", over TLS. cas returns the CAs of its
// certificate; nil: the system's. token returns the zone token; it is called for each RPC, so that a renewed token
// takes effect. zone is the name of the zone, so that the token of another zone is detected, and storeID the ID of its
// store ([StoreID]).
func Dial(address string, cas func() *x509.CertPool, token func() (string, error), zone,
	storeID string) (*grpc.ClientConn, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if cas != nil {
		config.InsecureSkipVerify = true // the standard check cannot change its CAs; verify makes the same check
		config.VerifyConnection = func(s tls.ConnectionState) error { return verify(s, cas()) }
	}
	return grpc.NewClient(address,
		grpc.WithTransportCredentials(credentials.NewTLS(config)),
		grpc.WithPerRPCCredentials(bearer{token, zone, storeID}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(zonesync.MaxFrame),
			grpc.MaxCallSendMsgSize(zonesync.MaxFrame)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingAfter, Timeout: pingTimeout}),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: redial, MinConnectTimeout: pingTimeout}),
	)
}

// verify does what crypto/tls does with a fixed set of CAs.
func verify(s tls.ConnectionState, cas *x509.CertPool) error {
	if len(s.PeerCertificates) == 0 {
		return errors.New("the global control plane has no certificate")
	}
	intermediates := x509.NewCertPool()
	for _, certificate := range s.PeerCertificates[1:] {
		intermediates.AddCert(certificate)
	}
	_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{DNSName: s.ServerName, Roots: cas,
		Intermediates: intermediates})
	return err
}

// bearer adds the zone token, the name of the zone and the ID of its store to each call.
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
	return map[string]string{"authorization": "Bearer " + token, zonesync.ZoneMetadata: b.zone,
		zonesync.StoreMetadata: b.storeID}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (b bearer) RequireTransportSecurity() bool { return true }
