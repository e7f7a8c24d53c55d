package webhook

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"weft/internal/pki"
)

const (
	// certificateLifetime is the validity of a serving certificate. It is renewed after two thirds.
	certificateLifetime = 90 * 24 * time.Hour
	// caRenewal is the remaining validity of a CA, which is valid for ten years, at which the next one is made.
	caRenewal = 365 * 24 * time.Hour
	// caPublished is the time for which clients trust a new CA before it signs. The renewal of the serving certificate
	// comes later than that, unless the server gets a new name.
	caPublished = certificateLifetime / 3
)

// Keys of the Secret.
const (
	certificateKey = "tls.crt"     // the serving certificate
	privateKey     = "tls.key"     // its key
	trustedKey     = "ca.crt"      // the CAs that clients trust; the first one signs
	signingKey     = "ca.key"      // the key of the first CA
	nextKey        = "next-ca.crt" // the CA that signs next, with its key; absent for most of the time
)

// material is the content of the Secret, in PEM.
type material map[string][]byte

// renew returns the material that is in use from now on, and whether it differs from m. Invalid material is replaced.
//
// A CA is replaced in three renewals of the serving certificate: clients trust the next CA, then it signs, then the
// former CA is removed. So clients that have an older list of CAs still verify the server.
func (m material) renew(hosts []string, now time.Time) (material, bool, error) {
	ca, err := m.ca(now)
	if err != nil {
		return made(hosts, now)
	}
	if m.valid(ca, hosts, now) {
		return m, false, nil
	}
	renewed := material{trustedKey: []byte(ca.Root()), signingKey: m[signingKey]}
	next, err := pki.ParseCA(m[nextKey])
	switch {
	case err == nil && now.Sub(next.NotBefore()) >= caPublished:
		ca = next
		renewed[trustedKey] = append([]byte(next.Root()), renewed[trustedKey]...)
		renewed[signingKey] = keyOf(m[nextKey])
	case err == nil:
		renewed[trustedKey], renewed[nextKey] = m[trustedKey], m[nextKey]
	case ca.NotAfter().Sub(now) < caRenewal:
		if renewed[nextKey], err = pki.NewServerCA(now); err != nil {
			return nil, false, err
		}
		if next, err = pki.ParseCA(renewed[nextKey]); err != nil {
			return nil, false, err
		}
		renewed[trustedKey] = append(renewed[trustedKey], next.Root()...)
	}
	return renewed.signed(ca, hosts, now)
}

// made returns new material.
func made(hosts []string, now time.Time) (material, bool, error) {
	text, err := pki.NewServerCA(now)
	if err != nil {
		return nil, false, err
	}
	ca, err := pki.ParseCA(text)
	if err != nil {
		return nil, false, err
	}
	return material{trustedKey: []byte(ca.Root()), signingKey: keyOf(text)}.signed(ca, hosts, now)
}

// signed adds a serving certificate.
func (m material) signed(ca *pki.CA, hosts []string, now time.Time) (_ material, _ bool, err error) {
	m[certificateKey], m[privateKey], err = pki.NewTLSCertificate(ca, pki.TLSCertificate{
		Hosts: hosts, Lifetime: certificateLifetime, Now: now,
	})
	return m, true, err
}

// ca returns the signing CA.
func (m material) ca(now time.Time) (*pki.CA, error) {
	block, _ := pem.Decode(m[trustedKey])
	if block == nil {
		return nil, errors.New(trustedKey + " has no certificate in PEM")
	}
	ca, err := pki.ParseCA(slices.Concat(pem.EncodeToMemory(block), m[signingKey]))
	if err != nil {
		return nil, err
	}
	if now.After(ca.NotAfter()) || now.Before(ca.NotBefore()) {
		return nil, fmt.Errorf("the CA is valid from %s to %s", ca.NotBefore(), ca.NotAfter())
	}
	return ca, nil
}

// valid reports whether the serving certificate stays.
func (m material) valid(ca *pki.CA, hosts []string, now time.Time) bool {
	pair, err := m.certificate()
	return err == nil && ca.HasSigned(pair.Leaf) && now.Before(renewal(pair.Leaf)) &&
		!slices.ContainsFunc(hosts, func(host string) bool { return pair.Leaf.VerifyHostname(host) != nil })
}

// certificate returns the serving certificate with its key.
func (m material) certificate() (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair(m[certificateKey], m[privateKey])
	return &pair, err
}

// renewal returns the time at which a certificate is renewed.
func renewal(c *x509.Certificate) time.Time {
	return c.NotAfter.Add(-c.NotAfter.Sub(c.NotBefore) / 3)
}

// keyOf returns the private key of a CA in PEM.
func keyOf(text []byte) []byte {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			return pem.EncodeToMemory(block)
		}
	}
	return nil
}

// equal reports whether two contents of a Secret are the same.
func (m material) equal(other material) bool {
	return len(m) == len(other) && !slices.ContainsFunc([]string{certificateKey, privateKey, trustedKey, signingKey,
		nextKey}, func(key string) bool { return !bytes.Equal(m[key], other[key]) })
}

// encode returns the form that bytes have in JSON.
func encode(content []byte) string { return base64.StdEncoding.EncodeToString(content) }

// split returns the collection of an object's path, and its name.
func split(path string) (collection, name string) {
	i := strings.LastIndexByte(path, '/')
	return path[:i], path[i+1:]
}
