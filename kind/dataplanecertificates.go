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

// DataplaneCertificates are the certificates that a proxy may present: it is stored before a certificate is
// sent to the proxy, so that the row has every certificate that a client may see.
type DataplaneCertificates struct {
	// Certificates are sorted by when they were last signed, the one in use last: one for each pair of names
	// and a root.
	Certificates []WorkloadCertificate `json:"certificates,omitempty"`
	// Next are SPIFFE IDs of which the proxy has no certificate yet.
	Next *NextIdentity `json:"next,omitempty"`
}

// NextIdentity has the SPIFFE IDs that are propagated to clients before a certificate of them is signed.
type NextIdentity struct {
	SpiffeIDs
	MeshIdentity string `json:"meshIdentity"`
	Since        Time   `json:"since"`
	// Accepted says that everybody takes the proxy under these names.
	Accepted bool `json:"accepted,omitempty"`
}

// WorkloadCertificate is all certificates of the same names that lead to one root.
type WorkloadCertificate struct {
	SpiffeIDs
	MeshIdentity string `json:"meshIdentity"`
	// Rests are the facts of the Dataplane (see [Facts]) that the names rest on, by who vouched for them when the last
	// one was signed.
	Rests resource.Vouched `json:"rests,omitzero"`
	// Root is the fingerprint of the root certificate that clients must trust.
	Root string `json:"root"`
	// Until is when the last of them expires.
	Until Time `json:"until"`
}

// DataplaneCertificatesList is the kind of [DataplaneCertificates].
var DataplaneCertificatesList = &resource.Kind[DataplaneCertificates]{
	Info: resource.Info{Name: "DataplaneCertificates", Plural: "dataplane-certificates", Scope: resource.Mesh, ReadOnly: true, Hidden: true},
}

// SpiffeIDs are the SPIFFE IDs under which the proxy is to be taken, sorted: those that it holds leaves of,
// and the next ones.
func (l *DataplaneCertificates) SpiffeIDs() []string {
	var names []string
	for _, set := range l.sets() {
		names = append(names, set.List()...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// sets are the SPIFFE IDs of each certificate, and the next ones.
func (l *DataplaneCertificates) sets() []SpiffeIDs {
	var sets []SpiffeIDs
	for _, certificate := range l.Certificates {
		sets = append(sets, certificate.SpiffeIDs)
	}
	if l.Next != nil {
		sets = append(sets, l.Next.SpiffeIDs)
	}
	return sets
}

// Aliases are pairs of names of which a rule about one holds for the other, sorted: the proxy changes from the
// one to the other. Leaves that share a name are the same workload's with services more or less, and a rule
// about one service says nothing of another.
func (l *DataplaneCertificates) Aliases() [][]string {
	var pairs [][]string
	sets := l.sets()
	for i, one := range sets {
		for _, other := range sets[i+1:] {
			if one.apart(other) {
				pairs = append(pairs, crossed(one.List(), other.List())...)
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

// MaySign reports whether a certificate of these SPIFFE IDs may be signed: the first one of all, one that has all names of
// the one in use, or one of next names that are accepted.
func (l *DataplaneCertificates) MaySign(names SpiffeIDs) bool {
	used := l.InUse()
	return used == nil || names.Cover(used.SpiffeIDs) || l.Next != nil && l.Next.Accepted && l.Next.Same(names)
}

// Announce notes names that the proxy is to have, and says whether they are new.
func (l *DataplaneCertificates) Announce(next NextIdentity) bool {
	used := l.InUse()
	if used == nil || next.Cover(used.SpiffeIDs) || l.Next != nil && l.Next.Same(next.SpiffeIDs) {
		return false
	}
	l.Next = &next
	return true
}

// Add records a certificate before it is sent to the proxy.
func (l *DataplaneCertificates) Add(certificate WorkloadCertificate) {
	if l.Next != nil && l.Next.Same(certificate.SpiffeIDs) {
		l.Next = nil
	}
	kept := make([]WorkloadCertificate, 0, len(l.Certificates)+1)
	for _, held := range l.Certificates {
		switch {
		case !held.Same(certificate.SpiffeIDs) || held.Root != certificate.Root:
			kept = append(kept, held)
		case held.Until.After(certificate.Until.Time):
			certificate.Until = held.Until
		}
	}
	l.Certificates = append(kept, certificate)
}

// InUse is the last certificate that was signed; nil where there was none.
func (l *DataplaneCertificates) InUse() *WorkloadCertificate {
	if len(l.Certificates) == 0 {
		return nil
	}
	return &l.Certificates[len(l.Certificates)-1]
}

// Valid reports whether any certificate is valid at a time.
func (l *DataplaneCertificates) Valid(at time.Time) bool {
	return slices.ContainsFunc(l.Certificates, func(certificate WorkloadCertificate) bool { return certificate.Until.After(at) })
}
