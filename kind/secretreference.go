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
	visitSources(reflect.ValueOf(resource.SpecOf(o)), at, false, func(at string, ca bool, source any) {
		switch source := source.(type) {
		case *DataSource:
			if ref := source.SecretRef; ref != nil {
				found = append(found, SecretReference{at + ".secretRef.name", ref.Name, ca})
			}
		case *LegacyDataSource:
			if name := source.Secret; name != "" {
				found = append(found, SecretReference{at + ".secret", name, ca})
			}
		}
	})
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

// visitSources calls visit with each [DataSource] and [LegacyDataSource] of a value, its path, and whether it is a part
// of a CA.
func visitSources(v reflect.Value, at string, ca bool, visit func(at string, ca bool, source any)) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			visitSources(v.Elem(), at, ca, visit)
		}
	case reflect.Slice:
		for i := range v.Len() {
			visitSources(v.Index(i), fmt.Sprintf("%s[%d]", at, i), ca, visit)
		}
	case reflect.Map:
		for entries := v.MapRange(); entries.Next(); {
			visitSources(entries.Value(), fmt.Sprintf("%s[%v]", at, entries.Key()), ca, visit)
		}
	case reflect.Struct:
		if v.Type() == dataSourceType || v.Type() == legacyDataSourceType {
			visit(at, ca, v.Addr().Interface())
			return
		}
		visitSourcesOfStruct(v, at, ca || signingCATypes[v.Type()], visit)
	}
}

func visitSourcesOfStruct(v reflect.Value, at string, ca bool, visit func(at string, ca bool, source any)) {
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
		visitSources(v.Field(i), below, ca, visit)
	}
}
