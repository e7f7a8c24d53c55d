package reconcile

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	"weft/kind"
	"weft/resource"
)

// signed returns a self-signed certificate that expires at a time, and its key, both in PEM.
func signed(t *testing.T, key crypto.Signer, ends time.Time) (certificate, private []byte) {
	t.Helper()
	return signedAs(t, x509.Certificate{NotAfter: ends, BasicConstraintsValid: true}, key)
}

// signedAs returns a self-signed certificate of a template, and its key.
func signedAs(t *testing.T, of x509.Certificate, key crypto.Signer) (certificate, private []byte) {
	t.Helper()
	template := &of
	template.SerialNumber = big.NewInt(1)
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
}

func newP256(t *testing.T) crypto.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func fromSecret(name string) *kind.DataSource {
	return &kind.DataSource{Type: "Secret", SecretRef: &kind.SecretRef{Kind: "Secret", Name: name}}
}

// namingSecrets returns an external service that uses the Secrets ca, cert and key.
func namingSecrets(port uint32) resource.Any {
	return kind.MeshExternalServices.Make("default", "api", kind.MeshExternalService{
		Match:     kind.ExternalMatch{Port: 443},
		Endpoints: []kind.ExternalEndpoint{{Address: "api.example.com", Port: port}},
		TLS: &kind.ExternalTLS{Enabled: true, Verification: &kind.ExternalVerification{
			CACert: fromSecret("ca"), ClientCert: fromSecret("cert"), ClientKey: fromSecret("key"),
		}},
	})
}

// unresolved returns the reason and the message of the condition SecretsResolved, empty where there is none.
func (w *world) unresolved() (reason, message string) {
	w.t.Helper()
	w.reconcile(kind.MeshExternalServices.Name, "api")
	status, ok := w.plan.State.Tables.ExternalServiceStatuses.Find(w.reader(), "default", "api")
	if !ok {
		w.t.Fatal("the service has no status")
	}
	for _, c := range status.Spec.Conditions {
		if c.Type == "SecretsResolved" {
			return c.Reason, c.Message
		}
	}
	return "", ""
}

func (w *world) dialed() *kind.ExternalMaterial {
	if row, ok := w.plan.State.Tables.ExternalMaterials.Find(w.reader(), "default", "api"); ok {
		return &row.Spec
	}
	return nil
}

// The condition of a missing or invalid Secret names it, and never has a byte of the key.
func TestInvalidSecretsAreAConditionOfTheService(t *testing.T) {
	w := newWorld(t, "242.0.0.0/8")
	later := w.now.Add(24 * time.Hour)
	cert, key := signed(t, newP256(t), later)
	_, another := signed(t, newP256(t), later)
	ended, endedKey := signed(t, newP256(t), w.now.Add(-time.Hour))
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	unusable, unusableKey := signed(t, edwards, later)
	for _, c := range []struct {
		name          string
		ca, cert, key []byte
		reason, words string
	}{
		{"none", nil, nil, nil, "SecretMissing",
			`spec.tls.verification.caCert: there is no Secret "ca" in the mesh; create it`},
		{"no client certificate", cert, nil, key, "SecretMissing",
			`spec.tls.verification.clientCert: there is no Secret "cert"`},
		{"no key", cert, cert, nil, "SecretMissing", `spec.tls.verification.clientKey: there is no Secret "key"`},
		{"no authority", []byte("x"), cert, key, "CertificateInvalid",
			"spec.tls.verification.caCert: it holds no certificate"},
		{"a key for an authority", key, cert, key, "CertificateInvalid",
			`spec.tls.verification.caCert: a block "PRIVATE KEY" of it is no certificate`},
		{"an authority that ended", ended, cert, key, "CertificateExpired",
			"spec.tls.verification.caCert: its last authority ended at 2029-12-31T23:00:00Z"},
		{"one that ended beside one that lasts", append(bytes.Clone(ended), cert...), cert, key, "", ""},
		{"another's key", cert, cert, another, "CertificateInvalid", "private key does not match public key"},
		{"a certificate that ended", cert, ended, endedKey, "CertificateExpired",
			"spec.tls.verification.clientCert: it ended at 2029-12-31T23:00:00Z"},
		{"a certificate that Envoy never presents", cert, unusable, unusableKey, "CertificateInvalid",
			"Envoy presents certificates with keys of RSA"},
		{"all that is needed", cert, cert, key, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, "242.0.0.0/8")
			for name, data := range map[string][]byte{"ca": c.ca, "cert": c.cert, "key": c.key} {
				if data != nil {
					w.put(w.secret(name, string(data)))
				}
			}
			w.put(namingSecrets(443))
			reason, message := w.unresolved()
			if reason != c.reason || !strings.Contains(message, c.words) {
				t.Errorf("it is told %s: %q, want %s: %q", reason, message, c.reason, c.words)
			}
			if served := w.dialed() != nil; served != (c.reason == "") {
				t.Errorf("egresses serve it: %v", served)
			}
			if len(c.key) > 0 && strings.Contains(message, string(c.key[30:60])) {
				t.Error("the key is told")
			}
		})
	}
}

// While a Secret is missing or invalid, egresses keep all of the previous certificates.
func TestTheLastValidCertificatesStayInUse(t *testing.T) {
	w := newWorld(t, "242.0.0.0/8")
	cert, key := signed(t, newP256(t), w.now.Add(24*time.Hour))
	w.put(w.secret("ca", string(cert)))
	w.put(w.secret("cert", string(cert)))
	w.put(w.secret("key", string(key)))
	w.put(namingSecrets(443))
	if reason, message := w.unresolved(); reason != "" || w.dialed() == nil {
		t.Fatalf("with all that it names: %s %s", reason, message)
	}
	first := *w.dialed()
	if first.TLS.Verification.ClientKey != nil {
		t.Error("where the key stands is stored beside the key itself")
	}

	w.put(w.secret("ca", "x"))
	w.put(namingSecrets(8443))
	if reason, message := w.unresolved(); reason != "CertificateInvalid" ||
		!strings.HasSuffix(message, "; zone egresses go on with what they had") {
		t.Errorf("it is told %s: %q", reason, message)
	}
	if now := w.dialed(); now == nil || !bytes.Equal(now.CACert, first.CACert) || now.Endpoints[0].Port != 443 {
		t.Errorf("it is dialed as %+v", now)
	}

	w.put(w.secret("ca", string(cert)))
	if reason, _ := w.unresolved(); reason != "" || w.dialed().Endpoints[0].Port != 8443 {
		t.Errorf("with a valid certificate the reason is %q, and it is dialed at %+v", reason, w.dialed().Endpoints)
	}
	w.now = w.now.Add(25 * time.Hour)
	if reason, _ := w.unresolved(); reason != "CertificateExpired" || w.dialed() == nil {
		t.Errorf("after the expiry the reason is %q, and it is dialed as %+v", reason, w.dialed())
	}

	w.remove(kind.MeshExternalServices.Key("default", "api"))
	w.reconcile(kind.MeshExternalServices.Name, "api")
	if w.dialed() != nil {
		t.Error("the service is gone, and its key is kept")
	}
}

// TestNoEgressGetsTheKeyOfAnAuthority: an external service that names a generated Secret, the Secret of a CA, or the
// certificate of one, is not served, even if an earlier release stored its key for egresses.
func TestNoEgressGetsTheKeyOfAnAuthority(t *testing.T) {
	later := time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC)
	cert, key := signed(t, newP256(t), later)
	authority, authorityKey := signedAs(t, x509.Certificate{NotAfter: later, BasicConstraintsValid: true, IsCA: true},
		newP256(t))
	signing, signingKey := signedAs(t, x509.Certificate{NotAfter: later, KeyUsage: x509.KeyUsageCertSign}, newP256(t))
	for name, c := range map[string]struct {
		cert, key       string // the Secrets
		certPEM, keyPEM []byte
		reason, words   string
	}{
		"the CA of a MeshIdentity": {"identity-ca-default", "identity-ca-default", authority, authorityKey,
			"SecretOfControlPlane",
			`spec.tls.verification.clientCert.secretRef.name: "identity-ca-default" is a Secret`},
		"another certificate for its key": {"cert", "identity-ca-default", cert, key, "SecretOfControlPlane",
			"spec.tls.verification.clientKey.secretRef.name"},
		"a builtin CA": {"cert", "default.ca-builtin-key-ca-1", cert, key, "SecretOfControlPlane", "clientKey"},
		"a signing key": {"cert", "dataplane-token-signing-key-default-zone-east-1", cert, key, "SecretOfControlPlane",
			"clientKey"},
		"the CA of an operator": {"cert", "provided-key", cert, key, "SecretOfAuthority",
			`spec.tls.verification.clientKey.secretRef.name: "provided-key" has the CA of the mesh`},
		"a certificate of a CA": {"a", "b", authority, authorityKey, "SecretOfAuthority",
			"sign a certificate"},
		"one that signs and says no CA":    {"a", "b", signing, signingKey, "SecretOfAuthority", "sign a certificate"},
		"a certificate and key of its own": {"a", "b", cert, key, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "242.0.0.0/8")
			w.put(kind.MeshIdentities.Make("default", "provided", kind.MeshIdentity{
				SpiffeID: &kind.SpiffeIDTemplate{TrustDomain: "provided"},
				Provider: kind.IdentityProvider{Type: kind.Bundled, Bundled: &kind.BundledProvider{CA: &kind.ProvidedCA{
					Certificate: fromSecret("provided-cert"), PrivateKey: fromSecret("provided-key")}}}}))
			w.put(w.secret(c.cert, string(c.certPEM)))
			if c.cert == c.key {
				w.put(w.secret(c.cert, string(c.certPEM)+string(c.keyPEM)))
			} else {
				w.put(w.secret(c.key, string(c.keyPEM)))
			}
			as := &kind.ExternalTLS{Enabled: true, Verification: &kind.ExternalVerification{
				ClientCert: fromSecret(c.cert), ClientKey: fromSecret(c.key)}}
			w.put(kind.MeshExternalServices.Make("default", "api", kind.MeshExternalService{
				Match: kind.ExternalMatch{Port: 443}, TLS: as,
				Endpoints: []kind.ExternalEndpoint{{Address: "api.example.com", Port: 443}}}))
			w.put(kind.ExternalMaterials.Make("default", "api",
				kind.ExternalMaterial{ClientKey: []byte("stored before")}))
			reason, message := w.unresolved()
			if reason != c.reason || !strings.Contains(message, c.words) {
				t.Errorf("the condition is %s: %q, want %s: %q", reason, message, c.reason, c.words)
			}
			if served := w.dialed() != nil; served != (c.reason == "") {
				t.Errorf("egresses serve it: %v", served)
			}
		})
	}
}
