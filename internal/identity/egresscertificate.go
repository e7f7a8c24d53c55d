package identity

import (
	"slices"

	"weft/internal/pki"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// IdentitySecret is the SDS secret that holds the proxy's certificate. The secret of a further identity of a ZoneEgress
// has the suffix "_" and its mesh.
const IdentitySecret = "identity"

// Presentation is one of the identities of a ZoneEgress.
type Presentation struct {
	Secret      string
	Identity    *Identity
	Certificate *NextCertificate // nil: the control plane signs none
}

// Presentations returns all identities that a ZoneEgress presents, the chosen one first. Each further one is of the
// mtls of one mesh.
func (s *Stage) Presentations(r *table.Reader) []Presentation {
	var all []Presentation
	for i, source := range s.EgressChoice.Get(r, s.state.Zone).Sources() {
		id := s.EgressIdentity.Get(r, source)
		if id == nil {
			continue
		}
		p := Presentation{Secret: IdentitySecret, Identity: id, Certificate: s.egressCertificate(r, id)}
		if i > 0 {
			p.Secret += "_" + source.Mesh
		}
		all = append(all, p)
	}
	return all
}

// egressCertificate returns the next certificate of a ZoneEgress. It is wanted at once: its signer waits until the
// proxies of all meshes accept the egress with it.
func (s *Stage) egressCertificate(r *table.Reader, id *Identity) *NextCertificate {
	if id.Problem != "" || id.Source.FromSPIRE() {
		return nil
	}
	cert := &NextCertificate{Mesh: id.Mesh, MeshIdentity: id.MeshIdentity, SpiffeIDs: id.SpiffeIDs}
	source := state.IdentityKey{Mesh: id.Mesh, Name: id.MeshIdentity}
	if a := s.Authority.Get(r, source); a.TrustDomain == id.TrustDomain {
		cert.Authority = a.Fingerprint
	}
	return cert
}

// PresentedTo returns the source of the certificate and of the roots that a ZoneEgress uses for the proxies of a mesh;
// false: they have no identities that both sides trust, so the ZoneEgress does not serve the mesh.
func (s *Stage) PresentedTo(r *table.Reader, egress string, presents []Presentation, mesh string) (Source, bool) {
	on := s.EgressChoice.Get(r, s.state.Zone).IdentityOf(mesh)
	for _, one := range presents {
		if (state.IdentityKey{Mesh: one.Identity.Mesh, Name: one.Identity.MeshIdentity}) != on {
			continue
		}
		from := one.Identity.Source
		switch {
		case from.FromSPIRE():
			return from, s.ofSPIRE(r, mesh, from.TrustDomain)
		case one.Secret == IdentitySecret:
			return Source{RootsOf: mesh}, one.Certificate != nil && s.hasRoots(r, mesh)
		}
		return Source{Certificate: one.Secret, RootsOf: mesh}, s.hasCertificate(r, egress, mesh) && s.hasRoots(r, mesh)
	}
	return Source{}, false
}

// ServesMesh returns whether a ZoneEgress serves the proxies of a mesh.
func (s *Stage) ServesMesh(r *table.Reader, egress, mesh string) bool {
	_, ok := s.PresentedTo(r, egress, s.Presentations(r), mesh)
	return ok
}

// hasRoots returns whether the proxies of a mesh trust any root.
func (s *Stage) hasRoots(r *table.Reader, mesh string) bool {
	return len(s.Trust.Get(r, mesh).Domains) > 0
}

// ofSPIRE returns whether proxies of a mesh have certificates of SPIRE in a trust domain.
func (s *Stage) ofSPIRE(r *table.Reader, mesh, domain string) bool {
	return slices.ContainsFunc(s.state.IdentitiesByMesh.List(r, state.MeshKey(mesh)),
		func(mi *resource.Object[kind.MeshIdentity]) bool {
			_, spire := mi.Spec.SpireAgent()
			given, err := pki.TrustDomain(&mi.Spec, mesh, s.state.Zone)
			return spire && err == nil && given == domain
		})
}

// EgressName is a SPIFFE ID that proxies accept of ZoneEgresses, and the mesh whose roots prove it.
type EgressName struct{ Mesh, SpiffeID string }

// EgressNames returns the SPIFFE IDs that the proxies of a mesh accept of the ZoneEgresses of the zone, sorted. They
// are the wanted one and those of retained certificates. So a new one is accepted before it is presented, and a former
// one until it is no longer presented.
func (s *Stage) EgressNames(r *table.Reader, mesh string) []EgressName {
	choice := s.EgressChoice.Get(r, s.state.Zone)
	on := choice.IdentityOf(mesh)
	var names []EgressName
	own := false
	for _, egress := range s.state.ZoneEgressesByScope.List(r, state.MeshKey("")) {
		if !s.state.IsOwn(&egress.Meta) {
			continue
		}
		own = true
		for _, row := range s.state.EgressCertificatesByName.List(r, egress.Name) {
			_, others := slices.BinarySearch(choice.Own, row.Mesh)
			if row.Mesh != on.Mesh && others {
				continue // it is presented to the proxies of that mesh only
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

// egressTrust returns the roots with which the proxies of a mesh validate the zone's egresses: those of the mesh and
// the ZoneEgresses, whichever authority signs these. (Zone Egress Identity: system_trust_bundle_egress.)
func (s *Stage) egressTrust(r *table.Reader, mesh string) *Trust {
	names := s.EgressNames(r, mesh)
	for _, dp := range s.state.EgressesByMesh.List(r, state.MeshKey(mesh)) {
		if s.state.IsOwn(&dp.Meta) {
			for _, name := range s.Presented.Get(r, state.ProxyKey{Mesh: mesh, Name: dp.Name}) {
				names = append(names, EgressName{mesh, name})
			}
		}
	}
	roots := map[string][]string{}
	for _, name := range names {
		domain := DomainOf(name.SpiffeID)
		for _, trusted := range s.Trust.Get(r, name.Mesh).Domains {
			if trusted.Name == domain {
				roots[domain] = append(roots[domain], trusted.Roots...)
			}
		}
	}
	return trustOf(mesh, roots)
}

// hasCertificate returns whether a ZoneEgress has a certificate of a mesh's identity that it can present.
func (s *Stage) hasCertificate(r *table.Reader, egress, mesh string) bool {
	row, ok := s.state.EgressCertificates.Find(r, mesh, egress)
	return ok && row.Spec.InUse() != nil
}
