package identity

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"time"
)

// TLSCertificate says what the certificate of a server, or of a user, is to hold. It is for the control
// plane's own ports; workloads get a [Leaf].
type TLSCertificate struct {
	// Hosts are a server's names and addresses. There are none in a user's.
	Hosts []string
	// User and Groups are who a user is: the subject's common name and organizations.
	User   string
	Groups []string

	Lifetime time.Duration // cut at the CA's end
	Now      time.Time
}

// NewTLSCertificate makes an ECDSA P-256 key and a certificate for it, for a user where one is named and else
// for a server. It is signed by the CA, or by itself where that is nil.
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
		template.NotAfter = earlier(template.NotAfter, ca.NotAfter())
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
