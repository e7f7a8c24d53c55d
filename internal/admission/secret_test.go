package admission_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"weft/internal/admission"
	"weft/internal/pki"
	"weft/resource"
)

// naming is a MeshExternalService with a client certificate and key of two Secrets.
func naming(port int, cert, key string) string {
	return fmt.Sprintf(`{type: MeshExternalService, mesh: m, name: bank, spec: {match: {type: HostnameGenerator, `+
		`port: %d, protocol: tcp}, endpoints: [{address: 192.0.2.1, port: 443}], tls: {enabled: true, verification: `+
		`{clientCert: {type: Secret, secretRef: {kind: Secret, name: %q}}, clientKey: {type: Secret, secretRef: `+
		`{kind: Secret, name: %q}}}}}}`, port, cert, key)
}

// provided is a MeshIdentity with a CA of two Secrets.
func provided(cert, key string) string {
	return fmt.Sprintf(`{type: MeshIdentity, mesh: m, name: own, spec: {provider: {type: Bundled, bundled: {ca: `+
		`{certificate: {type: Secret, secretRef: {kind: Secret, name: %q}}, privateKey: {type: Secret, secretRef: `+
		`{kind: Secret, name: %q}}}}}}}`, cert, key)
}

// withBackend is a Mesh with a CA of two Secrets, which it does not use.
func withBackend(cert, key string) string {
	return fmt.Sprintf(`{type: Mesh, name: m, mtls: {backends: [{name: other, type: builtin}, {name: ca-1, `+
		`type: provided, conf: {cert: {secret: %q}, key: {secret: %q}}}], skipValidation: true}}`, cert, key)
}

// TestGeneratedSecretsAreNoReferences: no resource of a user, administrator or not, names a Secret that the control
// plane generates.
func TestGeneratedSecretsAreNoReferences(t *testing.T) {
	w, _ := newEastWriter(t)
	for _, generated := range []string{"identity-ca-default", "m.ca-builtin-cert-other", "m.ca-builtin-key-other",
		"dataplane-token-signing-key-m-1", "dataplane-token-signing-key-m-zone-east-2",
		"dataplane-token-revocations-m"} {
		for field, document := range map[string]string{
			"spec.tls.verification.clientCert.secretRef.name":     naming(443, generated, "own"),
			"spec.tls.verification.clientKey.secretRef.name":      naming(443, "own", generated),
			"spec.provider.bundled.ca.certificate.secretRef.name": provided(generated, "own"),
			"spec.provider.bundled.ca.privateKey.secretRef.name":  provided("own", generated),
			"mtls.backends[1].conf.cert.secret":                   withBackend(generated, "own"),
			"mtls.backends[1].conf.key.secret":                    withBackend("own", generated),
		} {
			if strings.HasPrefix(field, "mtls") && strings.Contains(generated, "builtin") {
				continue // as an export of Kuma has it
			}
			_, err := w.Put(t.Context(), parse(t, document), admission.Change{})
			wantError(t, err, resource.Invalid, field+": \""+generated+"\" is a Secret of the control plane itself")
		}
	}
}

// TestAuthoritiesAreNoClients: an egress authenticates neither with the certificate of a CA, nor with the key of one.
func TestAuthoritiesAreNoClients(t *testing.T) {
	w, _ := newEastWriter(t)
	certificate, key, err := pki.NewCA(time.Now(), "m")
	if err != nil {
		t.Fatal(err)
	}
	put(t, w, fmt.Sprintf("{type: Secret, mesh: m, name: authority, data: %s}",
		base64.StdEncoding.EncodeToString(append(certificate, key...))))
	_, err = w.Put(t.Context(), parse(t, naming(443, "authority", "authority")), admission.Change{})
	wantError(t, err, resource.Invalid, "spec.tls.verification.clientCert: is the certificate of an authority")

	put(t, w, provided("own-cert", "own-key"))
	_, err = w.Put(t.Context(), parse(t, naming(443, "other", "own-key")), admission.Change{})
	wantError(t, err, resource.Invalid, `clientKey.secretRef.name: "own-key" has the CA of the mesh`)
	put(t, w, withBackend("mesh-cert", "mesh-key"))
	_, err = w.Put(t.Context(), parse(t, naming(443, "mesh-cert", "other")), admission.Change{})
	wantError(t, err, resource.Invalid, `clientCert.secretRef.name: "mesh-cert" has the CA of the mesh`)
	put(t, w, naming(443, "other", "another"))
}

// TestReferencesNeedThePermissionOfSecrets: who may not read Secrets adds and changes no reference, and keeps those
// that are stored.
func TestReferencesNeedThePermissionOfSecrets(t *testing.T) {
	w, _ := newEastWriter(t)
	denied := admission.Change{Administers: func(context.Context) error {
		return resource.Errorf(resource.Forbidden, "the setting says no")
	}}
	for stored, changed := range map[string][]string{
		naming(443, "cert", "key"):     {naming(443, "cert", "key2"), naming(443, "cert2", "key")},
		provided("ca-cert", "ca-key"):  {provided("ca-cert", "key2"), provided("ca-key", "ca-cert")},
		withBackend("m-cert", "m-key"): {withBackend("cert2", "m-key")},
	} {
		_, err := w.Put(t.Context(), parse(t, stored), denied)
		wantError(t, err, resource.Forbidden, "the setting says no")
		put(t, w, stored)
		for _, document := range changed {
			_, err := w.Put(t.Context(), parse(t, document), denied)
			wantError(t, err, resource.Forbidden, "which the stored resource does not")
		}
	}
	if _, err := w.Put(t.Context(), parse(t, naming(444, "cert", "key")), denied); err != nil {
		t.Errorf("a write that keeps its references: %v", err)
	}
}
