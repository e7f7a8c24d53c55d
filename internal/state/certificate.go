package state

import (
	"hash/fnv"
	"slices"
	"strconv"
	"time"

	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// CertificateTables are the certificates of proxies.
type CertificateTables struct {
	Certificates Rows[kind.DataplaneCertificates]
	// EgressCertificates are the certificates that ZoneEgresses may present, by the mesh of their identity.
	EgressCertificates Rows[kind.DataplaneCertificates]
	// CertificatesByRoot finds the proxies with certificates below a root, by its [RootKey], and all of a [MeshKey].
	CertificatesByRoot table.Index[*resource.Object[kind.DataplaneCertificates]]
	// CertificatesByShard finds the certificates of a [Shard].
	CertificatesByShard table.Index[*resource.Object[kind.DataplaneCertificates]]
	// CertificatesChanging finds the proxies that change their SPIFFE IDs, by their [MeshKey] and by their [Shard].
	CertificatesChanging table.Index[*resource.Object[kind.DataplaneCertificates]]
	// EgressCertificatesByRoot is CertificatesByRoot for ZoneEgresses. EgressCertificatesByName finds them by the
	// ZoneEgress.
	EgressCertificatesByRoot, EgressCertificatesByName table.Index[*resource.Object[kind.DataplaneCertificates]]
	// UnrecordedCertificates are those that were renewed while the store took no writes: one row.
	UnrecordedCertificates Rows[kind.UnrecordedCertificates]
}

func (t *Tables) addCertificate() {
	t.Certificates = addRows(t, kind.DataplaneCertificatesList)
	t.EgressCertificates = addRows(t, kind.ZoneEgressCertificatesList)
	t.CertificatesByRoot = table.NewIndex(t.Certificates, rootKeys)
	t.CertificatesByShard = table.NewIndex(t.Certificates, shardKeys)
	t.CertificatesChanging = table.NewIndex(t.Certificates, movingKeys)
	t.EgressCertificatesByRoot = table.NewIndex(t.EgressCertificates, rootKeys)
	t.EgressCertificatesByName = table.NewIndex(t.EgressCertificates, egressNameKeys)
	t.UnrecordedCertificates = addRows(t, kind.UnrecordedCertificatesList)
}

// ValidUntil returns when the last certificate of a stored one has expired, at the latest: it may have been renewed
// without its record.
func (t *Tables) ValidUntil(r *table.Reader, stored kind.Time) kind.Time {
	unrecorded, ok := t.UnrecordedCertificates.Find(r, "", kind.TheUnrecordedCertificates)
	if ok && unrecorded.Spec.Until.After(stored.Time) {
		return unrecorded.Spec.Until
	}
	return stored
}

// HoldsValid reports whether a proxy may have a valid certificate.
func (t *Tables) HoldsValid(r *table.Reader, certificates *kind.DataplaneCertificates, at time.Time) bool {
	return slices.ContainsFunc(certificates.Certificates, func(c kind.WorkloadCertificate) bool {
		return t.ValidUntil(r, c.Until).After(at)
	})
}

// LongestLife returns the longest lifetime of the certificates that are signed in any mesh.
func (t *Tables) LongestLife() (life time.Duration) {
	for ca := range t.SigningCAs.All(t.DB.Snapshot()) {
		life = max(life, time.Duration(ca.Spec.Life))
	}
	return life
}

// RootKey returns the index key of the certificates below a root, by the root's fingerprint.
func RootKey(mesh, fingerprint string) string { return mesh + "/root/" + fingerprint }

func rootKeys(row *resource.Object[kind.DataplaneCertificates]) []string {
	keys := []string{MeshKey(row.Mesh)}
	seen := map[string]bool{}
	for _, cert := range row.Spec.Certificates {
		if !seen[cert.Root] {
			seen[cert.Root] = true
			keys = append(keys, RootKey(row.Mesh, cert.Root))
		}
	}
	return keys
}

// Shards is the number of parts into which the proxies of a mesh are divided. A value that is computed from all proxies
// and is seldom different after a change of one is derived for each part, so that the change recomputes one part.
const Shards = 256

// Shard is one of the [Shards] of a mesh.
type Shard struct {
	Mesh   string
	Number int // from 0
}

// String returns the index key of the shard.
func (s Shard) String() string { return s.Mesh + "/shard/" + strconv.Itoa(s.Number) }

func shardKeys(row *resource.Object[kind.DataplaneCertificates]) []string {
	return []string{shardOf(row.Mesh, row.Name).String()}
}

func shardOf(mesh, name string) Shard {
	hash := fnv.New32a()
	hash.Write([]byte(name))
	return Shard{mesh, int(hash.Sum32() % Shards)}
}

// movingKeys is the index function of the proxies that wait for other SPIFFE IDs, or have certificates with former
// ones.
func movingKeys(row *resource.Object[kind.DataplaneCertificates]) []string {
	if row.Spec.Next != nil || len(row.Spec.Aliases()) > 0 {
		return []string{MeshKey(row.Mesh), shardOf(row.Mesh, row.Name).String()}
	}
	return nil
}

func egressNameKeys(row *resource.Object[kind.DataplaneCertificates]) []string {
	return []string{row.Name}
}
