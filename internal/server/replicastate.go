package server

import (
	"crypto/x509"
	"sync"

	"weft/internal/certfile"
	"weft/internal/check"
)

// replicaState returns the state of this replica that `weft check` reports.
func (s *Server) replicaState() check.Replica {
	state := check.Replica{Certificates: s.certificates.served.now(), Lag: check.Failure(s.view.Lag()),
		Audit: check.Failure(s.audit.Failure())}
	for _, u := range s.mirrored.Unread() {
		state.Unread = append(state.Unread, check.Unread{Key: u.Key, Of: u.Of,
			Failure: check.Failure{Since: u.Since, Reason: u.Reason}})
	}
	if since, ok := s.replica.Leaderless(); ok {
		state.Leaderless = since
	}
	return state
}

// servedCertificates are the certificates of the servers that run.
type servedCertificates struct {
	mu  sync.Mutex
	all []servedCertificate
}

type servedCertificate struct {
	server, clients string // as in [check.ServerCertificate]
	current         func() *x509.Certificate
	problem         func() string // of its files; nil: it has none
}

func (s *servedCertificates) add(c servedCertificate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, c)
}

// addFiles adds a certificate of files.
func (s *servedCertificates) addFiles(c *certfile.Certificate, server, clients string) {
	s.add(servedCertificate{server, clients, func() *x509.Certificate { return c.Now().Leaf }, c.Problem})
}

func (s *servedCertificates) now() []check.ServerCertificate {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []check.ServerCertificate
	for _, c := range s.all {
		current := c.current()
		is := check.ServerCertificate{Server: c.server, Clients: c.clients, NotBefore: current.NotBefore,
			NotAfter: current.NotAfter}
		if c.problem != nil {
			is.Problem = c.problem()
		}
		all = append(all, is)
	}
	return all
}
