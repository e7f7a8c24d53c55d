// Package replicaquery carries queries between the replicas that share one store, for state that only one of them has:
// the connections of its proxies and zones.
//
// Each replica serves HTTPS at the address in its Instance row. Both sides prove the ID of their instance by a
// certificate of the control plane's own CA, which is in the store. It has the ID as its only name, so that it is no
// certificate of a server of proxies, zones or users, and theirs are none of a replica.
package replicaquery

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"weft/internal/pki"
	"weft/resource"
)

const (
	// certificateLife is the validity of a replica's certificate. It is replaced at half of it.
	certificateLife = 24 * time.Hour
	// dialTimeout is the time in which a replica accepts a connection.
	dialTimeout = 3 * time.Second
	// headerTimeout is the time in which a replica begins its response: longer than it waits for a zone.
	headerTimeout = time.Minute
)

// Config configures the queries of one replica.
type Config struct {
	Instance string // of this replica
	CA       []byte // PEM with its key, as [pki.NewServerCA] returns it
	// AddressOf returns the address of another live replica, "" where it states none; false: no such replica is live.
	AddressOf func(instance string) (address string, live bool)
	Now       func() time.Time
}

// Peers are the other replicas. It is safe for concurrent use.
type Peers struct {
	Config
	ca    *pki.CA
	roots *x509.CertPool

	mu      sync.Mutex
	own     *tls.Certificate
	clients map[string]*http.Client // by instance
}

// New returns the queries of a replica.
func New(c Config) (*Peers, error) {
	ca, err := pki.ParseCA(c.CA)
	if err != nil {
		return nil, fmt.Errorf("the CA of the control plane: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(ca.Root()))
	return &Peers{Config: c, ca: ca, roots: roots, clients: map[string]*http.Client{}}, nil
}

// ServerTLS returns the configuration of the server: its clients are live replicas.
func (p *Peers) ServerTLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return p.certificate() },
		ClientAuth:     tls.RequireAndVerifyClientCert, ClientCAs: p.roots,
		VerifyConnection: func(s tls.ConnectionState) error {
			instance := pki.ReplicaOf(s.PeerCertificates[0])
			if _, live := p.AddressOf(instance); !live || instance == p.Instance {
				return fmt.Errorf("the client is no other live replica: %.100q", instance)
			}
			return nil
		},
	}
}

// Caller returns the replica that sent a request to this one.
func Caller(r *http.Request) string { return pki.ReplicaOf(r.TLS.PeerCertificates[0]) }

// Do sends a request to another replica. Its URL has a path and a query. The text of the error is for the caller of the
// API: the replica, its address and the reason.
func (p *Peers) Do(r *http.Request, instance string) (*http.Response, error) {
	address, live := p.AddressOf(instance)
	switch {
	case !live:
		return nil, resource.Errorf(resource.Unavailable, "the replica %s is gone; try again", instance)
	case address == "":
		return nil, resource.Errorf(resource.Unavailable, "the replica %s is of a release that serves no queries of "+
			"other replicas; upgrade it, or send the request to it", instance)
	}
	r.URL.Scheme, r.URL.Host = "https", address
	response, err := p.client(instance).Do(r)
	if err != nil {
		var at *url.Error
		if errors.As(err, &at) {
			err = at.Err // without the URL
		}
		return nil, resource.Errorf(resource.Unavailable, "the replica %s does not respond at %s: %s", instance,
			address, err)
	}
	return response, nil
}

// client returns the client of a replica. That of a replica that is gone is dropped.
func (p *Peers) client(instance string) *http.Client {
	p.mu.Lock()
	defer p.mu.Unlock()
	for known, client := range p.clients {
		if _, live := p.AddressOf(known); !live {
			client.CloseIdleConnections()
			delete(p.clients, known)
		}
	}
	if p.clients[instance] == nil {
		p.clients[instance] = &http.Client{Transport: &http.Transport{
			TLSClientConfig: p.clientTLS(instance), TLSHandshakeTimeout: dialTimeout, ForceAttemptHTTP2: true,
			ResponseHeaderTimeout: headerTimeout,
			DialContext:           (&net.Dialer{Timeout: dialTimeout}).DialContext, IdleConnTimeout: time.Minute,
		}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	return p.clients[instance]
}

func (p *Peers) clientTLS(instance string) *tls.Config {
	return &tls.Config{
		MinVersion:           tls.VersionTLS13,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return p.certificate() },
		// The certificate has no host name: VerifyConnection verifies it whole.
		InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			certificate := s.PeerCertificates[0]
			if _, err := certificate.Verify(x509.VerifyOptions{Roots: p.roots, CurrentTime: p.Now(),
				KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}); err != nil {
				return err
			}
			if got := pki.ReplicaOf(certificate); got != instance {
				return fmt.Errorf("it is the replica %.100q", got)
			}
			return nil
		},
	}
}

// certificate returns a current certificate of this replica.
func (p *Peers) certificate() (*tls.Certificate, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.Now()
	if p.own != nil && now.Before(p.own.Leaf.NotAfter.Add(-certificateLife/2)) {
		return p.own, nil
	}
	own, err := pki.NewReplicaCertificate(p.ca, p.Instance, certificateLife, now)
	if err != nil {
		return nil, err
	}
	p.own = own
	return own, nil
}
