package pki_test

import (
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"slices"
	"testing"
	"time"
)

// authority is a certificate with its key, for the CAs that users bring.
type authority struct {
	cert *x509.Certificate
	pem  []byte
	key  []byte
	sign func(template *x509.Certificate, name string) *authority
}

// newAuthority makes a certificate from a template, signed by itself.
func newAuthority(t *testing.T, template *x509.Certificate, name string) *authority {
	t.Helper()
	return signAuthority(t, template, name, nil, nil)
}

func signAuthority(t *testing.T, template *x509.Certificate, name string, parent *x509.Certificate,
	parentKey any) *authority {
	t.Helper()
	key := newKey(t, elliptic.P256())
	template.SerialNumber = big.NewInt(int64(len(name)))
	template.Subject = pkix.Name{CommonName: name}
	template.NotBefore, template.NotAfter = now.Add(-time.Hour), now.Add(1000*time.Hour)
	template.BasicConstraintsValid = true
	if parent == nil {
		parent, parentKey = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), parentKey)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{
		cert: cert,
		pem:  pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		key:  pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}),
		sign: func(template *x509.Certificate, name string) *authority {
			return signAuthority(t, template, name, cert, key)
		},
	}
}

func selfSignedCertificate(t *testing.T) (cert, key []byte) {
	content := newAuthority(t, &x509.Certificate{}, "workload")
	return content.pem, content.key
}

// intermediateCA is the PEM of an intermediate, its root, and the intermediate's key.
func intermediateCA(t *testing.T) []byte {
	root := newAuthority(t, &x509.Certificate{IsCA: true, KeyUsage: x509.KeyUsageCertSign}, "root")
	intermediate := root.sign(&x509.Certificate{IsCA: true, KeyUsage: x509.KeyUsageCertSign}, "intermediate")
	return slices.Concat(intermediate.pem, root.pem, intermediate.key)
}
