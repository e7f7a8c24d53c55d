package pki

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"

	"weft/kind"
)

// CAText returns the CA of a Bundled MeshIdentity, the certificate in PEM followed by the private key in PEM: the
// user's, or the control plane's Secret. It returns nil without an error if that Secret does not exist yet. secret
// returns the data of a Secret of the MeshIdentity's mesh.
func CAText(spec *kind.MeshIdentity, name string, secret func(name string) ([]byte, bool)) ([]byte, error) {
	if b := spec.Provider.Bundled; b != nil && b.CA != nil {
		certificate, err := Read(b.CA.Certificate, "spec.provider.bundled.ca.certificate", secret)
		if err != nil {
			return nil, err
		}
		key, err := Read(b.CA.PrivateKey, "spec.provider.bundled.ca.privateKey", secret)
		if err != nil {
			return nil, err
		}
		if allowed := b.InsecureAllowSelfSigned; allowed != nil && !*allowed && selfSigned(certificate) {
			return nil,
				fmt.Errorf("spec.provider.bundled.ca.certificate: it is self-signed; give one that your own CA " +
					"signed, or set insecureAllowSelfSigned to true")
		}
		return joinPEM(certificate, key), nil
	}
	if text, ok := secret(CASecretName(name)); ok {
		return text, nil
	}
	if b := spec.Provider.Bundled; b != nil && b.Autogenerate != nil && b.Autogenerate.Enabled != nil &&
		!*b.Autogenerate.Enabled {
		return nil,
			fmt.Errorf("spec.provider.bundled.autogenerate is off and there is no spec.provider.bundled.ca: provide " +
				"one of them")
	}
	return nil, nil
}

// selfSigned reports whether the first certificate is its own issuer. An invalid certificate is rejected where it is
// parsed.
func selfSigned(certificate []byte) bool {
	block, _ := pem.Decode(certificate)
	if block == nil {
		return false
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	return err == nil && cert.CheckSignatureFrom(cert) == nil
}

// Read returns the value of a data source in a field of a resource. secret returns the data of a Secret of its mesh.
func Read(source *kind.DataSource, field string, secret func(string) ([]byte, bool)) ([]byte, error) {
	switch {
	case source == nil:
		return nil, fmt.Errorf("%s: is missing; name a Secret", field)
	case source.InsecureInline != nil:
		return []byte(source.InsecureInline.Value), nil
	case source.SecretRef != nil:
		if data, ok := secret(source.SecretRef.Name); ok {
			return data, nil
		}
		return nil, fmt.Errorf("%s: there is no Secret %q in the mesh; create it", field, source.SecretRef.Name)
	}
	return nil, fmt.Errorf("%s: names neither a Secret nor a value", field)
}
