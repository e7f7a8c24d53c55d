package pki

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

const (
	serverLifetime = 5 * 365 * 24 * time.Hour
	// serverRenewal is the remaining validity at which a server certificate is replaced.
	serverRenewal = 365 * 24 * time.Hour
)

// ServerCertificate returns the control plane's own TLS certificate, stored in a directory as ca.crt, which clients
// need, ca.key, server.crt and server.key. Missing files are generated. The certificate is valid for localhost, this
// machine's name, 127.0.0.1, ::1 and the given names and addresses. The same CA signs a new one for a new name, or with
// less than a year left.
//
// Two processes must not call it for one directory at the same time.
func ServerCertificate(dir string, names []string, now time.Time) (tls.Certificate, error) {
	text, err := ReadServerCA(dir)
	if err != nil {
		return tls.Certificate{}, err
	}
	if text == nil {
		certPEM, keyPEM, err := newServerCA(now)
		if err != nil {
			return tls.Certificate{}, err
		}
		if err := writeFile(filepath.Join(dir, serverCAKey), keyPEM, 0o600); err != nil {
			return tls.Certificate{}, err
		}
		text = append(certPEM, keyPEM...)
	}
	return ServerCertificateOf(text, dir, names, now)
}

// ServerCertificateOf is [ServerCertificate] with a CA that is stored by the caller, in PEM as [NewServerCA] returns
// it. The directory gets ca.crt, and no ca.key.
func ServerCertificateOf(text []byte, dir string, names []string, now time.Time) (tls.Certificate, error) {
	ca, err := ParseCA(text)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("the CA of the control plane's server certificate: %w", err)
	}
	root, file := encodeCertificates(ca.chain[0].Raw), filepath.Join(dir, serverCA)
	if there, err := os.ReadFile(file); err != nil || !bytes.Equal(there, root) {
		if err := writeFile(file, root, 0o644); err != nil {
			return tls.Certificate{}, err
		}
	}
	names = serverNames(names)
	certFile, keyFile := filepath.Join(dir, "server.crt"), filepath.Join(dir, "server.key")
	if cert, err := tls.LoadX509KeyPair(certFile, keyFile); err == nil && stillValid(cert.Leaf, ca, names, now) {
		return cert, nil
	}
	certPEM, keyPEM, err := NewTLSCertificate(ca, TLSCertificate{Hosts: names, Lifetime: serverLifetime, Now: now})
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("making the control plane's server certificate: %w", err)
	}
	if err := errors.Join(writeFile(keyFile, keyPEM, 0o600), writeFile(certFile, certPEM, 0o644)); err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(certPEM, keyPEM)
}

// The files of the server's CA.
const (
	serverCA    = "ca.crt"
	serverCAKey = "ca.key"
)

// ReadServerCA returns the CA in a directory, in PEM with its key, or nil without one.
func ReadServerCA(dir string) ([]byte, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	certFile, keyFile := filepath.Join(dir, serverCA), filepath.Join(dir, serverCAKey)
	certPEM, certErr := os.ReadFile(certFile)
	keyPEM, keyErr := os.ReadFile(keyFile)
	if err := errors.Join(unlessMissing(certErr), unlessMissing(keyErr)); err != nil {
		return nil, err
	}
	if certErr != nil || keyErr != nil {
		return nil, nil
	}
	text := append(certPEM, keyPEM...)
	if _, err := ParseCA(text); err != nil {
		return nil, fmt.Errorf("%s: %w; remove it and %s to have new ones made", certFile, err, keyFile)
	}
	return text, nil
}

// NewServerCA generates a CA for the certificates of control planes, in PEM with its key.
func NewServerCA(now time.Time) ([]byte, error) {
	certPEM, keyPEM, err := newServerCA(now)
	return append(certPEM, keyPEM...), err
}

func newServerCA(now time.Time) (certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := caTemplate(now, "weft control plane CA")
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
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

func stillValid(cert *x509.Certificate, ca *CA, names []string, now time.Time) bool {
	if !ca.HasSigned(cert) || now.Add(serverRenewal).After(cert.NotAfter) {
		return false
	}
	return !slices.ContainsFunc(names, func(name string) bool { return cert.VerifyHostname(name) != nil })
}

// writeFile replaces a file atomically, so that a crash leaves the old one or the new one.
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
