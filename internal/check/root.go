package check

import (
	"maps"
	"slices"
	"strings"
	"time"

	"weft/internal/pki"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

var certificateDistrusted = &Problem{"certificate-distrusted", Error,
	"Add the root to a MeshTrust of the trust domain again, or replace the CA: its new root is trusted before it " +
		"signs."}

// domainRoots are the expiries of the roots of a trust domain, by fingerprint.
type domainRoots map[string]time.Time

func equalRoots(a, b map[string]domainRoots) bool {
	return maps.EqualFunc(a, b, func(a, b domainRoots) bool { return maps.EqualFunc(a, b, time.Time.Equal) })
}

// rootsOf returns the roots of each trust domain of a mesh.
func (s *Stage) rootsOf(r *table.Reader, mesh string) map[string]domainRoots {
	domains := map[string]domainRoots{}
	for _, d := range s.Identity.Trust.Get(r, mesh).Domains {
		domains[d.Name] = pki.Expiries(strings.Join(d.Roots, ""))
	}
	return domains
}

// certificateRoot finds that the certificate of a proxy of this zone is below a root that no MeshTrust of the mesh has,
// or that has expired: every peer rejects it. A trust domain without a root is a finding of its MeshIdentity.
func (l *checker) certificateRoot(row *resource.Object[kind.DataplaneCertificates]) {
	if len(row.Spec.Certificates) == 0 {
		return
	}
	inUse := &row.Spec.Certificates[len(row.Spec.Certificates)-1]
	domain := pki.DomainOf(inUse.SpiffeID)
	roots, trusted := l.roots.Get(l.r, row.Mesh)[domain]
	if !trusted || l.past(l.Tables.ValidUntil(l.r, inUse.Until).Time) {
		return
	}
	identity, text := objectOf(identityKey(row.Mesh, inUse.MeshIdentity)), "no MeshTrust of the trust domain %s has "+
		"the root of the certificates of %s, so every peer rejects them"
	if expires, known := roots[inUse.Root]; known && !l.past(expires) {
		return
	} else if known {
		text = "in the trust domain %s, the root of the certificates of %s has expired, so every peer rejects them"
	}
	l.found(certificateDistrusted, identity, text, domain, observers{}).by = row.Name
}

// identityKey returns the MeshIdentity, or the Mesh whose mtls gives proxies their certificates.
func identityKey(mesh, identity string) resource.Key {
	if identity == kind.MTLSIdentity {
		return kind.Meshes.Key("", mesh)
	}
	return kind.MeshIdentities.Key(mesh, identity)
}

// remoteDomains finds a service of another zone whose servers the proxies of this zone reject: their trust domain has
// no root here.
func (l *checker) remoteDomains(o *resource.Object[kind.MeshService]) {
	if !l.Tables.IsRemote(o) {
		return
	}
	domains := map[string]bool{}
	for _, id := range o.Spec.Identities {
		if domain := pki.DomainOf(id.Value); domain != "" {
			domains[domain] = true
		}
	}
	roots := l.roots.Get(l.r, o.Mesh)
	for _, domain := range slices.Sorted(maps.Keys(domains)) {
		if _, trusted := roots[domain]; !trusted {
			l.found(domainNotTrusted, objectOf(kind.Zones.Key("", l.Tables.ZoneOf(&o.Meta))), "the servers of %s have "+
				"the trust domain %s, which no MeshTrust of the mesh %s has, so the proxies of this zone reject them",
				observers{}, domain, o.Mesh).in(o.Mesh).by = kind.OwnerName(&kind.MeshServices.Info, &o.Meta)
		}
	}
}
