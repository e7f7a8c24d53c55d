package graph

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"weft/internal/identity"
	"weft/internal/table"
	"weft/kind"
)

// Source is where a proxy's Envoy has its leaf from, and the roots that it believes. The zero value is the
// agent beside it for the one, and the control plane for the others.
type Source struct {
	// Socket is the path of a SPIRE agent's, on the proxy's machine, which serves both.
	Socket string
	// Timeout is how long a connection to it may take to be made.
	Timeout time.Duration
	// TrustDomain is the one whose roots are believed, with a Socket.
	TrustDomain string
	// Certificate is the secret of the leaf; empty: [IdentitySecret]. RootsOf is the mesh whose roots alone are believed, by
	// the proxy of a ZoneEgress; empty: all that the proxy believes.
	Certificate, RootsOf string
}

// FromSPIRE says whether it is a SPIRE agent.
func (s Source) FromSPIRE() bool { return s.Socket != "" }

// barrier is why a proxy takes none of these for its servers; empty: it does, or has its roots from the control
// plane.
func (s Source) barrier(servers []string) string {
	own := func(id string) bool { return domainOf(id) == s.TrustDomain }
	if !s.FromSPIRE() || len(servers) == 0 || slices.ContainsFunc(servers, own) {
		return ""
	}
	return fmt.Sprintf("its servers are of the trust domain %s, and the proxy trusts only the roots from SPIRE, which are of %s", domainOf(servers[0]), s.TrustDomain)
}

// sourceOf is where proxies of a MeshIdentity have their leaves from, and whom they believe.
func sourceOf(mi *kind.MeshIdentity, domain string) Source {
	agent, ok := mi.SpireAgent()
	if !ok {
		return Source{}
	}
	return Source{Socket: agent.SocketPath, Timeout: time.Duration(agent.Timeout), TrustDomain: domain}
}

// believed are the trust domains that a proxy of a mesh believes, sorted.
func (s *State) believed(r *table.Reader, mesh string, from Source) []string {
	if from.FromSPIRE() {
		return []string{from.TrustDomain}
	}
	var domains []string
	for _, domain := range s.Trust.Get(r, mesh).Domains {
		domains = append(domains, domain.Name)
	}
	return domains
}

// signedHere stands for every provider whose roots a MeshTrust joins.
const signedHere = "the control plane"

// issuers are where certificates of a mesh come from, in words, as far as proxies with those of one do not
// refuse those of another: SPIRE's trust domains, and all that the control plane joins in MeshTrusts.
// (Zone Egress Identity.)
func (s *State) issuers(r *table.Reader, mesh string) (names []string, spire bool) {
	all := map[string]bool{}
	for _, mi := range s.IdentitiesByMesh.List(r, MeshKey(mesh)) {
		if _, ok := mi.Spec.SpireAgent(); !ok {
			all[signedHere] = true
			continue
		}
		domain, _ := identity.TrustDomain(&mi.Spec, mesh, s.Zone) // one that can't be told is a kind of its own
		all[spireOf(domain)], spire = true, true
	}
	if m, ok := s.Meshes.Find(r, "", mesh); ok && m.Spec.MTLS.Enabled() != nil {
		all[signedHere] = true
	}
	return slices.Sorted(maps.Keys(all)), spire
}

func spireOf(domain string) string { return fmt.Sprintf("SPIRE of the trust domain %q", domain) }

// StrangersToEgresses are the meshes, sorted, of which some proxies and the zone's ZoneEgresses refuse each other:
// the certificates of one side come from SPIRE, and those of the other do not. (Zone Egress Identity.)
func (s *State) StrangersToEgresses(r *table.Reader) []string {
	choice := s.EgressChoice.Get(r, s.Zone)
	return slices.DeleteFunc(s.MeshNames(r), func(mesh string) bool {
		id := s.EgressIdentity.Get(r, choice.On(mesh))
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

// MixedIssuers are where the certificates of a mesh come from, in words, where proxies with those of one refuse
// those of another: SPIRE's roots can't be joined with others. None where all go together.
func (s *State) MixedIssuers(r *table.Reader, mesh string) []string {
	if names, spire := s.issuers(r, mesh); spire && len(names) > 1 {
		return names
	}
	return nil
}

// AllFromSPIRE says whether all certificates of a mesh are SPIRE's, so that its MeshTrusts are of no use.
func (s *State) AllFromSPIRE(r *table.Reader, mesh string) bool {
	names, spire := s.issuers(r, mesh)
	return spire && !slices.Contains(names, signedHere)
}
