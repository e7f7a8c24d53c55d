package check

import "time"

// ServerCertificate is the certificate of a server of the control plane.
type ServerCertificate struct {
	Server              string // "its server of proxies"
	Clients             string // "proxy"
	NotBefore, NotAfter time.Time
	// Problem is why its changed files cannot be read; empty: they can.
	Problem string
}

var serverCertificateUnreadable = &Problem{"server-certificate-unreadable", Warning,
	"Correct the files, whose certificate and key belong together. The former certificate is served until then, and " +
		"a restart fails."}

// serverCertificates finds certificates of servers that are not valid now or soon.
func (l *controlChecker) serverCertificates() {
	for _, c := range l.Replica.Certificates {
		switch {
		case l.Now.After(c.NotAfter):
			l.add(serverCertificateExpiring, Error, controlPlane,
				"the certificate of %s expired at %s: no %s can connect", c.Server, day(c.NotAfter), c.Clients)
		case c.NotAfter.Sub(l.Now) < endsSoon:
			l.found(serverCertificateExpiring, controlPlane, "the certificate of %s expires at %s", c.Server,
				day(c.NotAfter))
		case l.Now.Before(c.NotBefore):
			l.add(serverCertificateExpiring, Error, controlPlane,
				"the certificate of %s is valid from %s on: no %s can connect", c.Server, day(c.NotBefore), c.Clients)
		}
		if c.Problem != "" {
			l.found(serverCertificateUnreadable, controlPlane, "the changed files of the certificate of %s cannot be "+
				"read: %s", c.Server, c.Problem)
		}
	}
}
