package pki

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"net/url"
	"time"

	"weft/internal/wait"
)

// TLSCertificate is the content of a certificate for a server or a user of the control plane's own ports. Workloads get
// a [Certificate].
type TLSCertificate struct {
	// Hosts are a server's host names and addresses. A user has none.
	Hosts []string
	// User and Groups identify a user: the subject's common name and organizations.
	User   string
	Groups []string
	// Replica is the instance of a replica, the only name of its certificate. It is a server and a client.
	Replica string

	Lifetime time.Duration // shortened to the CA's expiry
	Now      time.Time
}

// NewTLSCertificate generates an ECDSA P-256 key and its certificate, for a user if User is set, for a replica if
// Replica is, or else for a server. The CA signs it; without a CA, it is self-signed.
func NewTLSCertificate(ca *CA, c TLSCertificate) (certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := c.template()
	parent, signer := template, any(key)
	if ca != nil {
		if err := ca.isCurrent(c.Now); err != nil {
			return nil, nil, err
		}
		template.NotAfter = wait.Earliest(template.NotAfter, ca.NotAfter())
		parent, signer = ca.chain[0], ca.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return nil, nil, err
	}
	keyPEM, err = encodeKey(key)
	ders := [][]byte{der}
	if ca != nil {
		ders = append(ders, ca.intermediates()...)
	}
	return encodeCertificates(ders...), keyPEM, err
}

func (c *TLSCertificate) template() *x509.Certificate {
	template := &x509.Certificate{
		SerialNumber:          serialNumber(),
		NotBefore:             c.Now.Add(-backdating),
		NotAfter:              c.Now.Add(c.Lifetime),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
	}
	if c.User != "" {
		template.Subject = pkix.Name{CommonName: c.User, Organization: c.Groups}
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		return template
	}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	if c.Replica != "" {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
		template.URIs = []*url.URL{{Scheme: replicaScheme, Opaque: c.Replica}}
		return template
	}
	for _, host := range c.Hosts {
		template.Subject.CommonName = cmp.Or(template.Subject.CommonName, host)
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return template
}

// replicaScheme is the scheme of the URI that names a replica.
const replicaScheme = "weft-replica"

// NewReplicaCertificate generates the certificate of a replica for its queries of other replicas.
func NewReplicaCertificate(ca *CA, instance string, life time.Duration, now time.Time) (*tls.Certificate, error) {
	certPEM, keyPEM, err := NewTLSCertificate(ca, TLSCertificate{Replica: instance, Lifetime: life, Now: now})
	if err != nil {
		return nil, err
	}
	certificate, err := tls.X509KeyPair(certPEM, keyPEM)
	return &certificate, err
}

// ReplicaOf returns the instance that a certificate names, or "": it is none of a replica.
func ReplicaOf(c *x509.Certificate) string {
	if len(c.URIs) != 1 || c.URIs[0].Scheme != replicaScheme || len(c.DNSNames)+len(c.IPAddresses) > 0 {
		return ""
	}
	return c.URIs[0].Opaque
}
