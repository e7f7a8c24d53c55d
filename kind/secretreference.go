package kind

import (
	"fmt"
	"reflect"
	"strings"

	"weft/resource"
)

// SecretReference is a field of a resource that names a Secret of its mesh.
type SecretReference struct {
	Field  string // the path of the field, such as spec.tls.verification.clientKey.secretRef.name
	Secret string // the name of the Secret
	// SigningCA is true for the certificate or the key of a CA that signs workload certificates.
	SigningCA bool
}

// SecretReferences returns the references of a resource to Secrets, in the order of its fields. It finds them by the
// types [DataSource] and [LegacyDataSource], so a kind declares none: no other type refers to a Secret.
func SecretReferences(o resource.Any) []SecretReference {
	at := "spec"
	if ByName(o.Key().Kind).Describe().Flat {
		at = ""
	}
	var found []SecretReference
	addSecretReferences(&found, reflect.ValueOf(resource.SpecOf(o)), at, false)
	return found
}

// SigningCASecrets returns the Secrets with the certificates and keys of the CAs that a Mesh or a MeshIdentity names.
func SigningCASecrets(o resource.Any) []string {
	var names []string
	for _, reference := range SecretReferences(o) {
		if reference.SigningCA {
			names = append(names, reference.Secret)
		}
	}
	return names
}

// referrers are the types of fields that refer to Secrets.
var (
	dataSourceType       = reflect.TypeFor[DataSource]()
	legacyDataSourceType = reflect.TypeFor[LegacyDataSource]()
	// signingCATypes are the types whose fields are the parts of a CA.
	signingCATypes = map[reflect.Type]bool{reflect.TypeFor[ProvidedCA](): true, reflect.TypeFor[MTLSConf](): true}
)

func addSecretReferences(found *[]SecretReference, v reflect.Value, at string, ca bool) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			addSecretReferences(found, v.Elem(), at, ca)
		}
	case reflect.Slice:
		for i := range v.Len() {
			addSecretReferences(found, v.Index(i), fmt.Sprintf("%s[%d]", at, i), ca)
		}
	case reflect.Map:
		for entries := v.MapRange(); entries.Next(); {
			addSecretReferences(found, entries.Value(), fmt.Sprintf("%s[%v]", at, entries.Key()), ca)
		}
	case reflect.Struct:
		addSecretReferencesOfStruct(found, v, at, ca || signingCATypes[v.Type()])
	}
}

func addSecretReferencesOfStruct(found *[]SecretReference, v reflect.Value, at string, ca bool) {
	switch v.Type() {
	case dataSourceType:
		if ref := v.Addr().Interface().(*DataSource).SecretRef; ref != nil {
			*found = append(*found, SecretReference{at + ".secretRef.name", ref.Name, ca})
		}
		return
	case legacyDataSourceType:
		if name := v.Addr().Interface().(*LegacyDataSource).Secret; name != "" {
			*found = append(*found, SecretReference{at + ".secret", name, ca})
		}
		return
	}
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if !field.IsExported() {
			continue
		}
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		below := at
		if name != "" {
			below = strings.TrimPrefix(at+"."+name, ".")
		}
		addSecretReferences(found, v.Field(i), below, ca)
	}
}
