package kind

import "weft/resource"

// secretBytes is the maximum size of a document with such a value in base64.
const secretBytes = 2 << 20

// Secret is a value of a mesh that only the control plane and administrators read, such as the CA of a MeshIdentity.
// The keys that sign the tokens of a mesh's Dataplanes are Secrets with the name dataplane-token-signing-key-MESH-ID:
// deleting one makes the tokens that it signed invalid.
type Secret struct {
	Data []byte `json:"data" schema:"required maxLength=1048576 secret" missing:"the value in base64"` // the value in base64, one MiB at most
}

// Secrets is the kind of [Secret].
var Secrets = &resource.Kind[Secret]{
	Info: resource.Info{Name: "Secret", Plural: "secrets", Scope: resource.Mesh, Sync: resource.GlobalToZones,
		Flat: true, AdminOnly: true, WrittenBy: resource.Administrator, Encrypted: true, MaxBytes: secretBytes},
	Validate: validateSecret,
}

func validateSecret(o *resource.Object[Secret], found resource.Problems) resource.Problems {
	return envelope(&o.Meta, found).problems
}
