package pki

import (
	"crypto/tls"
	"crypto/x509"
	"testing"
	"time"
)

func TestTLSCertificates(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	caCert, caKey, err := NewCA(now, "users.example.com")
	if err != nil {
		t.Fatal(err)
	}
	ca, err := ParseCA(append(caCert, caKey...))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(caCert)

	user := certificateOf(t, ca, TLSCertificate{User: "ann", Groups: []string{"ops"}, Lifetime: time.Hour, Now: now})
	if _, err := user.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Errorf("a user's certificate: %v", err)
	}
	if user.Subject.CommonName != "ann" || user.Subject.Organization[0] != "ops" {
		t.Errorf("it names %s", user.Subject)
	}
	if _, err := user.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now}); err == nil {
		t.Error("a user can stand for a server")
	}
	server := certificateOf(t, nil, TLSCertificate{Hosts: []string{"cp.example.com", "10.0.0.1"}, Lifetime: time.Hour,
		Now: now})
	itself := x509.NewCertPool()
	itself.AddCert(server)
	for _, host := range []string{"cp.example.com", "10.0.0.1"} {
		if _, err := server.Verify(x509.VerifyOptions{Roots: itself, DNSName: host, CurrentTime: now}); err != nil {
			t.Errorf("a server's certificate at %s: %v", host, err)
		}
	}
	if _, _, err := NewTLSCertificate(ca,
		TLSCertificate{User: "ann", Lifetime: time.Hour, Now: now.AddDate(20, 0, 0)}); err == nil {
		t.Error("a CA that has ended signs")
	}
}

func certificateOf(t *testing.T, ca *CA, c TLSCertificate) *x509.Certificate {
	cert, key, err := NewTLSCertificate(ca, c)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return pair.Leaf
}
