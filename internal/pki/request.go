package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"fmt"
)

// maxRequest is the largest accepted certificate request in bytes; real ones have a few hundred.
const maxRequest = 16 << 10

// ParseRequest parses a certificate request (PKCS #10, DER), verifies that the caller has the private key, and returns
// the public key. It ignores the names and extensions of the request.
//
// Keys are ECDSA on P-256 or P-384, or RSA of 2048 to 4096 bits, as Envoy accepts them.
func ParseRequest(der []byte) (crypto.PublicKey, error) {
	if len(der) > maxRequest {
		return nil, fmt.Errorf("the certificate request has %d bytes, at most %d are read", len(der), maxRequest)
	}
	request, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return nil, fmt.Errorf("not a certificate request (PKCS #10, DER): %w", err)
	}
	if err := checkKey(request.PublicKey); err != nil {
		return nil, err
	}
	if err := request.CheckSignature(); err != nil {
		return nil, errors.New("the certificate request is not signed by the key in it")
	}
	return request.PublicKey, nil
}

func checkKey(key crypto.PublicKey) error {
	switch key := key.(type) {
	case *ecdsa.PublicKey:
		if key.Curve == elliptic.P256() || key.Curve == elliptic.P384() {
			return nil
		}
		return fmt.Errorf("the key's curve is %s, want P-256 or P-384", key.Curve.Params().Name)
	case *rsa.PublicKey:
		if bits := key.N.BitLen(); bits < 2048 || bits > 4096 {
			return fmt.Errorf("the RSA key has %d bits, want 2048 to 4096", bits)
		}
		return nil
	}
	return fmt.Errorf("a key of type %T is not taken, want ECDSA or RSA", key)
}
