package kind

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"strings"
)

// DataSource is the source of a secret value.
type DataSource struct {
	Type string `json:"type" schema:"required enum=Secret|InsecureInline"` // the type of the source
	// the Secret, with the type Secret
	SecretRef      *SecretRef      `json:"secretRef,omitempty"`
	InsecureInline *InsecureInline `json:"insecureInline,omitempty"` // the value, with the type InsecureInline
}

// SecretRef references a Secret of the same mesh.
type SecretRef struct {
	Kind string `json:"kind" schema:"required enum=Secret"`  // the kind, Secret
	Name string `json:"name" schema:"required pattern=name"` // the name of the Secret
}

// InsecureInline is a value in plaintext.
type InsecureInline struct {
	Value string `json:"value" schema:"required maxLength=262144 secret" missing:"the value in plain text"` // the value
}

// olderSourceFields are the fields of the older form of a [DataSource], of which it has one.
var olderSourceFields = []string{"secret", "inline", "inlineString"}

// currentSource returns a source in a document as a [DataSource]. It returns one that is not of the older form
// unchanged.
func currentSource(source map[string]any) map[string]any {
	if len(source) != 1 {
		return source
	}
	if name, ok := source["secret"].(string); ok {
		return map[string]any{"type": "Secret", "secretRef": map[string]any{"kind": "Secret", "name": name}}
	}
	value, ok := source["inlineString"].(string)
	if encoded, isInline := source["inline"].(string); isInline {
		decoded, err := base64.StdEncoding.DecodeString(encoded)
		value, ok = string(decoded), err == nil
	}
	if !ok {
		return source
	}
	return map[string]any{"type": "InsecureInline", "insecureInline": map[string]any{"value": value}}
}

// Value returns the inline value, or an empty string for a Secret.
func (s *DataSource) Value() string {
	if s == nil || s.InsecureInline == nil {
		return ""
	}
	return s.InsecureInline.Value
}

// useASecret is the problem of values on the control plane's machine: a resource cannot decide whether its writer may
// read them.
const useASecret = "is not served by this release; use a Secret"

func (c *checks) dataSource(at string, s *DataSource) {
	switch {
	case s == nil:
		c.add(at, "is required: where the value stands")
	case s.Type == "File" || s.Type == "EnvVar":
		c.instead(at+".type", "%q is not served by this release; use Secret", s.Type)
	case !c.valid(at + ".type"):
	case s.Type == "Secret" && s.InsecureInline != nil:
		c.add(at+".insecureInline", "is given with the type Secret; leave it out")
	case s.Type == "InsecureInline" && s.SecretRef != nil:
		c.add(at+".secretRef", "is given with the type InsecureInline; leave it out")
	case s.Type == "InsecureInline":
		if s.InsecureInline == nil {
			c.add(at+".insecureInline.value", "is required with the type InsecureInline")
		} else if s.InsecureInline.Value == hiddenKey {
			c.add(at+".insecureInline.value", hiddenKeyWritten)
		}
	case s.SecretRef == nil:
		c.add(at+".secretRef", "is required with the type Secret")
	}
}

// optionalDataSource accepts nil for an absent source.
func (c *checks) optionalDataSource(at string, s *DataSource) {
	if s != nil {
		c.dataSource(at, s)
	}
}

// certificates accepts only certificates in PEM. Its problem contains nothing of the value, which may be a private key
// by mistake.
func (c *checks) certificates(field, text string) bool {
	return c.eachCertificate(field, text, func(int, *x509.Certificate) {})
}

// authorities also requires that they are CA certificates.
func (c *checks) authorities(field, text string) bool {
	return c.eachCertificate(field, text, func(n int, cert *x509.Certificate) {
		if !cert.IsCA {
			c.add(field, "block %d is not the certificate of an authority (basic constraint CA)", n)
		}
	})
}

// IsAuthority reports whether the first certificate of a text in PEM may sign others. Such a certificate is never that
// of a client: its key would leave the control plane. It returns false for a text without a certificate.
func IsAuthority(text []byte) bool {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if cert, err := x509.ParseCertificate(block.Bytes); block.Type == "CERTIFICATE" {
			return err == nil && (cert.IsCA || cert.KeyUsage&x509.KeyUsageCertSign != 0)
		}
	}
	return false
}

// AuthorityIsNoClient is the problem of a client certificate that may sign others.
const AuthorityIsNoClient = "is the certificate of an authority, whose key never leaves the control plane; sign a " +
	"certificate for the egress with it, and name that one and its key"

func (c *checks) eachCertificate(field, text string, check func(n int, cert *x509.Certificate)) bool {
	before := len(c.problems)
	rest := []byte(text)
	for n := 1; ; n++ {
		block, after := pem.Decode(rest)
		if block == nil {
			if n == 1 || strings.TrimSpace(string(rest)) != "" {
				c.add(field, "want certificates in PEM and nothing beside them")
			}
			return len(c.problems) == before
		}
		rest = after
		if block.Type != "CERTIFICATE" {
			c.add(field, "block %d is not a certificate; only certificates belong here", n)
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			c.add(field, "block %d is not a certificate: %s", n, err)
		} else {
			check(n, cert)
		}
	}
}

// privateKey requires one private key in PEM. Its problem contains nothing of the value.
func (c *checks) privateKey(field string, text []byte) bool {
	block, rest := pem.Decode(text)
	if block == nil || strings.TrimSpace(string(rest)) != "" {
		return c.add(field, "want one private key in PEM and nothing beside it")
	}
	for _, parse := range []func([]byte) error{
		func(der []byte) error { _, err := x509.ParsePKCS8PrivateKey(der); return err },
		func(der []byte) error { _, err := x509.ParsePKCS1PrivateKey(der); return err },
		func(der []byte) error { _, err := x509.ParseECPrivateKey(der); return err },
	} {
		if parse(block.Bytes) == nil {
			return true
		}
	}
	return c.add(field, "is not a private key in PEM (PKCS #8, PKCS #1 or SEC 1, not encrypted)")
}

// pair requires that a key belongs to a certificate. Its problem contains nothing of either.
func (c *checks) pair(field string, cert, key []byte) bool {
	if _, err := tls.X509KeyPair(cert, key); err != nil {
		return c.add(field, "is not the key of the certificate")
	}
	return true
}
