package pki

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	"weft/kind"
)

// ErrNotMade is the error for a builtin backend whose CA is not generated yet.
var ErrNotMade = errors.New("the certificate authority is still to be made")

// BuiltinSecrets returns the names of the Secrets of a mesh with the CA of a builtin backend: its certificate and its
// private key, each in PEM.
func BuiltinSecrets(mesh, backend string) (certificate, key string) {
	return mesh + ".ca-builtin-cert-" + backend, mesh + ".ca-builtin-key-" + backend
}

// BackendText returns the CA of a backend of a mesh's mtls: its certificates in PEM, followed by its private key in
// PEM. It returns [ErrNotMade] for a builtin backend whose Secrets do not both exist. secret returns the data of a
// Secret of the mesh.
func BackendText(mesh string, b *kind.MTLSBackend, secret func(name string) ([]byte, bool)) ([]byte, error) {
	if b.Type == kind.BuiltinBackend {
		certName, keyName := BuiltinSecrets(mesh, b.Name)
		certificate, made := secret(certName)
		key, there := secret(keyName)
		switch {
		case made && !there:
			return nil,
				fmt.Errorf("there is no Secret %q in the mesh; restore it, or delete %q to have another authority made",
					keyName, certName)
		case !made:
			return nil, ErrNotMade
		}
		return joinPEM(certificate, key), nil
	}
	if b.Conf == nil {
		return nil, errors.New("conf: is missing; name the certificate and the key")
	}
	certificate, err := readLegacy(b.Conf.Cert, "conf.cert", secret)
	if err != nil {
		return nil, err
	}
	key, err := readLegacy(b.Conf.Key, "conf.key", secret)
	if err != nil {
		return nil, err
	}
	return joinPEM(certificate, key), nil
}

func joinPEM(certificate, key []byte) []byte {
	return append(append(append([]byte(nil), certificate...), '\n'), key...)
}

func readLegacy(source *kind.LegacyDataSource, field string, secret func(string) ([]byte, bool)) ([]byte, error) {
	switch {
	case source == nil:
		return nil, fmt.Errorf("%s: is missing; name a Secret", field)
	case source.Secret == "":
		return source.Value(), nil
	}
	data, ok := secret(source.Secret)
	if !ok {
		return nil, fmt.Errorf("%s: there is no Secret %q in the mesh; create it", field, source.Secret)
	}
	return data, nil
}

// NewBuiltinKey generates the private key of a builtin backend: RSA, in PEM.
func NewBuiltinKey(bits int) ([]byte, error) {
	key, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		return nil, fmt.Errorf("making an RSA key of %d bits: %w", bits, err)
	}
	return encodeKey(key)
}

// NewBuiltinCertificate generates the certificate of a builtin backend for its key, both in PEM: self-signed, with the
// trust domain's SPIFFE ID as its only URI SAN.
func NewBuiltinCertificate(now time.Time, trustDomain string, key []byte, life time.Duration) ([]byte, error) {
	block, _ := pem.Decode(key)
	if block == nil {
		return nil, errors.New("the private key is not PEM")
	}
	signer, err := parseKey(block)
	if err != nil {
		return nil, err
	}
	return selfSign(now, trustDomain, signer, life)
}
