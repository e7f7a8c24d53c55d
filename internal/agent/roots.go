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

// rootsSecret is whom the machine believes of the servers of the world. A zone egress asks for it where an external
// service names no authority of its own.
const rootsSecret = "system_roots"

// rootFiles are where machines have their authorities, in PEM, the usual distributions one after the other.
var rootFiles = []string{
	"/etc/ssl/certs/ca-certificates.crt",                // Debian, Ubuntu, Arch, Alpine
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", // Fedora, RHEL
	"/etc/pki/tls/certs/ca-bundle.crt",                  // older RHEL
	"/etc/ssl/ca-bundle.pem",                            // SUSE
	"/etc/ssl/cert.pem",                                 // Alpine, macOS
}

// rootsFile is the machine's file: what SSL_CERT_FILE says, as programs have it by custom, else the first that is
// there; empty: there is none.
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

// machineRoots has Envoy read the machine's file, now and whenever another takes its place.
func machineRoots(file string) (*tlsv3.Secret, error) {
	roots := &tlsv3.CertificateValidationContext{}
	if file == "" {
		nobody, err := rootOfNobody()
		if err != nil {
			return nil, err
		}
		roots.TrustedCa = &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: nobody}}
	} else {
		roots.TrustedCa = &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: file}}
		roots.WatchedDirectory = &corev3.WatchedDirectory{Path: filepath.Dir(file)}
	}
	return &tlsv3.Secret{Name: rootsSecret, Type: &tlsv3.Secret_ValidationContext{ValidationContext: roots}}, nil
}

// rootOfNobody is an authority whose key is forgotten: Envoy takes no empty list, and whoever believes this one
// believes no server.
func rootOfNobody() ([]byte, error) {
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
