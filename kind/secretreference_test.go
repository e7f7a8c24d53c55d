package kind_test

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"weft/kind"
	"weft/resource"
)

// secretField matches a field that may name a Secret.
var secretField = regexp.MustCompile(`(?i)secret|credential|password`)

// TestEveryReferenceToASecretIsFound: no field of a kind names a Secret, except in the types in which
// [kind.SecretReferences] looks for references.
func TestEveryReferenceToASecretIsFound(t *testing.T) {
	known := []reflect.Type{reflect.TypeFor[kind.DataSource](), reflect.TypeFor[kind.LegacyDataSource]()}
	for _, d := range kind.All() {
		seen := map[reflect.Type]bool{}
		var walk func(of reflect.Type, path string)
		walk = func(of reflect.Type, path string) {
			for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice || of.Kind() == reflect.Map {
				of = of.Elem()
			}
			if of.Kind() != reflect.Struct || seen[of] || slices.Contains(known, of) {
				return
			}
			seen[of] = true
			for i := range of.NumField() {
				field := of.Field(i)
				if secretField.MatchString(field.Name) || secretField.MatchString(field.Tag.Get("json")) {
					t.Errorf("%s: %s.%s seems to name a Secret; use the type DataSource, or change this test",
						d.Describe().Name, path, field.Name)
				}
				walk(field.Type, path+"."+field.Name)
			}
		}
		walk(reflect.TypeOf(resource.SpecOf(d.New())).Elem(), "")
	}
}

func TestSecretReferences(t *testing.T) {
	source := func(name string) *kind.DataSource {
		return &kind.DataSource{Type: "Secret", SecretRef: &kind.SecretRef{Kind: "Secret", Name: name}}
	}
	for _, c := range []struct {
		of   resource.Any
		want string
	}{
		{kind.Meshes.Make("", "m", kind.Mesh{MTLS: &kind.MeshMTLS{Backends: []kind.MTLSBackend{{}, {
			Conf: &kind.MTLSConf{Cert: &kind.LegacyDataSource{Secret: "a"},
				Key: &kind.LegacyDataSource{Secret: "b"}}}}}}),
			"mtls.backends[1].conf.cert.secret a true, mtls.backends[1].conf.key.secret b true"},
		{kind.MeshExternalServices.Make("m", "s", kind.MeshExternalService{TLS: &kind.ExternalTLS{
			Verification: &kind.ExternalVerification{CACert: source("a"), ClientKey: source("b")}}}),
			"spec.tls.verification.caCert.secretRef.name a false, " +
				"spec.tls.verification.clientKey.secretRef.name b false"},
		{kind.MeshIdentities.Make("m", "i", kind.MeshIdentity{Provider: kind.IdentityProvider{
			Bundled: &kind.BundledProvider{CA: &kind.ProvidedCA{PrivateKey: source("a")}}}}),
			"spec.provider.bundled.ca.privateKey.secretRef.name a true"},
		{kind.MeshTimeouts.Make("m", "t", kind.MeshTimeout{}), ""},
	} {
		var found []string
		for _, r := range kind.SecretReferences(c.of) {
			found = append(found, r.Field+" "+r.Secret+map[bool]string{true: " true", false: " false"}[r.SigningCA])
		}
		if got := strings.Join(found, ", "); got != c.want {
			t.Errorf("%s refers to %q, want %q", c.of.Key(), got, c.want)
		}
	}
}
