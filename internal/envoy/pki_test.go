package envoy

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net/url"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"weft/internal/identity"
	"weft/internal/xds"
)

// authority is the CA of one trust domain. It signs any request, as a hostile CA would.
type authority struct {
	domain string
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, domain string) *authority {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		URIs: uris(t, "spiffe://"+domain),
	}
	key := newKey(t)
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{domain, cert, key}
}

// certificate returns a certificate with the names, in their order.
func (a *authority) certificate(t *testing.T, names ...string) tls.Certificate {
	t.Helper()
	return a.sign(t, &x509.Certificate{URIs: uris(t, names...)})
}

// instance returns a certificate with the DNS SAN of an instance too.
func (a *authority) instance(t *testing.T, dnsName string, names ...string) tls.Certificate {
	t.Helper()
	return a.sign(t, &x509.Certificate{URIs: uris(t, names...), DNSNames: []string{dnsName}})
}

// sign returns a certificate of a template that has the names.
func (a *authority) sign(t *testing.T, template *x509.Certificate) tls.Certificate {
	t.Helper()
	template.SerialNumber, template.NotAfter = big.NewInt(2), time.Now().Add(time.Hour)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	key := newKey(t)
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// trust returns the trust bundle of a mesh that trusts the authorities.
func trust(authorities ...*authority) *xds.Resource { return TrustBundle(trustOf(authorities...)) }

func trustOf(authorities ...*authority) *identity.Trust {
	bundle := &identity.Trust{Mesh: "default"}
	for _, a := range authorities {
		root := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
		bundle.Domains = append(bundle.Domains, identity.TrustDomain{Name: a.domain, Roots: []string{string(root)}})
	}
	return bundle
}

// certificateSecret returns the certificate as the agent serves it.
func certificateSecret(t *testing.T, certificate tls.Certificate) *xds.Resource {
	t.Helper()
	key, err := x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return xds.NewResource(xds.Secret, identity.IdentitySecret, &tlsv3.Secret{
		Name: identity.IdentitySecret,
		Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
			CertificateChain: inline(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]}),
			PrivateKey:       inline(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
		}},
	})
}

func inline(block *pem.Block) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: pem.EncodeToMemory(block)}}
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func uris(t *testing.T, names ...string) []*url.URL {
	t.Helper()
	var all []*url.URL
	for _, name := range names {
		u, err := url.Parse(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, u)
	}
	return all
}
