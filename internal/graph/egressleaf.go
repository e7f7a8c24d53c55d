package graph

import (
	"slices"

	"weft/internal/identity"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// IdentitySecret is the secret by which a proxy's Envoy has its leaf. That of a further identity of a ZoneEgress
// ends with the mesh whose it is.
const IdentitySecret = "identity"

// Presentation is one of the identities of a ZoneEgress.
type Presentation struct {
	Secret      string
	Identity    *Identity
	Certificate *NextCertificate // nil: it is to have none from here
}

// presentations are all that a ZoneEgress presents, the chosen one first; the others are of the mtls of one mesh
// each.
func (s *State) presentations(r *table.Reader) []Presentation {
	var all []Presentation
	for i, source := range s.EgressChoice.Get(r, s.Zone).Sources() {
		id := s.EgressIdentity.Get(r, source)
		if id == nil {
			continue
		}
		p := Presentation{Secret: IdentitySecret, Identity: id, Certificate: s.egressLeaf(r, id)}
		if i > 0 {
			p.Secret += "_" + source.Mesh
		}
		all = append(all, p)
	}
	return all
}

// egressLeaf is what the next certificate of a ZoneEgress says. It is wanted at once: whoever signs it waits until
// the proxies of all meshes take the egress under it.
func (s *State) egressLeaf(r *table.Reader, id *Identity) *NextCertificate {
	if id.Problem != "" || id.Source.FromSPIRE() {
		return nil
	}
	leaf := &NextCertificate{Mesh: id.Mesh, MeshIdentity: id.MeshIdentity, SpiffeIDs: id.SpiffeIDs}
	if a := s.Authority.Get(r, IdentityKey{id.Mesh, id.MeshIdentity}); a.TrustDomain == id.TrustDomain {
		leaf.Authority = a.Fingerprint
	}
	return leaf
}

// shownTo is where a ZoneEgress has the leaf and the roots from for the proxies of a mesh; false: there is nothing by
// which these and it could believe each other, so that it does not serve them.
func (s *State) shownTo(r *table.Reader, egress string, presents []Presentation, mesh string) (Source, bool) {
	on := s.EgressChoice.Get(r, s.Zone).On(mesh)
	for _, one := range presents {
		if (IdentityKey{one.Identity.Mesh, one.Identity.MeshIdentity}) != on {
			continue
		}
		from := one.Identity.Source
		switch {
		case from.FromSPIRE():
			return from, s.ofSPIRE(r, mesh, from.TrustDomain)
		case one.Secret == IdentitySecret:
			return Source{RootsOf: mesh}, one.Certificate != nil && s.believes(r, mesh)
		}
		return Source{Certificate: one.Secret, RootsOf: mesh}, s.holdsLeaf(r, egress, mesh) && s.believes(r, mesh)
	}
	return Source{}, false
}

// serves says whether a ZoneEgress serves the proxies of a mesh.
func (s *State) serves(r *table.Reader, egress, mesh string) bool {
	_, ok := s.shownTo(r, egress, s.presentations(r), mesh)
	return ok
}

// believes says whether the proxies of a mesh have any root to believe.
func (s *State) believes(r *table.Reader, mesh string) bool {
	return len(s.Trust.Get(r, mesh).Domains) > 0
}

// ofSPIRE says whether proxies of a mesh have certificates of SPIRE's, of a trust domain.
func (s *State) ofSPIRE(r *table.Reader, mesh, domain string) bool {
	return slices.ContainsFunc(s.IdentitiesByMesh.List(r, MeshKey(mesh)), func(mi *resource.Object[kind.MeshIdentity]) bool {
		_, spire := mi.Spec.SpireAgent()
		given, err := identity.TrustDomain(&mi.Spec, mesh, s.Zone)
		return spire && err == nil && given == domain
	})
}

// EgressName is a name under which ZoneEgresses are to be taken, and the mesh whose roots prove it.
type EgressName struct{ Mesh, SpiffeID string }

// egressNames are those under which the proxies of a mesh take the ZoneEgresses of the zone, sorted: the wanted one
// and those of leaves that they hold, so that a new one is taken before it is shown, and the former one until it
// is shown no more.
func (s *State) egressNames(r *table.Reader, mesh string) []EgressName {
	choice := s.EgressChoice.Get(r, s.Zone)
	on := choice.On(mesh)
	var names []EgressName
	own := false
	for _, egress := range s.ZoneEgressesByScope.List(r, MeshKey("")) {
		if !s.isOwn(&egress.Meta) {
			continue
		}
		own = true
		for _, row := range s.EgressCertificatesByName.List(r, egress.Name) {
			_, others := slices.BinarySearch(choice.Own, row.Mesh)
			if row.Mesh != on.Mesh && others {
				continue // it is shown to the proxies of that mesh alone
			}
			for _, name := range row.Spec.SpiffeIDs() {
				names = append(names, EgressName{row.Mesh, name})
			}
		}
	}
	if id := s.EgressIdentity.Get(r, on); own && id != nil {
		for _, name := range id.List() {
			names = append(names, EgressName{on.Mesh, name})
		}
	}
	slices.SortFunc(names, func(a, b EgressName) int {
		return slices.Compare([]string{a.Mesh, a.SpiffeID}, []string{b.Mesh, b.SpiffeID})
	})
	return slices.Compact(names)
}

// egressTrust are the roots by which the proxies of a mesh know the zone's egresses, those of the mesh and the
// ZoneEgresses, whichever authority signs these. (Zone Egress Identity: system_trust_bundle_egress.)
func (s *State) egressTrust(r *table.Reader, mesh string) *Trust {
	names := s.egressNames(r, mesh)
	for _, dp := range s.EgressesByMesh.List(r, MeshKey(mesh)) {
		if s.isOwn(&dp.Meta) {
			for _, name := range s.Presented.Get(r, ProxyKey{Mesh: mesh, Name: dp.Name}) {
				names = append(names, EgressName{mesh, name})
			}
		}
	}
	roots := map[string][]string{}
	for _, name := range names {
		domain := domainOf(name.SpiffeID)
		for _, believed := range s.Trust.Get(r, name.Mesh).Domains {
			if believed.Name == domain {
				roots[domain] = append(roots[domain], believed.Roots...)
			}
		}
	}
	return trustOf(mesh, roots)
}

func egressNameKeys(row *resource.Object[kind.DataplaneCertificates]) []string {
	return []string{row.Name}
}

// holdsLeaf says whether a ZoneEgress has had a certificate of a mesh's identity, which it can present.
func (s *State) holdsLeaf(r *table.Reader, egress, mesh string) bool {
	row, ok := s.EgressCertificates.Find(r, mesh, egress)
	return ok && row.Spec.InUse() != nil
}
