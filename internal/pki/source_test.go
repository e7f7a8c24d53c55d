package pki_test

import (
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	"weft/internal/pki"
	"weft/kind"
)

// signedCA answers the certificate of an authority that another one signed, in PEM.
func signedCA(t *testing.T) string {
	t.Helper()
	root, intermediate := newKey(t, elliptic.P256()), newKey(t, elliptic.P256())
	template := func(serial int64) *x509.Certificate {
		return &x509.Certificate{
			SerialNumber: big.NewInt(serial), NotBefore: now, NotAfter: now.Add(time.Hour),
			IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template(2), template(1), intermediate.Public(), root)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func TestAProvidedCAIsSelfSignedOnlyWhereThatIsAllowed(t *testing.T) {
	root, key, err := pki.NewCA(now, "default.east.mesh.local")
	if err != nil {
		t.Fatal(err)
	}
	yes, no := true, false
	for _, test := range []struct {
		name, certificate string
		allowed           *bool
		rejected          string
	}{
		{"self-signed and allowed", string(root), &yes, ""},
		{"self-signed and not allowed", string(root), &no, "it is self-signed"},
		{"signed by another", signedCA(t), &no, ""},
		{"no certificate, which is said where it is parsed", "root", &no, ""},
	} {
		spec := &kind.MeshIdentity{Provider: kind.IdentityProvider{Type: "Bundled", Bundled: &kind.BundledProvider{
			InsecureAllowSelfSigned: test.allowed,
			CA: &kind.ProvidedCA{
				Certificate: &kind.DataSource{Type: "InsecureInline",
					InsecureInline: &kind.InsecureInline{Value: test.certificate}},
				PrivateKey: &kind.DataSource{Type: "Secret", SecretRef: &kind.SecretRef{Kind: "Secret", Name: "key"}},
			},
		}}}
		_, err := pki.CAText(spec, "identity", func(string) ([]byte, bool) { return key, true })
		if (err == nil) != (test.rejected == "") || err != nil && !strings.Contains(err.Error(), test.rejected) {
			t.Errorf("%s: the error is %v, want %q", test.name, err, test.rejected)
		}
	}
}
