package agent

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
)

// rootsSecret is the SDS secret with the machine's CA certificates. A zone egress requests it for external services
// without a CA of their own.
const rootsSecret = "system_roots"

// rootFiles are the paths of the CA certificates, in PEM, in the usual distributions.
var rootFiles = []string{
	"/etc/ssl/certs/ca-certificates.crt",                // Debian, Ubuntu, Arch, Alpine
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", // Fedora, RHEL
	"/etc/pki/tls/certs/ca-bundle.crt",                  // older RHEL
	"/etc/ssl/ca-bundle.pem",                            // SUSE
	"/etc/ssl/cert.pem",                                 // Alpine, macOS
}

// rootsFile returns the path in SSL_CERT_FILE, or the first existing file, or "".
func rootsFile(files []string) string {
	if file := os.Getenv("SSL_CERT_FILE"); file != "" {
		files = []string{file}
	}
	for _, file := range files {
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() {
			return file
		}
	}
	return ""
}

// machineRoots returns a secret by which Envoy reads the file, and reads it again when it is replaced.
func machineRoots(file string) (*tlsv3.Secret, error) {
	roots := &tlsv3.CertificateValidationContext{}
	if file == "" {
		unused, err := unusedRoot()
		if err != nil {
			return nil, err
		}
		roots.TrustedCa = &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: unused}}
	} else {
		roots.TrustedCa = &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: file}}
		roots.WatchedDirectory = &corev3.WatchedDirectory{Path: filepath.Dir(file)}
	}
	return &tlsv3.Secret{Name: rootsSecret, Type: &tlsv3.Secret_ValidationContext{ValidationContext: roots}}, nil
}

// unusedRoot returns a CA certificate whose key is discarded. Envoy accepts no empty list; with this certificate, it
// trusts no server.
func unusedRoot() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<32, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}
