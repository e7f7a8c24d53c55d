package reconcile

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"time"

	"weft/internal/pki"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// shortestRSA is the size in bits of the smallest RSA key that Envoy accepts.
const shortestRSA = 2048

// externalMaterial writes the endpoints and certificates with which egresses dial an external service. It writes only
// where all of them are readable and valid. Otherwise the stored ones stay in use, and the returned conditions have the
// reason. Those that no egress may have are deleted at once.
func (p *Plan) externalMaterial(r *table.Reader, w *Writes,
	service *resource.Object[kind.MeshExternalService]) []kind.Condition {
	stored, had := p.State.Tables.ExternalMaterials.Find(r, service.Mesh, service.Name)
	if !service.Spec.NamesCertificates() {
		if had {
			w.addWrite(servingDelay, Write{Delete: stored})
		}
		return nil
	}
	if withheld := p.withheld(r, service); withheld != nil {
		if had {
			w.addWrite(0, Write{Delete: stored})
		}
		return []kind.Condition{{
			Type: "SecretsResolved", Status: "False", Reason: withheld.reason,
			Message: withheld.message + "; no zone egress serves it until then",
		}}
	}
	found, trouble := p.resolve(r, service)
	if trouble != nil {
		meanwhile := "no zone egress serves it until then"
		if had {
			meanwhile = "zone egresses go on with what they had"
		}
		return []kind.Condition{{
			Type: "SecretsResolved", Status: "False", Reason: trouble.reason,
			Message: trouble.message + "; " + meanwhile,
		}}
	}
	putIfDifferent(w, servingDelay, stored, kind.ExternalMaterials.Make(service.Mesh, service.Name, *found))
	return nil
}

// withheld returns the problem of a service whose egresses would have the key of an authority or another Secret of the
// control plane: it was written under an earlier release, or by another control plane. nil: there is none.
func (p *Plan) withheld(r *table.Reader, service *resource.Object[kind.MeshExternalService]) *problem {
	if trouble := ofControlPlane(service, ""); trouble != nil {
		return trouble
	}
	signing := p.State.Tables.SigningCASecrets(r, service.Mesh)
	for _, reference := range kind.SecretReferences(service) {
		if pki.IsClientReference(reference) && slices.Contains(signing, reference.Secret) {
			return &problem{"SecretOfAuthority", fmt.Sprintf("%s: %q %s", reference.Field, reference.Secret,
				pki.SigningCAProblem)}
		}
	}
	const field = "spec.tls.verification.clientCert"
	cert := service.Spec.TLS.Verification.ClientCert
	if text, err := pki.Read(cert, field, p.secrets(r, service.Mesh)); err == nil && kind.IsAuthority(text) {
		return &problem{"SecretOfAuthority", field + ": " + kind.AuthorityIsNoClient}
	}
	return nil
}

// resolve returns the endpoints and certificates of a service, or the problem of one of them.
func (p *Plan) resolve(r *table.Reader, service *resource.Object[kind.MeshExternalService]) (*kind.ExternalMaterial,
	*problem) {
	verification := *service.Spec.TLS.Verification
	found := &kind.ExternalMaterial{Endpoints: service.Spec.Endpoints}
	for _, part := range []struct {
		field  string
		source *kind.DataSource
		to     *[]byte
	}{
		{"caCert", verification.CACert, &found.CACert},
		{"clientCert", verification.ClientCert, &found.ClientCert},
		{"clientKey", verification.ClientKey, &found.ClientKey},
	} {
		if part.source == nil {
			continue
		}
		text, err := pki.Read(part.source, "spec.tls.verification."+part.field, p.secrets(r, service.Mesh))
		if err != nil {
			return nil, &problem{"SecretMissing", resource.Line(err)}
		}
		*part.to = text
	}
	verification.CACert, verification.ClientCert, verification.ClientKey = nil, nil, nil
	as := *service.Spec.TLS
	as.Verification = &verification
	found.TLS = &as
	return found, checkMaterial(r, found)
}

// secrets returns a function that returns the data of a Secret of a mesh.
func (p *Plan) secrets(r *table.Reader, mesh string) func(name string) ([]byte, bool) {
	return func(name string) ([]byte, bool) {
		secret, ok := p.State.Tables.Secrets.Find(r, mesh, name)
		if !ok {
			return nil, false
		}
		return secret.Spec.Data, true
	}
}

// checkMaterial returns the problem of certificates that can't be used now, nil where all are valid.
func checkMaterial(r *table.Reader, m *kind.ExternalMaterial) *problem {
	if len(m.CACert) > 0 {
		if trouble := checkRoots(r, m.CACert); trouble != nil {
			return trouble
		}
	}
	if len(m.ClientCert) == 0 {
		return nil
	}
	return checkPair(r, m.ClientCert, m.ClientKey)
}

// checkRoots returns a problem unless the text is PEM certificates of which at least one has not expired.
func checkRoots(r *table.Reader, text []byte) *problem {
	const field = "spec.tls.verification.caCert"
	var last time.Time
	for rest := text; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		root, err := x509.ParseCertificate(block.Bytes)
		if err != nil || block.Type != "CERTIFICATE" {
			return &problem{"CertificateInvalid",
				fmt.Sprintf("%s: a block %q of it is no certificate; it is the authorities' certificates in PEM and "+
					"nothing else", field, block.Type)}
		}
		if root.NotAfter.After(last) {
			last = root.NotAfter
		}
	}
	switch {
	case last.IsZero():
		return &problem{"CertificateInvalid",
			field + ": it holds no certificate; it is the authorities' certificates in PEM"}
	case r.Past(last):
		return &problem{"CertificateExpired", fmt.Sprintf("%s: its last authority ended at %s; replace it", field,
			last.UTC().Format(time.RFC3339))}
	}
	return nil
}

// checkPair returns a problem unless Envoy can present the certificate and the key belongs to it.
func checkPair(r *table.Reader, certificate, key []byte) *problem {
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		// The error has no bytes of the key.
		return &problem{"CertificateInvalid",
			fmt.Sprintf(
				"spec.tls.verification.clientCert and clientKey: %s; they are a certificate and its own key in PEM",
				err)}
	}
	cert := pair.Leaf
	if !presentable(cert) {
		return &problem{"CertificateInvalid",
			"spec.tls.verification.clientCert: Envoy presents certificates with keys of RSA of 2048 bits or more, or " +
				"of ECDSA with P-256, P-384 or P-521, and this is another one"}
	}
	if r.Past(cert.NotAfter) {
		return &problem{"CertificateExpired",
			fmt.Sprintf("spec.tls.verification.clientCert: it ended at %s; replace it",
				cert.NotAfter.UTC().Format(time.RFC3339))}
	}
	return nil
}

func presentable(cert *x509.Certificate) bool {
	switch key := cert.PublicKey.(type) {
	case *rsa.PublicKey:
		return key.N.BitLen() >= shortestRSA
	case *ecdsa.PublicKey:
		return key.Curve == elliptic.P256() || key.Curve == elliptic.P384() || key.Curve == elliptic.P521()
	}
	return false
}
