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
	// Next is a name of which the proxy has no leaf yet.
	Next *NextName `json:"next,omitempty"`
}

// NextName is a name that others are being told of, so that a leaf of it can be signed.
type NextName struct {
	SpiffeID     string `json:"spiffeID"`
	MeshIdentity string `json:"meshIdentity"`
	Since        Time   `json:"since"`
	// Accepted says that everybody takes the proxy under this name.
	Accepted bool `json:"accepted,omitempty"`
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

// Names are the SPIFFE IDs under which the proxy is to be taken, sorted: those that it holds leaves of,
// and the next one.
func (l *DataplaneLeaves) Names() []string {
	var names []string
	for _, leaf := range l.Leaves {
		names = append(names, leaf.SpiffeID)
	}
	if l.Next != nil {
		names = append(names, l.Next.SpiffeID)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// MaySign says whether a leaf of a name may be handed out: the first one of all, one of the name in use, or
// one of a next name that is accepted.
func (l *DataplaneLeaves) MaySign(name string) bool {
	used := l.InUse()
	return used == nil || used.SpiffeID == name || l.Next != nil && l.Next.Accepted && l.Next.SpiffeID == name
}

// Announce notes a name that the proxy is to have, and says whether it is new.
func (l *DataplaneLeaves) Announce(next NextName) bool {
	used := l.InUse()
	if used == nil || used.SpiffeID == next.SpiffeID || l.Next != nil && l.Next.SpiffeID == next.SpiffeID {
		return false
	}
	l.Next = &next
	return true
}

// Add notes a leaf that is about to be handed out.
func (l *DataplaneLeaves) Add(leaf HeldLeaf) {
	if l.Next != nil && l.Next.SpiffeID == leaf.SpiffeID {
		l.Next = nil
	}
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
