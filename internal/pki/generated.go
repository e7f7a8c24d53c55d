package pki

import (
	"slices"
	"strings"

	"weft/kind"
	"weft/resource"
)

// IsGenerated reports whether a Secret is one of the control plane's own by its name: the CA of a MeshIdentity or of a
// builtin backend, a key that signs tokens, or a list of revoked tokens. No resource may refer to one, so the control
// plane alone reads it.
func IsGenerated(secret resource.Key) bool {
	certificate, key := BuiltinSecrets(secret.Mesh, "")
	for _, prefix := range []string{CASecretName(""), certificate, key} {
		if strings.HasPrefix(secret.Name, prefix) {
			return true
		}
	}
	return AffectsTokens(secret)
}

// GeneratedReferences returns the references of a resource to generated Secrets of its mesh, except those of a backend
// that was builtin.
func GeneratedReferences(o resource.Any) []kind.SecretReference {
	own := formerlyBuiltin(o)
	return slices.DeleteFunc(kind.SecretReferences(o), func(reference kind.SecretReference) bool {
		return slices.Contains(own, reference.Secret) || !IsGenerated(kind.Secrets.Key(MeshOf(o), reference.Secret))
	})
}

// formerlyBuiltin returns the names of the generated Secrets that the provided backends of a Mesh may name: those of a
// builtin backend of the same name. So a mesh of Kuma keeps its CA, whose key stays with the control plane.
func formerlyBuiltin(o resource.Any) (names []string) {
	mesh, ok := o.(*resource.Object[kind.Mesh])
	if !ok || mesh.Spec.MTLS == nil {
		return nil
	}
	for _, backend := range mesh.Spec.MTLS.Backends {
		if backend.Type == kind.ProvidedBackend {
			certificate, key := BuiltinSecrets(mesh.Name, backend.Name)
			names = append(names, certificate, key)
		}
	}
	return names
}

// MeshOf returns the mesh whose Secrets a resource may name: its own, and for a Mesh itself.
func MeshOf(o resource.Any) string {
	if key := o.Key(); key.Kind == kind.Meshes.Name {
		return key.Name
	}
	return o.Key().Mesh
}

// IsClientReference reports whether a reference of a MeshExternalService is to the certificate or the key with which an
// egress authenticates. The other one is to the roots that the egress trusts.
func IsClientReference(reference kind.SecretReference) bool {
	return strings.HasPrefix(reference.Field, "spec.tls.verification.client")
}

// SigningCAProblem is the problem of a reference to the Secret of a CA where a client's certificate or key is wanted.
const SigningCAProblem = "has the CA of the mesh or of a MeshIdentity, whose key never leaves the control plane; " +
	"name a certificate and a key that are for this service alone"

// GeneratedProblem is the problem of a reference to a generated Secret.
const GeneratedProblem = "is a Secret of the control plane itself, which no resource may use; write a Secret of " +
	"your own"
