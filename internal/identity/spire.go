package identity

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"weft/internal/pki"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
)

// sourceOf returns the source of the certificates and roots for proxies of a MeshIdentity.
func (s *Stage) sourceOf(mi *kind.MeshIdentity, domain string) Source {
	agent, ok := mi.SpireAgent()
	if !ok {
		return Source{}
	}
	socket := cmp.Or(agent.SocketPath, s.state.SpireSocket, kind.SpireSocket)
	return Source{Socket: socket, Timeout: time.Duration(agent.Timeout), TrustDomain: domain}
}

// TrustedDomains returns the trust domains that a proxy of a mesh trusts, sorted.
func (s *Stage) TrustedDomains(r *table.Reader, mesh string, from Source) []string {
	if from.FromSPIRE() {
		return []string{from.TrustDomain}
	}
	var domains []string
	for _, domain := range s.Trust.Get(r, mesh).Domains {
		domains = append(domains, domain.Name)
	}
	return domains
}

// signedHere represents every provider whose roots a MeshTrust joins.
const signedHere = "the control plane"

// issuers returns the issuers of a mesh's certificates, as texts. Proxies with certificates of one issuer reject those
// of another. Issuers are SPIRE's trust domains, and the control plane for all that are joined in MeshTrusts. (Zone
// Egress Identity.)
func (s *Stage) issuers(r *table.Reader, mesh string) (names []string, spire bool) {
	all := map[string]bool{}
	for _, mi := range s.state.IdentitiesByMesh.List(r, state.MeshKey(mesh)) {
		if _, ok := mi.Spec.SpireAgent(); !ok {
			all[signedHere] = true
			continue
		}
		domain, _ := pki.TrustDomain(&mi.Spec, mesh, s.state.Zone) // an unknown domain is an issuer of its own
		all[spireOf(domain)], spire = true, true
	}
	if m, ok := s.state.Meshes.Find(r, "", mesh); ok && m.Spec.MTLS.SigningBackend() != nil {
		all[signedHere] = true
	}
	return slices.Sorted(maps.Keys(all)), spire
}

func spireOf(domain string) string { return fmt.Sprintf("SPIRE of the trust domain %q", domain) }

// MeshesWithoutEgressTrust returns the meshes, sorted, of which some proxies and the zone's ZoneEgresses reject each
// other: the certificates of one side come from SPIRE, and those of the other do not. (Zone Egress Identity.)
func (s *Stage) MeshesWithoutEgressTrust(r *table.Reader) []string {
	choice := s.EgressChoice.Get(r, s.state.Zone)
	return slices.DeleteFunc(s.state.MeshNames(r), func(mesh string) bool {
		id := s.EgressIdentity.Get(r, choice.IdentityOf(mesh))
		if id == nil {
			return true
		}
		issuer := signedHere
		if id.Source.FromSPIRE() {
			issuer = spireOf(id.TrustDomain)
		}
		issuers, _ := s.issuers(r, mesh)
		return !slices.ContainsFunc(issuers, func(other string) bool { return other != issuer })
	})
}

// MixedIssuers returns the issuers of a mesh's certificates, as texts, where proxies with certificates of one reject
// those of another: SPIRE's roots can't be joined with others. It is empty where all proxies trust each other.
func (s *Stage) MixedIssuers(r *table.Reader, mesh string) []string {
	if names, spire := s.issuers(r, mesh); spire && len(names) > 1 {
		return names
	}
	return nil
}

// AllFromSPIRE returns whether all certificates of a mesh are SPIRE's, so that its MeshTrusts have no effect.
func (s *Stage) AllFromSPIRE(r *table.Reader, mesh string) bool {
	names, spire := s.issuers(r, mesh)
	return spire && !slices.Contains(names, signedHere)
}
