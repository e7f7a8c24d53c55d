package pki_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"

	"weft/internal/pki"
)

var now = time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)

func newKey(t testing.TB, curve elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newCA(t testing.TB, at time.Time, domain string) *pki.CA {
	t.Helper()
	cert, key, err := pki.NewCA(at, domain)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := pki.ParseCA(append(cert, key...))
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func webContent(t testing.TB) pki.CertificateContent {
	return pki.CertificateContent{
		SpiffeIDs: []string{"spiffe://default.east.mesh.local/workload/web"},
		DNSName:   pki.InstanceDNSName("default", "east", "web-1"),
		PublicKey: newKey(t, elliptic.P256()).Public(),
		Lifetime:  24 * time.Hour,
		Now:       now,
	}
}

func TestACertificateIsAnSVIDThatItsTrustDomainVerifies(t *testing.T) {
	ca := newCA(t, now, "default.east.mesh.local")
	signed, err := ca.Sign(webContent(t))
	if err != nil {
		t.Fatal(err)
	}
	domain := spiffeid.RequireTrustDomainFromString("default.east.mesh.local")
	bundle, err := x509bundle.Parse(domain, []byte(ca.Root()))
	if err != nil {
		t.Fatal(err)
	}
	id, _, err := x509svid.ParseAndVerify(signed.Chain, bundle, x509svid.WithTime(now))
	if err != nil {
		t.Fatalf("the certificate is not verified: %v", err)
	}
	if id.String() != "spiffe://default.east.mesh.local/workload/web" {
		t.Errorf("the SPIFFE ID is %s", id)
	}
	content, err := x509.ParseCertificate(signed.Chain[0])
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(content.DNSNames, []string{"web-1.default.east.dataplane.mesh.local"}) {
		t.Errorf("DNS names are %v, want the one instance's", content.DNSNames)
	}
	if got := pki.Serial(content.SerialNumber); got != signed.Serial || len(got) != 32 {
		t.Errorf("serial is %q in the certificate and %q beside it, want 16 bytes in both", got, signed.Serial)
	}
	if !content.NotBefore.Before(now) {
		t.Errorf("a machine whose clock is late would reject it: it begins at %s", content.NotBefore)
	}
	if !content.NotAfter.Equal(now.Add(24 * time.Hour)) {
		t.Errorf("it ends at %s, want a day after now", content.NotAfter)
	}
	if len(signed.Chain) != 1 {
		t.Errorf("the chain has %d certificates; the root is to be left out", len(signed.Chain))
	}
}

// Under the mtls of a mesh, one certificate has the SPIFFE ID of each service of a proxy.
func TestACertificateHasAllItsSANs(t *testing.T) {
	content := webContent(t)
	content.SpiffeIDs = []string{"spiffe://default/web", "spiffe://default/web-preview"}
	signed, err := newCA(t, now, "default").Sign(content)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(signed.Chain[0])
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, uri := range parsed.URIs {
		names = append(names, uri.String())
	}
	if !slices.Equal(names, content.SpiffeIDs) {
		t.Errorf("the SANs are %v, want %v", names, content.SpiffeIDs)
	}
}

func TestNoCertificateOutlivesItsCA(t *testing.T) {
	ca := newCA(t, now, "d.local")
	content := webContent(t)
	content.SpiffeIDs = []string{"spiffe://d.local/a"}
	content.Now = ca.NotAfter().Add(-time.Hour)
	signed, err := ca.Sign(content)
	if err != nil {
		t.Fatal(err)
	}
	if !signed.NotAfter.Equal(ca.NotAfter()) {
		t.Errorf("the certificate expires at %s, its CA at %s", signed.NotAfter, ca.NotAfter())
	}
}

func TestACADoesNotSign(t *testing.T) {
	ca := newCA(t, now, "default.east.mesh.local")
	for _, c := range []struct {
		name, id string
		at       time.Time
		want     string
	}{
		{"another trust domain", "spiffe://other.local/workload/web", now, `can't sign for "other.local"`},
		{"another trust domain beside its own", "spiffe://default.east.mesh.local/web spiffe://other.local/web", now,
			`can't sign for "other.local"`},
		{"no SPIFFE ID", "", now, "identifies no workload"},
		{"a SPIFFE ID with a comma, which Envoy would render as two",
			"spiffe://default.east.mesh.local/web,spiffe://default.east.mesh.local/db", now, "SPIFFE ID"},
		{"no SPIFFE ID", "https://default.east.mesh.local/web", now, "SPIFFE ID"},
		{"once it has ended", "spiffe://default.east.mesh.local/web", ca.NotAfter().Add(time.Second), "replace it"},
		{"before it begins", "spiffe://default.east.mesh.local/web", now.Add(-time.Hour), "begins on"},
	} {
		t.Run(c.name, func(t *testing.T) {
			content := webContent(t)
			content.SpiffeIDs, content.Now = strings.Fields(c.id), c.at
			_, err := ca.Sign(content)
			wantError(t, err, c.want)
		})
	}
}

func TestNoDNSNameIsSignedThatLooksLikeTwo(t *testing.T) {
	content := webContent(t)
	content.DNSName = "web-1.default.east.dataplane.mesh.local,db-1.default.east.dataplane.mesh.local"
	_, err := newCA(t, now, "default.east.mesh.local").Sign(content)
	wantError(t, err, "contains a comma")
}

func wantError(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error is %v, want one that says %q", err, want)
	}
}

func TestParseCARejects(t *testing.T) {
	cert, key, err := pki.NewCA(now, "a.local")
	if err != nil {
		t.Fatal(err)
	}
	_, otherKey, err := pki.NewCA(now, "a.local")
	if err != nil {
		t.Fatal(err)
	}
	workloadCert, workloadKey := selfSignedCertificate(t)
	for _, c := range []struct {
		name string
		text []byte
		want string
	}{
		{"nothing", nil, "no certificate"},
		{"no key", cert, "no private key"},
		{"no certificate", key, "no certificate"},
		{"another's key", slices.Concat(cert, otherKey), "does not belong"},
		{"a workload certificate", slices.Concat(workloadCert, workloadKey), "not a CA's"},
		{"garbage in a block", []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
			"the CA's certificate"},
		{"another block", []byte("-----BEGIN DH PARAMETERS-----\nAAAA\n-----END DH PARAMETERS-----\n"),
			"neither a certificate nor"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := pki.ParseCA(c.text)
			wantError(t, err, c.want)
		})
	}
}

func TestAProvidedIntermediateStandsInTheChain(t *testing.T) {
	text := intermediateCA(t)
	ca, err := pki.ParseCA(text)
	if err != nil {
		t.Fatal(err)
	}
	content := webContent(t)
	signed, err := ca.Sign(content)
	if err != nil {
		t.Fatal(err)
	}
	if len(signed.Chain) != 2 {
		t.Fatalf("the chain has %d certificates, want the certificate and the intermediate", len(signed.Chain))
	}
	bundle, err := x509bundle.Parse(spiffeid.RequireTrustDomainFromString("default.east.mesh.local"), []byte(ca.Root()))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := x509svid.ParseAndVerify(signed.Chain, bundle, x509svid.WithTime(now)); err != nil {
		t.Errorf("the root above the intermediate does not verify the certificate: %v", err)
	}
}

func TestParseRequest(t *testing.T) {
	rsaKey := func(bits int) crypto.Signer {
		key, err := rsa.GenerateKey(rand.Reader, bits)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	_, edKey, _ := ed25519.GenerateKey(rand.Reader)
	for _, c := range []struct {
		name string
		key  crypto.Signer
		want string // empty: accepted
	}{
		{"P-256", newKey(t, elliptic.P256()), ""},
		{"P-384", newKey(t, elliptic.P384()), ""},
		{"RSA 2048", rsaKey(2048), ""},
		{"P-224", newKey(t, elliptic.P224()), "curve is P-224"},
		{"RSA 1024", rsaKey(1024), "1024 bits"},
		{"Ed25519", edKey, "want ECDSA or RSA"},
	} {
		t.Run(c.name, func(t *testing.T) {
			public, err := pki.ParseRequest(newRequest(t, c.key))
			if c.want != "" {
				wantError(t, err, c.want)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !public.(interface{ Equal(crypto.PublicKey) bool }).Equal(c.key.Public()) {
				t.Error("another key was read than the request's")
			}
		})
	}
}

func TestARequestWithoutTheKeyOfItsOwnerIsRejected(t *testing.T) {
	der := newRequest(t, newKey(t, elliptic.P256()))
	der[len(der)-1] ^= 1 // the signature's last byte
	_, err := pki.ParseRequest(der)
	wantError(t, err, "not signed by the key in it")
}

func TestAHugeRequestIsRejectedUnread(t *testing.T) {
	_, err := pki.ParseRequest(make([]byte, 1<<20))
	wantError(t, err, "at most 16384 are read")
}

func FuzzParseRequest(f *testing.F) {
	f.Add(newRequest(f, newKey(f, elliptic.P256())))
	f.Fuzz(func(t *testing.T, der []byte) {
		if key, err := pki.ParseRequest(der); (key == nil) != (err != nil) {
			t.Fatalf("key %v and error %v", key, err)
		}
	})
}

// newRequest has names that no proxy may have, which must be ignored.
func newRequest(t testing.TB, key crypto.Signer) []byte {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject:  pkix.Name{CommonName: "admin"},
		DNSNames: []string{"*"},
		URIs:     []*url.URL{{Scheme: "spiffe", Host: "a", Path: "/b"}, {Scheme: "spiffe", Host: "c", Path: "/d"}},
	}, key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}
