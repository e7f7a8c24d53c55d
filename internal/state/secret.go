package state

import (
	"weft/internal/pki"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// SecretTables are the Secrets and the GlobalSecrets.
type SecretTables struct {
	Secrets       Rows[kind.Secret]
	GlobalSecrets Rows[kind.Secret]
	// SigningKeys and GlobalSigningKeys find the Secrets with the signing keys of a realm of tokens, by its String.
	SigningKeys, GlobalSigningKeys table.Index[*resource.Object[kind.Secret]]
}

func (t *Tables) addSecret() {
	t.Secrets = addRows(t, kind.Secrets)
	t.GlobalSecrets = addRows(t, kind.GlobalSecrets)
	t.SigningKeys = table.NewIndex(t.Secrets, signingKeyRealms)
	t.GlobalSigningKeys = table.NewIndex(t.GlobalSecrets, signingKeyRealms)
}

// SigningCASecrets returns the names of the Secrets of a mesh with the CAs that its Mesh and its MeshIdentities name.
func (t *Tables) SigningCASecrets(r *table.Reader, mesh string) []string {
	var names []string
	if o, ok := t.Meshes.Find(r, "", mesh); ok {
		names = kind.SigningCASecrets(o)
	}
	for _, o := range t.IdentitiesByMesh.List(r, MeshKey(mesh)) {
		names = append(names, kind.SigningCASecrets(o)...)
	}
	return names
}

func signingKeyRealms(secret *resource.Object[kind.Secret]) []string {
	if realm, _, ok := pki.SigningKeyOf(secret.Key()); ok {
		return []string{realm.String()}
	}
	return nil
}
