package kind

import (
	"slices"
	"time"

	"weft/resource"
)

// DataplaneLeaves are the certificates that a proxy may present: it is stored before a certificate is
// handed out, so that nothing is forgotten that somebody may still be shown.
type DataplaneLeaves struct {
	// Leaves are sorted by when they were last signed, the one in use last: one for each pair of a name
	// and a root.
	Leaves []HeldLeaf `json:"leaves,omitempty"`
}

// HeldLeaf is all certificates of one name that lead to one root.
type HeldLeaf struct {
	SpiffeID     string `json:"spiffeID"`
	MeshIdentity string `json:"meshIdentity"`
	// Root is the fingerprint of the certificate that one must believe.
	Root string `json:"root"`
	// Until is when the last of them expires.
	Until Time `json:"until"`
}

// DataplaneLeavesList is the kind of [DataplaneLeaves].
var DataplaneLeavesList = &resource.Kind[DataplaneLeaves]{
	Info: resource.Info{Name: "DataplaneLeaves", Plural: "dataplane-leaves", Scope: resource.Mesh, ReadOnly: true, Hidden: true},
}

// Add notes a leaf that is about to be handed out.
func (l *DataplaneLeaves) Add(leaf HeldLeaf) {
	kept := make([]HeldLeaf, 0, len(l.Leaves)+1)
	for _, held := range l.Leaves {
		switch {
		case held.SpiffeID != leaf.SpiffeID || held.Root != leaf.Root:
			kept = append(kept, held)
		case held.Until.After(leaf.Until.Time):
			leaf.Until = held.Until
		}
	}
	l.Leaves = append(kept, leaf)
}

// InUse is the last leaf that was signed; nil where there was none.
func (l *DataplaneLeaves) InUse() *HeldLeaf {
	if len(l.Leaves) == 0 {
		return nil
	}
	return &l.Leaves[len(l.Leaves)-1]
}

// Valid says whether any leaf is valid at a time.
func (l *DataplaneLeaves) Valid(at time.Time) bool {
	return slices.ContainsFunc(l.Leaves, func(leaf HeldLeaf) bool { return leaf.Until.After(at) })
}
