package reconcile

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"time"

	"weft/internal/graph"
	"weft/internal/identity"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// shortestRSA is the smallest RSA key that Envoy presents a certificate with, in bits.
const shortestRSA = 2048

// material keeps how egresses dial an external service that names certificates: it is stored anew where all of these
// can be read and used, and stays as it was while one can't, which the condition tells. Again is when a certificate
// that is used expires.
func (p *Plan) material(r *table.Reader, service *resource.Object[kind.MeshExternalService], now time.Time) (steps []Step, conditions []kind.Condition, again time.Time) {
	stored, had := p.State.ExternalMaterials.Find(r, service.Mesh, service.Name)
	if !service.Spec.NamesCertificates() {
		if had {
			steps = append(steps, p.forgetMaterial(service.Mesh, service.Name))
		}
		return steps, nil, time.Time{}
	}
	found, again, trouble := p.resolve(r, service, now)
	if trouble != nil {
		meanwhile := "no zone egress serves it until then"
		if had {
			meanwhile = "zone egresses go on with what they had"
		}
		return nil, []kind.Condition{{
			Type: "SecretsResolved", Status: "False", Reason: trouble.reason, Message: trouble.message + "; " + meanwhile,
		}}, again
	}
	row := kind.ExternalMaterials.Make(service.Mesh, service.Name, *found)
	if had {
		row.Version = stored.Version
	}
	return []Step{{Put: row}}, nil, again
}

func (p *Plan) forgetMaterial(mesh, name string) Step {
	gone := kind.ExternalMaterials.Key(mesh, name)
	return Step{Delete: &gone}
}

// resolve reads what a service names. Again is when the first of it expires.
func (p *Plan) resolve(r *table.Reader, service *resource.Object[kind.MeshExternalService], now time.Time) (found *kind.ExternalMaterial, again time.Time, trouble *problem) {
	verification := *service.Spec.TLS.Verification
	found = &kind.ExternalMaterial{Endpoints: service.Spec.Endpoints}
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
		text, err := identity.Read(part.source, "spec.tls.verification."+part.field, p.secrets(r, service.Mesh))
		if err != nil {
			return nil, time.Time{}, &problem{"SecretMissing", err.Error()}
		}
		*part.to = text
	}
	verification.CACert, verification.ClientCert, verification.ClientKey = nil, nil, nil
	as := *service.Spec.TLS
	as.Verification = &verification
	found.TLS = &as
	expires, trouble := usable(found, now)
	if trouble == nil && now.Before(expires) {
		again = expires
	}
	return found, again, trouble
}

// secrets finds the data of the Secrets of a mesh.
func (p *Plan) secrets(r *table.Reader, mesh string) func(name string) ([]byte, bool) {
	return func(name string) ([]byte, bool) {
		secret, ok := p.State.Secrets.Find(r, mesh, name)
		if !ok {
			return nil, false
		}
		return secret.Spec.Data, true
	}
}

// usable says until when certificates can be used, and why they can't.
func usable(m *kind.ExternalMaterial, now time.Time) (until time.Time, trouble *problem) {
	if len(m.CACert) > 0 {
		if until, trouble = usableRoots(m.CACert, now); trouble != nil {
			return until, trouble
		}
	}
	if len(m.ClientCert) == 0 {
		return until, nil
	}
	expires, trouble := usablePair(m.ClientCert, m.ClientKey, now)
	return earliest(until, expires), trouble
}

// usableRoots wants certificates of which one at least has not expired; it answers when the last one does.
func usableRoots(text []byte, now time.Time) (last time.Time, trouble *problem) {
	const field = "spec.tls.verification.caCert"
	for rest := text; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		root, err := x509.ParseCertificate(block.Bytes)
		if err != nil || block.Type != "CERTIFICATE" {
			return last, &problem{"CertificateInvalid", fmt.Sprintf("%s: a block %q of it is no certificate; it is the authorities' certificates in PEM and nothing else", field, block.Type)}
		}
		if root.NotAfter.After(last) {
			last = root.NotAfter
		}
	}
	switch {
	case last.IsZero():
		return last, &problem{"CertificateInvalid", field + ": it holds no certificate; it is the authorities' certificates in PEM"}
	case !now.Before(last):
		return last, &problem{"CertificateExpired", fmt.Sprintf("%s: its last authority ended at %s; replace it", field, last.UTC().Format(time.RFC3339))}
	}
	return last, nil
}

// usablePair wants a certificate that Envoy can present, and its key; it answers when the certificate expires.
func usablePair(certificate, key []byte, now time.Time) (expires time.Time, trouble *problem) {
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		// What it says names no byte of the key.
		return expires, &problem{"CertificateInvalid", fmt.Sprintf("spec.tls.verification.clientCert and clientKey: %s; they are a certificate and its own key in PEM", err)}
	}
	leaf := pair.Leaf
	if !presentable(leaf) {
		return expires, &problem{"CertificateInvalid", "spec.tls.verification.clientCert: Envoy presents certificates with keys of RSA of 2048 bits or more, or of ECDSA with P-256, P-384 or P-521, and this is another one"}
	}
	if !now.Before(leaf.NotAfter) {
		return expires, &problem{"CertificateExpired", fmt.Sprintf("spec.tls.verification.clientCert: it ended at %s; replace it", leaf.NotAfter.UTC().Format(time.RFC3339))}
	}
	return leaf.NotAfter, nil
}

func presentable(leaf *x509.Certificate) bool {
	switch key := leaf.PublicKey.(type) {
	case *rsa.PublicKey:
		return key.N.BitLen() >= shortestRSA
	case *ecdsa.PublicKey:
		return key.Curve == elliptic.P256() || key.Curve == elliptic.P384() || key.Curve == elliptic.P521()
	}
	return false
}

// askNaming asks about the external services that name a Secret.
func (rc *Reconciler) askNaming(secret resource.Key, now time.Time) {
	r := table.Eval(rc.plan.State.DB.Snapshot())
	for _, service := range rc.plan.State.ExternalServicesBySecret.List(r, graph.RowKey(secret.Mesh, secret.Name)) {
		rc.ask(Unit(service.Key()), now)
	}
}
