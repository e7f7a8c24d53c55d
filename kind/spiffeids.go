package kind

import (
	"slices"
	"strings"
)

// SpiffeIDs are the SPIFFE IDs of one certificate: one of a MeshIdentity, or one for each service of the proxy with the
// mtls of a mesh.
type SpiffeIDs struct {
	// SpiffeID is the first SPIFFE ID.
	SpiffeID string `json:"spiffeID,omitempty"`
	// Further are the other SPIFFE IDs, sorted.
	Further []string `json:"further,omitempty"`
}

// SpiffeIDsOf returns the sorted and unique SPIFFE IDs.
func SpiffeIDsOf(ids ...string) SpiffeIDs {
	ids = slices.Clone(ids)
	slices.Sort(ids)
	switch ids = slices.Compact(ids); len(ids) {
	case 0:
		return SpiffeIDs{}
	case 1:
		return SpiffeIDs{SpiffeID: ids[0]}
	}
	return SpiffeIDs{SpiffeID: ids[0], Further: ids[1:]}
}

// List returns all SPIFFE IDs, sorted. The zero value has none.
func (n SpiffeIDs) List() []string {
	if n.SpiffeID == "" {
		return nil
	}
	return append([]string{n.SpiffeID}, n.Further...)
}

// String returns the SPIFFE IDs, separated by commas.
func (n SpiffeIDs) String() string { return strings.Join(n.List(), ", ") }

// Equal reports whether both have the same SPIFFE IDs.
func (n SpiffeIDs) Equal(m SpiffeIDs) bool {
	return n.SpiffeID == m.SpiffeID && slices.Equal(n.Further, m.Further)
}

// Has reports whether id is one of the SPIFFE IDs.
func (n SpiffeIDs) Has(id string) bool {
	return id != "" && (id == n.SpiffeID || slices.Contains(n.Further, id))
}

// Covers reports whether n has all SPIFFE IDs of m. A client that accepts m then accepts n too.
func (n SpiffeIDs) Covers(m SpiffeIDs) bool {
	return !slices.ContainsFunc(m.List(), func(id string) bool { return !n.Has(id) })
}

// Union returns the SPIFFE IDs of both.
func (n SpiffeIDs) Union(m SpiffeIDs) SpiffeIDs { return SpiffeIDsOf(append(n.List(), m.List()...)...) }

// isDisjoint reports whether they have no SPIFFE ID in common.
func (n SpiffeIDs) isDisjoint(m SpiffeIDs) bool { return !slices.ContainsFunc(m.List(), n.Has) }
