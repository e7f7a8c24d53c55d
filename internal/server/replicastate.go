package server

import (
	"crypto/x509"
	"errors"
	"io/fs"
	"sync"

	"weft/internal/certfile"
	"weft/internal/check"
	"weft/internal/pki"
	"weft/internal/settings"
)

// replicaState returns the state of this replica that `weft check` reports.
func (s *Server) replicaState() check.Replica {
	state := check.Replica{Certificates: s.certificates.served.now(), Lag: check.Failure(s.view.Lag()),
		Audit: check.Failure(s.audit.Failure())}
	for _, u := range s.mirrored.Unread() {
		state.Unread = append(state.Unread, check.Unread{Key: u.Key, Of: u.Of,
			Failure: check.Failure{Since: u.Since, Reason: u.Reason}})
	}
	if s.apiServer != nil {
		for _, r := range s.apiServer.outage.Rejections() {
			state.APIServer = append(state.APIServer, check.CallFailure{What: r.What,
				Failure: check.Failure{Since: r.Since, Reason: r.Reason}})
		}
	}
	if s.global != nil {
		state.RejectedZones = s.rejectedZones()
	}
	if s.joined != nil {
		state.ZoneToken = zoneTokenState(&s.settings.Join)
	}
	for _, p := range s.proxies.ProxyAccess() {
		state.Proxies = append(state.Proxies, check.ProxyAccess{Key: p.Key, Connected: p.Connected,
			TokenExpires: p.TokenExpires, Rejected: check.Rejection(p.Rejected)})
	}
	if since, ok := s.replica.Leaderless(); ok {
		state.Leaderless = since
	}
	return state
}

// rejectedZones returns the last rejected attempts of zones at this replica of global.
func (s *Server) rejectedZones() map[string]check.Rejection {
	rejected := map[string]check.Rejection{}
	for zone, r := range s.global.Rejections() {
		rejected[zone] = check.Rejection(r)
	}
	return rejected
}

// zoneTokenState returns the validity of the token with which a zone connects to global.
func zoneTokenState(to *settings.Join) (is check.ZoneToken) {
	token, err := zoneToken(to)
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		err = at.Err // without the path
	}
	if err != nil {
		is.Problem = err.Error()
	}
	is.NotBefore, is.Expires = pki.ZoneTokenValidity(token)
	return is
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
