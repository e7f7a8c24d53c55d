package graph

import (
	"time"

	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// ConnectionLife is how long proxies keep a pooled connection of requests. What a proxy has proven on one
// counts for as long, whatever it would prove now.
const ConnectionLife = 10 * time.Minute

// RootKey is the index key of the leaves that lead to a root, by its fingerprint.
func RootKey(mesh, fingerprint string) string { return mesh + "/root/" + fingerprint }

func rootKeys(row *resource.Object[kind.DataplaneLeaves]) []string {
	keys := []string{MeshKey(row.Mesh)}
	seen := map[string]bool{}
	for _, leaf := range row.Spec.Leaves {
		if !seen[leaf.Root] {
			seen[leaf.Root] = true
			keys = append(keys, RootKey(row.Mesh, leaf.Root))
		}
	}
	return keys
}

// authority stands between a CA and those whom it signs for, so that its rotation wakes them once.
func (s *State) authority(r *table.Reader, key IdentityKey) string {
	if ca, ok := s.SigningCAs.Find(r, key.Mesh, key.Name); ok {
		return ca.Spec.Fingerprint
	}
	return ""
}

// leaf is what the next certificate of a proxy says; nil where it is to have none.
func (s *State) leaf(r *table.Reader, key ProxyKey, wanted *Identity) *Leaf {
	if wanted == nil || wanted.Problem != "" {
		return nil
	}
	return &Leaf{
		MeshIdentity: wanted.MeshIdentity, SpiffeID: wanted.SpiffeID,
		Authority: s.Authority.Get(r, IdentityKey{key.Mesh, wanted.MeshIdentity}),
	}
}
