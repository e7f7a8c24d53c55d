package kind

import (
	"slices"
	"strings"
)

// LeafNames are the SPIFFE IDs of one certificate: a single one of a MeshIdentity, and of the mtls of a mesh one
// for each service of the proxy.
type LeafNames struct {
	// SpiffeID is the first of them.
	SpiffeID string `json:"spiffeID,omitempty"`
	// Further are the others, sorted.
	Further []string `json:"further,omitempty"`
}

// NamesOf answers names in their order, each of them once.
func NamesOf(ids ...string) LeafNames {
	ids = slices.Clone(ids)
	slices.Sort(ids)
	switch ids = slices.Compact(ids); len(ids) {
	case 0:
		return LeafNames{}
	case 1:
		return LeafNames{SpiffeID: ids[0]}
	}
	return LeafNames{SpiffeID: ids[0], Further: ids[1:]}
}

// Names are all of them, sorted; none of the zero value.
func (n LeafNames) Names() []string {
	if n.SpiffeID == "" {
		return nil
	}
	return append([]string{n.SpiffeID}, n.Further...)
}

// String joins them.
func (n LeafNames) String() string { return strings.Join(n.Names(), ", ") }

// Same says whether both are the same names.
func (n LeafNames) Same(m LeafNames) bool {
	return n.SpiffeID == m.SpiffeID && slices.Equal(n.Further, m.Further)
}

// Has says whether a name is among them.
func (n LeafNames) Has(id string) bool {
	return id != "" && (id == n.SpiffeID || slices.Contains(n.Further, id))
}

// Cover says whether all of m's are among them. Whoever takes a proxy under m takes it under these as well.
func (n LeafNames) Cover(m LeafNames) bool {
	return !slices.ContainsFunc(m.Names(), func(id string) bool { return !n.Has(id) })
}

// And are those of both.
func (n LeafNames) And(m LeafNames) LeafNames { return NamesOf(append(n.Names(), m.Names()...)...) }

// apart says whether they have no name in common.
func (n LeafNames) apart(m LeafNames) bool { return !slices.ContainsFunc(m.Names(), n.Has) }
