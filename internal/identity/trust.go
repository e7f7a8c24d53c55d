package identity

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"weft/internal/pki"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// domains returns the trust domains of the zones of the deployment, over all meshes.
func (s *Stage) domains(r *table.Reader, _ string) *pki.Domains {
	var identities []*resource.Object[kind.MeshIdentity]
	meshes := s.state.MeshNames(r)
	for _, mesh := range meshes {
		identities = append(identities, s.state.IdentitiesByMesh.List(r, state.MeshKey(mesh))...)
	}
	return pki.NewDomains(s.state.Zone, meshes, identities)
}

// distrustReason returns why the roots of a MeshTrust are not trusted here; empty: they are. The owner of the MeshTrust
// decides: its zone must have the trust domain. ([ADR 30].)
func (s *Stage) distrustReason(r *table.Reader, t *resource.Object[kind.MeshTrust]) string {
	owner := s.state.OwnerOf(&t.Meta)
	if s.state.Standalone || owner.Global() {
		return ""
	}
	own := owner.Zone == s.state.Zone
	switch holder := s.Domains.Get(r, "").Holder(t.Spec.TrustDomain); {
	case holder.Zone == owner.Zone:
		return ""
	case holder.Zone != "":
		return fmt.Sprintf("the trust domain %s is of the zone %q, and %s says which roots prove it",
			t.Spec.TrustDomain, holder.Zone, owner)
	case own:
		return "" // for the proxies of this zone alone
	case holder.Shared:
		return fmt.Sprintf(
			"the trust domain %s is of several zones, so that only global says which roots prove it, and %s does",
			t.Spec.TrustDomain, owner)
	}
	// A domain that a zone gives itself is known there and on global, which checked it.
	for _, other := range s.state.TrustsByMesh.List(r, state.MeshKey(t.Mesh)) {
		if other.Spec.TrustDomain == t.Spec.TrustDomain && s.state.OwnerOf(&other.Meta) != owner {
			return fmt.Sprintf("%s says which roots prove the trust domain %s, and so does %s", owner,
				t.Spec.TrustDomain, s.state.OwnerOf(&other.Meta))
		}
	}
	return ""
}

// trust returns the roots that the proxies of a mesh trust; without a mesh, those of all meshes.
func (s *Stage) trust(r *table.Reader, mesh string) *Trust {
	meshes := []string{mesh}
	if mesh == "" {
		meshes = s.state.MeshNames(r)
	}
	roots := map[string][]string{}
	for _, each := range meshes {
		for _, t := range s.state.TrustsByMesh.List(r, state.MeshKey(each)) {
			if s.distrustReason(r, t) != "" {
				continue
			}
			for _, bundle := range t.Spec.CABundles {
				if bundle.PEM != nil {
					roots[t.Spec.TrustDomain] = append(roots[t.Spec.TrustDomain],
						strings.TrimSpace(bundle.PEM.Value)+"\n")
				}
			}
		}
	}
	return trustOf(mesh, roots)
}

// trustOf returns a Trust with sorted roots.
func trustOf(mesh string, roots map[string][]string) *Trust {
	trust := &Trust{Mesh: mesh}
	for domain, pems := range roots {
		slices.Sort(pems)
		trust.Domains = append(trust.Domains, TrustDomain{domain, slices.Compact(pems)})
	}
	slices.SortFunc(trust.Domains, func(a, b TrustDomain) int { return cmp.Compare(a.Name, b.Name) })
	return trust
}

// Distrusted is a MeshTrust whose roots are not trusted because of its owner.
type Distrusted struct {
	Trust  *resource.Object[kind.MeshTrust]
	Reason string
}

// DistrustedIn lists the MeshTrusts of a mesh that have a root which is not trusted because of their owner.
func (s *Stage) DistrustedIn(r *table.Reader, mesh string) (all []Distrusted) {
	trusted := map[string]bool{}
	for _, domain := range s.Trust.Get(r, mesh).Domains {
		for _, root := range pki.Fingerprints(strings.Join(domain.Roots, "")) {
			trusted[domain.Name+" "+root] = true
		}
	}
	for _, t := range s.state.TrustsByMesh.List(r, state.MeshKey(mesh)) {
		reason := s.distrustReason(r, t)
		unknown := func(root string) bool { return !trusted[t.Spec.TrustDomain+" "+root] }
		if reason != "" && slices.ContainsFunc(pki.Roots(&t.Spec), unknown) {
			all = append(all, Distrusted{t, reason})
		}
	}
	return all
}

// mayRename returns whether a zone may state that one workload has several SPIFFE IDs, so that a rule about one applies
// to the others. Each must be of a trust domain that the zone has, or of a shared one that a MeshTrust of the mesh
// proves for it.
func (s *Stage) mayRename(r *table.Reader, mesh, zone string, ids []string) bool {
	if s.state.Standalone || zone == s.state.Zone {
		return true
	}
	return !slices.ContainsFunc(ids, func(id string) bool {
		domain := pki.DomainOf(id)
		holder := s.Domains.Get(r, "").Holder(domain)
		switch {
		case holder.Zone == zone:
			return false
		case holder.Shared:
			return !s.proves(r, mesh, zone, domain, true)
		}
		return holder.Zone != "" || !s.proves(r, mesh, zone, domain, false)
	})
}

// proves returns whether a zone has a MeshTrust of a domain whose roots are trusted: by its own MeshTrust, or for a
// shared domain by one of global or of this zone.
func (s *Stage) proves(r *table.Reader, mesh, zone, domain string, shared bool) bool {
	trusted := map[string]bool{}
	for _, known := range s.Trust.Get(r, mesh).Domains {
		if known.Name == domain {
			for _, root := range pki.Fingerprints(strings.Join(known.Roots, "")) {
				trusted[root] = true
			}
		}
	}
	for _, t := range s.state.TrustsByMesh.List(r, state.MeshKey(mesh)) {
		if t.Spec.TrustDomain != domain || s.state.OwnerOf(&t.Meta) != (kind.Owner{Zone: zone}) {
			continue
		}
		if shared && slices.ContainsFunc(pki.Roots(&t.Spec), func(root string) bool { return trusted[root] }) {
			return true
		}
		if !shared && s.distrustReason(r, t) == "" {
			return true
		}
	}
	return false
}

// DomainOf returns the trust domain of a SPIFFE ID: the text up to the first slash.
func DomainOf(spiffeID string) string {
	domain, _, _ := strings.Cut(strings.TrimPrefix(spiffeID, "spiffe://"), "/")
	return domain
}
