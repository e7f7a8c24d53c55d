// Package pki generates and verifies the credentials of a mesh: CAs, workload certificates (X.509-SVIDs), SPIFFE
// IDs, dataplane tokens, and the control plane's own server certificate.
//
// Results depend on the arguments only, the time included, except that keys and serial numbers come from the system's
// random source. Only [ServerCertificate] uses files. The package does not decide which identity a caller may have, and
// ignores the names in certificate requests.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"strings"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"weft/internal/wait"
)

const (
	// caLifetime is the lifetime of a generated CA.
	caLifetime = 10 * 365 * 24 * time.Hour
	// backdating is the time before now at which a certificate becomes valid, for machines whose clocks are late.
	backdating = time.Minute
)

// CASecretName returns the name of the Secret with the CA of a MeshIdentity, in its mesh: the certificate in PEM,
// followed by the private key in PEM.
func CASecretName(meshIdentity string) string { return "identity-ca-" + meshIdentity }

// InstanceDNSName returns the DNS SAN in the workload certificate of a proxy of a mesh and zone. It identifies one
// proxy, while all proxies of a workload may share a SPIFFE ID.
func InstanceDNSName(mesh, zone, name string) string { return name + instances(mesh, zone) }

// EgressDNSName returns the DNS SAN in the certificates of a ZoneEgress, which has no mesh.
func EgressDNSName(zone, name string) string { return name + "." + zone + ".zone-egress.mesh.local" }

// InstanceOf returns the name of the proxy with a DNS SAN, or false if it is not of this mesh and zone.
func InstanceOf(mesh, zone, dnsName string) (name string, ok bool) {
	return strings.CutSuffix(dnsName, instances(mesh, zone))
}

// instances returns the suffix of the DNS SANs of all proxies of a mesh and zone. Neither name has a dot.
func instances(mesh, zone string) string { return "." + mesh + "." + zone + ".dataplane.mesh.local" }

// NewCA generates a self-signed CA for a trust domain: ECDSA P-256, valid for ten years, with the trust domain's SPIFFE
// ID as its only URI SAN.
func NewCA(now time.Time, trustDomain string) (certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("making the CA's key: %w", err)
	}
	if certPEM, err = selfSign(now, trustDomain, key, caLifetime); err != nil {
		return nil, nil, err
	}
	keyPEM, err = encodeKey(key)
	return certPEM, keyPEM, err
}

// selfSign creates the certificate of a CA for a trust domain.
func selfSign(now time.Time, trustDomain string, key crypto.Signer, life time.Duration) ([]byte, error) {
	domain, err := spiffeid.TrustDomainFromString(trustDomain)
	if err != nil {
		return nil, fmt.Errorf("trust domain %q: %w", trustDomain, err)
	}
	template := caTemplate(now, "weft CA of "+domain.Name())
	template.URIs, template.NotAfter = []*url.URL{domain.ID().URL()}, now.Add(life)
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("signing the CA: %w", err)
	}
	return encodeCertificates(der), nil
}

func caTemplate(now time.Time, commonName string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber:          serialNumber(),
		Subject:               pkix.Name{CommonName: commonName},
		NotBefore:             now.Add(-backdating),
		NotAfter:              now.Add(caLifetime),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
}

// CA signs workload certificates.
type CA struct {
	chain []*x509.Certificate // the signing certificate first, then its issuers
	key   crypto.Signer
}

// ParseCA parses a CA in PEM: the signing certificate, then its issuers if there are any, and the private key (PKCS #8,
// PKCS #1 or SEC 1) at any place.
func ParseCA(text []byte) (*CA, error) {
	ca := &CA{}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if err := ca.addBlock(block); err != nil {
			return nil, err
		}
	}
	switch {
	case len(ca.chain) == 0:
		return nil, errors.New("the CA has no certificate: want a PEM block CERTIFICATE")
	case ca.key == nil:
		return nil, errors.New("the CA has no private key: want a PEM block PRIVATE KEY")
	}
	return ca, ca.check()
}

func (ca *CA) addBlock(block *pem.Block) error {
	if block.Type == "CERTIFICATE" {
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return fmt.Errorf("the CA's certificate: %w", err)
		}
		ca.chain = append(ca.chain, cert)
		return nil
	}
	key, err := parseKey(block)
	if err != nil {
		return fmt.Errorf("the CA's private key: %w", err)
	}
	ca.key = key
	return nil
}

func (ca *CA) check() error {
	cert := ca.chain[0]
	if !cert.BasicConstraintsValid || !cert.IsCA {
		return fmt.Errorf("certificate %q is not a CA's: its basic constraints do not say so", cert.Subject)
	}
	if cert.KeyUsage != 0 && cert.KeyUsage&x509.KeyUsageCertSign == 0 {
		return fmt.Errorf("certificate %q may not sign certificates: its key usage lacks it", cert.Subject)
	}
	if public, ok := cert.PublicKey.(interface{ Equal(crypto.PublicKey) bool }); !ok || !public.Equal(ca.key.Public()) {
		return fmt.Errorf("the private key does not belong to certificate %q", cert.Subject)
	}
	for i, above := range ca.chain[1:] {
		if err := ca.chain[i].CheckSignatureFrom(above); err != nil {
			return fmt.Errorf("certificate %q is not signed by %q, which follows it", ca.chain[i].Subject,
				above.Subject)
		}
	}
	return nil
}

// Root returns the certificate that others must trust to verify this CA's certificates, in PEM.
func (ca *CA) Root() string {
	return string(encodeCertificates(ca.chain[len(ca.chain)-1].Raw))
}

// Fingerprint returns the fingerprint of the signing certificate.
func (ca *CA) Fingerprint() string { return fingerprint(ca.chain[0].Raw) }

func fingerprint(der []byte) string {
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:16])
}

// Fingerprints returns the fingerprints of the certificates in a PEM text, in their order.
func Fingerprints(text string) []string {
	var all []string
	for block, rest := pem.Decode([]byte(text)); block != nil; block, rest = pem.Decode(rest) {
		all = append(all, fingerprint(block.Bytes))
	}
	return all
}

// Expiries returns the expiries of the certificates in PEM by their fingerprints.
func Expiries(text string) map[string]time.Time {
	all := map[string]time.Time{}
	for block, rest := pem.Decode([]byte(text)); block != nil; block, rest = pem.Decode(rest) {
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			all[fingerprint(block.Bytes)] = c.NotAfter
		}
	}
	return all
}

// LeadsTo reports whether these roots, in PEM, verify the CA's certificates.
func (ca *CA) LeadsTo(roots []string, now time.Time) bool {
	options := x509.VerifyOptions{
		Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(), CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	}
	for _, root := range roots {
		options.Roots.AppendCertsFromPEM([]byte(root))
	}
	for _, cert := range ca.chain[1:] {
		options.Intermediates.AddCert(cert)
	}
	_, err := ca.chain[0].Verify(options)
	return err == nil
}

// HasSigned reports whether the CA signed a certificate.
func (ca *CA) HasSigned(c *x509.Certificate) bool { return c.CheckSignatureFrom(ca.chain[0]) == nil }

// NotAfter returns the expiry of the CA. No certificate outlives it.
func (ca *CA) NotAfter() time.Time { return ca.chain[0].NotAfter }

// NotBefore returns the time from which the CA signs.
func (ca *CA) NotBefore() time.Time { return ca.chain[0].NotBefore }

// CertificateContent is the content of a certificate to sign.
type CertificateContent struct {
	SpiffeIDs []string // URI SANs, of one trust domain; several only for the mtls of a mesh
	DNSName   string   // the only DNS SAN
	PublicKey crypto.PublicKey
	Lifetime  time.Duration // shortened to the CA's expiry
	Now       time.Time
}

// Certificate is a signed workload certificate.
type Certificate struct {
	Chain     [][]byte // DER, the workload certificate first, without self-signed certificates
	Serial    string   // hexadecimal, lower case
	NotBefore time.Time
	NotAfter  time.Time
}

// Sign creates a certificate for both sides of mutual TLS. A CA whose certificate has a trust domain signs for that
// domain only.
func (ca *CA) Sign(content CertificateContent) (*Certificate, error) {
	uris, err := ca.uris(content)
	if err != nil {
		return nil, err
	}
	if strings.Contains(content.DNSName, ",") {
		return nil, fmt.Errorf("the DNS SAN %q contains a comma, which Envoy would render as two SANs", content.DNSName)
	}
	expiry := wait.Earliest(content.Now.Add(content.Lifetime), ca.NotAfter())
	template := &x509.Certificate{
		SerialNumber:          serialNumber(),
		NotBefore:             content.Now.Add(-backdating).UTC().Truncate(time.Second),
		NotAfter:              expiry.UTC().Truncate(time.Second),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
		URIs:                  uris,
		DNSNames:              []string{content.DNSName},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.chain[0], content.PublicKey, ca.key)
	if err != nil {
		return nil, fmt.Errorf("signing the certificate of %s: %w", uris[0], err)
	}
	return &Certificate{
		Chain:     append([][]byte{der}, ca.intermediates()...),
		Serial:    Serial(template.SerialNumber),
		NotBefore: template.NotBefore,
		NotAfter:  template.NotAfter,
	}, nil
}

// uris parses the SPIFFE IDs of a certificate. They must be of one trust domain: servers verify a certificate with the
// roots of its first SPIFFE ID, which prove no other domain.
func (ca *CA) uris(content CertificateContent) ([]*url.URL, error) {
	if len(content.SpiffeIDs) == 0 {
		return nil, errors.New("a certificate without a SPIFFE ID identifies no workload")
	}
	var uris []*url.URL
	for _, name := range content.SpiffeIDs {
		id, err := spiffeid.FromString(name)
		if err != nil {
			return nil, fmt.Errorf("SPIFFE ID %q: %w", name, err)
		}
		if err := ca.MaySign(id.TrustDomain().Name(), content.Now); err != nil {
			return nil, err
		}
		if uris = append(uris, id.URL()); uris[0].Host != id.TrustDomain().Name() {
			return nil, fmt.Errorf("the SPIFFE IDs %q and %q are of two trust domains", uris[0], name)
		}
	}
	return uris, nil
}

// MaySign returns the reason for which the CA cannot sign for a trust domain at a time, or nil.
func (ca *CA) MaySign(domain string, now time.Time) error {
	if err := ca.isCurrent(now); err != nil {
		return err
	}
	cert := ca.chain[0]
	for _, uri := range cert.URIs {
		if own, err := spiffeid.TrustDomainFromURI(uri); err == nil && own.Name() != domain {
			return fmt.Errorf("the CA %q is the trust domain %q's and can't sign for %q", cert.Subject, own, domain)
		}
	}
	return nil
}

// isCurrent returns the reason for which the CA cannot sign at a time, or nil.
func (ca *CA) isCurrent(now time.Time) error {
	cert := ca.chain[0]
	if now.After(cert.NotAfter) {
		return fmt.Errorf("the CA %q ended on %s: replace it", cert.Subject, cert.NotAfter.Format(time.RFC3339))
	}
	if now.Before(cert.NotBefore) {
		return fmt.Errorf("the CA %q begins on %s only", cert.Subject, cert.NotBefore.Format(time.RFC3339))
	}
	return nil
}

func (ca *CA) intermediates() [][]byte {
	var all [][]byte
	for _, cert := range ca.chain {
		if cert.CheckSignatureFrom(cert) != nil {
			all = append(all, cert.Raw)
		}
	}
	return all
}

// Serial formats a serial number as all reports and statuses have it: hexadecimal, lower case.
func Serial(n *big.Int) string { return hex.EncodeToString(n.Bytes()) }

// serialNumber returns 126 random bits after a set one. The number is positive and always has 16 bytes, so that its
// text has one length (RFC 5280 allows 20 bytes).
func serialNumber() *big.Int {
	var raw [16]byte
	rand.Read(raw[:]) // never fails
	raw[0] = raw[0]&0x7f | 0x40
	return new(big.Int).SetBytes(raw[:])
}

func encodeCertificates(ders ...[]byte) []byte {
	var out []byte
	for _, der := range ders {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	return out
}

func encodeKey(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

func parseKey(block *pem.Block) (crypto.Signer, error) {
	var key any
	var err error
	switch block.Type {
	case "PRIVATE KEY":
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	case "RSA PRIVATE KEY":
		key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		key, err = x509.ParseECPrivateKey(block.Bytes)
	default:
		return nil, fmt.Errorf("PEM block %q is neither a certificate nor a private key", block.Type)
	}
	if err != nil {
		return nil, err
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("a key of type %T can't sign", key)
	}
	return signer, nil
}
