package kind

import (
	"slices"
	"time"

	"weft/resource"
)

// MTLSIdentity stands where else the name of a MeshIdentity does, for the mtls of the mesh. No MeshIdentity has
// this name.
const MTLSIdentity = "mesh.mtls"

// IdentitySource says in words what gives proxies of a mesh their identities: a MeshIdentity, by its name, or
// [MTLSIdentity].
func IdentitySource(mesh, meshIdentity string) string {
	if meshIdentity == MTLSIdentity {
		return "the mtls of " + Meshes.Key("", mesh).String()
	}
	return MeshIdentities.Key(mesh, meshIdentity).String()
}

// DataplaneLeaves are the certificates that a proxy may present: it is stored before a certificate is
// handed out, so that nothing is forgotten that somebody may still be shown.
type DataplaneLeaves struct {
	// Leaves are sorted by when they were last signed, the one in use last: one for each pair of names
	// and a root.
	Leaves []HeldLeaf `json:"leaves,omitempty"`
	// Next are names of which the proxy has no leaf yet.
	Next *NextName `json:"next,omitempty"`
}

// NextName is what others are being told of, so that a leaf of these names can be signed.
type NextName struct {
	LeafNames
	MeshIdentity string `json:"meshIdentity"`
	Since        Time   `json:"since"`
	// Accepted says that everybody takes the proxy under these names.
	Accepted bool `json:"accepted,omitempty"`
}

// HeldLeaf is all certificates of the same names that lead to one root.
type HeldLeaf struct {
	LeafNames
	MeshIdentity string `json:"meshIdentity"`
	// Rests are the facts of the Dataplane (see [Facts]) that the names rest on, by who vouched for them when the last
	// one was signed.
	Rests resource.Vouched `json:"rests,omitzero"`
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
// and the next ones.
func (l *DataplaneLeaves) Names() []string {
	var names []string
	for _, set := range l.sets() {
		names = append(names, set.Names()...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// sets are the names of each leaf, and the next ones.
func (l *DataplaneLeaves) sets() []LeafNames {
	var sets []LeafNames
	for _, leaf := range l.Leaves {
		sets = append(sets, leaf.LeafNames)
	}
	if l.Next != nil {
		sets = append(sets, l.Next.LeafNames)
	}
	return sets
}

// Aliases are pairs of names of which a rule about one holds for the other, sorted: the proxy changes from the
// one to the other. Leaves that share a name are the same workload's with services more or less, and a rule
// about one service says nothing of another.
func (l *DataplaneLeaves) Aliases() [][]string {
	var pairs [][]string
	sets := l.sets()
	for i, one := range sets {
		for _, other := range sets[i+1:] {
			if one.apart(other) {
				pairs = append(pairs, crossed(one.Names(), other.Names())...)
			}
		}
	}
	slices.SortFunc(pairs, slices.Compare)
	return slices.CompactFunc(pairs, slices.Equal)
}

func crossed(left, right []string) [][]string {
	var pairs [][]string
	for _, a := range left {
		for _, b := range right {
			pairs = append(pairs, []string{min(a, b), max(a, b)})
		}
	}
	return pairs
}

// MaySign says whether a leaf of names may be handed out: the first one of all, one that has all names of
// the one in use, or one of next names that are accepted.
func (l *DataplaneLeaves) MaySign(names LeafNames) bool {
	used := l.InUse()
	return used == nil || names.Cover(used.LeafNames) || l.Next != nil && l.Next.Accepted && l.Next.Same(names)
}

// Announce notes names that the proxy is to have, and says whether they are new.
func (l *DataplaneLeaves) Announce(next NextName) bool {
	used := l.InUse()
	if used == nil || next.Cover(used.LeafNames) || l.Next != nil && l.Next.Same(next.LeafNames) {
		return false
	}
	l.Next = &next
	return true
}

// Add notes a leaf that is about to be handed out.
func (l *DataplaneLeaves) Add(leaf HeldLeaf) {
	if l.Next != nil && l.Next.Same(leaf.LeafNames) {
		l.Next = nil
	}
	kept := make([]HeldLeaf, 0, len(l.Leaves)+1)
	for _, held := range l.Leaves {
		switch {
		case !held.Same(leaf.LeafNames) || held.Root != leaf.Root:
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
