package identity

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"
)

const (
	serverLifetime = 5 * 365 * 24 * time.Hour
	// serverRenewal is how long before its end a server certificate is made anew.
	serverRenewal = 365 * 24 * time.Hour
)

// ServerCertificate answers the control plane's own TLS certificate, kept in a folder: ca.crt, which
// clients are given, ca.key, server.crt and server.key. What is missing is made. The certificate is valid
// for localhost, this machine's name, 127.0.0.1, ::1 and the given names and addresses; it is made
// anew, by the same CA, where a name is new or less than a year is left.
//
// Two processes must not call it for one folder at the same time.
func ServerCertificate(dir string, names []string, now time.Time) (tls.Certificate, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return tls.Certificate{}, err
	}
	ca, err := loadOrMakeServerCA(dir, now)
	if err != nil {
		return tls.Certificate{}, err
	}
	names = serverNames(names)
	certFile, keyFile := filepath.Join(dir, "server.crt"), filepath.Join(dir, "server.key")
	if cert, err := tls.LoadX509KeyPair(certFile, keyFile); err == nil && stillGood(cert.Leaf, ca, names, now) {
		return cert, nil
	}
	certPEM, keyPEM, err := ca.signServer(names, now)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("making the control plane's server certificate: %w", err)
	}
	if err := errors.Join(writeFile(keyFile, keyPEM, 0o600), writeFile(certFile, certPEM, 0o644)); err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(certPEM, keyPEM)
}

func loadOrMakeServerCA(dir string, now time.Time) (*CA, error) {
	certFile, keyFile := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key")
	certPEM, certErr := os.ReadFile(certFile)
	keyPEM, keyErr := os.ReadFile(keyFile)
	if certErr == nil && keyErr == nil {
		ca, err := ParseCA(append(certPEM, keyPEM...))
		if err != nil {
			return nil, fmt.Errorf("%s: %w; remove it and %s to have new ones made", certFile, err, keyFile)
		}
		return ca, nil
	}
	if err := errors.Join(unlessMissing(certErr), unlessMissing(keyErr)); err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := caTemplate(now, "weft control plane CA")
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	if keyPEM, err = encodeKey(key); err != nil {
		return nil, err
	}
	certPEM = encodeCertificates(der)
	if err := errors.Join(writeFile(keyFile, keyPEM, 0o600), writeFile(certFile, certPEM, 0o644)); err != nil {
		return nil, err
	}
	return ParseCA(append(certPEM, keyPEM...))
}

func (ca *CA) signServer(names []string, now time.Time) (certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serialNumber(),
		NotBefore:    now.Add(-backdating),
		NotAfter:     earlier(now.Add(serverLifetime), ca.NotAfter()),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.chain[0], key.Public(), ca.key)
	if err != nil {
		return nil, nil, err
	}
	keyPEM, err = encodeKey(key)
	return encodeCertificates(der), keyPEM, err
}

func serverNames(given []string) []string {
	names := append([]string{"localhost", "127.0.0.1", "::1"}, given...)
	if host, err := os.Hostname(); err == nil {
		names = append(names, host)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func stillGood(cert *x509.Certificate, ca *CA, names []string, now time.Time) bool {
	if cert.CheckSignatureFrom(ca.chain[0]) != nil || now.Add(serverRenewal).After(cert.NotAfter) {
		return false
	}
	return !slices.ContainsFunc(names, func(name string) bool { return cert.VerifyHostname(name) != nil })
}

// writeFile replaces a file as a whole, so that a crash leaves the old one or the new one.
func writeFile(path string, content []byte, mode fs.FileMode) error {
	next := path + ".new"
	if err := os.WriteFile(next, content, mode); err != nil {
		return err
	}
	return os.Rename(next, path)
}

func unlessMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
