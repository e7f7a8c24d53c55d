package pki

import (
	"slices"
	"strings"

	"weft/kind"
	"weft/resource"
)

// IsGenerated reports whether a Secret is one of the control plane's own by its name: the CA of a MeshIdentity or of a
// builtin backend, a key that signs tokens, or a list of revoked tokens. No resource may refer to one, apart from
// [GeneratedReferences]: the control plane alone reads it.
func IsGenerated(secret resource.Key) bool {
	return isBuiltin(secret) || strings.HasPrefix(secret.Name, CASecretName("")) || AffectsTokens(secret)
}

// isBuiltin reports whether a Secret has a part of the CA of a builtin backend.
func isBuiltin(secret resource.Key) bool {
	certificate, key := BuiltinSecrets(secret.Mesh, "")
	return strings.HasPrefix(secret.Name, certificate) || strings.HasPrefix(secret.Name, key)
}

// GeneratedReferences returns the references of a resource to generated Secrets of its mesh that it may not have. A
// Mesh may sign with the CA of its former builtin backend: an export of Kuma names it as a provided one.
func GeneratedReferences(o resource.Any) []kind.SecretReference {
	return slices.DeleteFunc(kind.SecretReferences(o), func(reference kind.SecretReference) bool {
		secret := kind.Secrets.Key(MeshOf(o), reference.Secret)
		return !IsGenerated(secret) || o.Key().Kind == kind.Meshes.Name && isBuiltin(secret)
	})
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
