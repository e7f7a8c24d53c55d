package kind

import (
	"slices"
	"strings"
)

// SpiffeIDs are the SPIFFE IDs of one certificate: a single one of a MeshIdentity, and of the mtls of a mesh one
// for each service of the proxy.
type SpiffeIDs struct {
	// SpiffeID is the first of them.
	SpiffeID string `json:"spiffeID,omitempty"`
	// Further are the others, sorted.
	Further []string `json:"further,omitempty"`
}

// SpiffeIDsOf answers names in their order, each of them once.
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

// List are all of them, sorted; none of the zero value.
func (n SpiffeIDs) List() []string {
	if n.SpiffeID == "" {
		return nil
	}
	return append([]string{n.SpiffeID}, n.Further...)
}

// String joins them.
func (n SpiffeIDs) String() string { return strings.Join(n.List(), ", ") }

// Same says whether both are the same names.
func (n SpiffeIDs) Same(m SpiffeIDs) bool {
	return n.SpiffeID == m.SpiffeID && slices.Equal(n.Further, m.Further)
}

// Has says whether a name is among them.
func (n SpiffeIDs) Has(id string) bool {
	return id != "" && (id == n.SpiffeID || slices.Contains(n.Further, id))
}

// Cover says whether all of m's are among them. A client that accepts m accepts these as well.
func (n SpiffeIDs) Cover(m SpiffeIDs) bool {
	return !slices.ContainsFunc(m.List(), func(id string) bool { return !n.Has(id) })
}

// And are those of both.
func (n SpiffeIDs) And(m SpiffeIDs) SpiffeIDs { return SpiffeIDsOf(append(n.List(), m.List()...)...) }

// apart says whether they have no name in common.
func (n SpiffeIDs) apart(m SpiffeIDs) bool { return !slices.ContainsFunc(m.List(), n.Has) }
