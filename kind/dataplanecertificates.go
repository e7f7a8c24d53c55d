package kind

import (
	"slices"

	"weft/resource"
)

// MTLSIdentity takes the place of a MeshIdentity's name for the mtls of a mesh. No MeshIdentity has this name.
const MTLSIdentity = "mesh.mtls"

// IdentitySource returns a description of the source of identities: a MeshIdentity, by its name, or [MTLSIdentity].
func IdentitySource(mesh, meshIdentity string) string {
	if meshIdentity == MTLSIdentity {
		return "the mtls of " + Meshes.Key("", mesh).String()
	}
	return MeshIdentities.Key(mesh, meshIdentity).String()
}

// DataplaneCertificates are the certificates that a proxy may present. A certificate is stored here before the proxy
// gets it, so the row has every certificate that a client may see.
type DataplaneCertificates struct {
	// Certificates are sorted by the time of their last signature, so the one in use is last. Each set of SPIFFE IDs
	// has one for each root.
	Certificates []WorkloadCertificate `json:"certificates,omitempty"`
	// Next are SPIFFE IDs of which the proxy has no certificate yet.
	Next *NextIdentity `json:"next,omitempty"`
}

// NextIdentity has SPIFFE IDs that are propagated to clients before a certificate with them is signed.
type NextIdentity struct {
	SpiffeIDs
	MeshIdentity string `json:"meshIdentity"`
	Since        Time   `json:"since"`
	// Accepted states that all clients accept the proxy with these SPIFFE IDs.
	Accepted bool `json:"accepted,omitempty"`
}

// WorkloadCertificate stands for all certificates with the same SPIFFE IDs and root.
type WorkloadCertificate struct {
	SpiffeIDs
	MeshIdentity string `json:"meshIdentity"`
	// RestsOn are the facts of the Dataplane (see [Facts]) that the SPIFFE IDs rest on, by who vouched for them at the
	// last signature.
	RestsOn resource.Vouched `json:"restsOn,omitzero"`
	// Root is the fingerprint of the root certificate that clients must trust.
	Root string `json:"root"`
	// Until is the expiry of the last certificate.
	Until Time `json:"until"`
}

// DataplaneCertificatesList is the kind of [DataplaneCertificates].
var DataplaneCertificatesList = &resource.Kind[DataplaneCertificates]{
	Info: resource.Info{Name: "DataplaneCertificates", Plural: "dataplane-certificates", Scope: resource.Mesh,
		ReadOnly: true, Hidden: true},
}

// SpiffeIDs returns the sorted SPIFFE IDs with which clients accept the proxy: those of its certificates, and the next
// ones.
func (l *DataplaneCertificates) SpiffeIDs() []string {
	var names []string
	for _, set := range l.sets() {
		names = append(names, set.List()...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// sets returns the SPIFFE IDs of each certificate, and the next ones.
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

// Aliases returns sorted pairs of SPIFFE IDs between which the proxy changes. A rule for one of a pair applies to the
// other. Certificates with a common SPIFFE ID differ only by services, and a rule for one service does not apply to
// another.
func (l *DataplaneCertificates) Aliases() [][]string {
	var pairs [][]string
	sets := l.sets()
	for i, one := range sets {
		for _, other := range sets[i+1:] {
			if one.isDisjoint(other) {
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

// MaySign reports whether a certificate with these SPIFFE IDs may be signed: the first certificate of the proxy, one
// with all SPIFFE IDs of the one in use, or one with next SPIFFE IDs that clients accept.
func (l *DataplaneCertificates) MaySign(names SpiffeIDs) bool {
	used := l.InUse()
	return used == nil || names.Covers(used.SpiffeIDs) || l.Next != nil && l.Next.Accepted && l.Next.Equal(names)
}

// SetNext records the next SPIFFE IDs of the proxy, and reports whether they are new.
func (l *DataplaneCertificates) SetNext(next NextIdentity) bool {
	used := l.InUse()
	if used == nil || next.Covers(used.SpiffeIDs) || l.Next != nil && l.Next.Equal(next.SpiffeIDs) {
		return false
	}
	l.Next = &next
	return true
}

// Add records a certificate before it is sent to the proxy.
func (l *DataplaneCertificates) Add(certificate WorkloadCertificate) {
	if l.Next != nil && l.Next.Equal(certificate.SpiffeIDs) {
		l.Next = nil
	}
	kept := make([]WorkloadCertificate, 0, len(l.Certificates)+1)
	for _, held := range l.Certificates {
		switch {
		case !held.Equal(certificate.SpiffeIDs) || held.Root != certificate.Root:
			kept = append(kept, held)
		case held.Until.After(certificate.Until.Time):
			certificate.Until = held.Until
		}
	}
	l.Certificates = append(kept, certificate)
}

// Holds reports whether the row has a certificate with the same SPIFFE IDs and root.
func (l *DataplaneCertificates) Holds(certificate WorkloadCertificate) bool {
	return slices.ContainsFunc(l.Certificates, func(c WorkloadCertificate) bool {
		return c.Equal(certificate.SpiffeIDs) && c.Root == certificate.Root
	})
}

// InUse returns the last signed certificate, or nil.
func (l *DataplaneCertificates) InUse() *WorkloadCertificate {
	if len(l.Certificates) == 0 {
		return nil
	}
	return &l.Certificates[len(l.Certificates)-1]
}
