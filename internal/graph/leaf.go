package graph

import (
	"slices"
	"time"

	"weft/internal/match"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// ConnectionLife is how long proxies keep a pooled connection of requests. What a proxy has proven on one
// counts for as long, whatever it would prove now.
const ConnectionLife = 10 * time.Minute

// RootKey is the index key of the leaves that lead to a root, by its fingerprint.
func RootKey(mesh, fingerprint string) string { return mesh + "/root/" + fingerprint }

func rootKeys(row *resource.Object[kind.DataplaneCertificates]) []string {
	keys := []string{MeshKey(row.Mesh)}
	seen := map[string]bool{}
	for _, leaf := range row.Spec.Certificates {
		if !seen[leaf.Root] {
			seen[leaf.Root] = true
			keys = append(keys, RootKey(row.Mesh, leaf.Root))
		}
	}
	return keys
}

// Holders are the leaves of whatever proxies that lead to a root of a mesh.
func (s *State) Holders(r *table.Reader, mesh, fingerprint string) []*resource.Object[kind.DataplaneCertificates] {
	key := RootKey(mesh, fingerprint)
	return slices.Concat(s.CertificatesByRoot.List(r, key), s.EgressCertificatesByRoot.List(r, key))
}

// authority stands between a CA and those whom it signs for, so that its rotation wakes them once.
func (s *State) authority(r *table.Reader, key IdentityKey) Authority {
	if ca, ok := s.SigningCAs.Find(r, key.Mesh, key.Name); ok {
		return Authority{ca.Spec.Fingerprint, ca.Spec.TrustDomain}
	}
	return Authority{}
}

// leaf is what the next certificate of a proxy says; nil where it is to have none from here. A proxy that holds a
// leaf goes on under its names, signed by whoever signed for it, until everybody takes it under those that
// are wanted and somebody signs for them.
func (s *State) leaf(r *table.Reader, key ProxyKey, wanted *Identity) *NextCertificate {
	if wanted == nil || wanted.Source.FromSPIRE() {
		return nil
	}
	next := &NextCertificate{MeshIdentity: wanted.MeshIdentity, SpiffeIDs: wanted.SpiffeIDs, Rests: wanted.Rests}
	if a := s.Authority.Get(r, IdentityKey{key.Mesh, wanted.MeshIdentity}); a.TrustDomain == wanted.TrustDomain {
		next.Authority = a.Fingerprint
	}
	row, ok := s.Certificates.Find(r, key.Mesh, key.Name)
	switch {
	case ok && row.Spec.InUse() != nil:
	case wanted.Problem != "":
		return nil
	default:
		return next
	}
	if wanted.Problem == "" && next.Authority != "" && row.Spec.MaySign(wanted.SpiffeIDs) {
		return next
	}
	used := row.Spec.InUse()
	names, rests := meanwhile(used, wanted)
	return &NextCertificate{
		MeshIdentity: used.MeshIdentity, SpiffeIDs: names, Rests: rests,
		Authority: s.Authority.Get(r, IdentityKey{key.Mesh, used.MeshIdentity}).Fingerprint,
	}
}

// meanwhile are the names of a proxy until it may have the wanted ones, and what they rest on. Under the mtls of a mesh, where a
// certificate has several, new ones come at once, and those that go stay until nobody asks for them.
func meanwhile(used *kind.WorkloadCertificate, wanted *Identity) (kind.SpiffeIDs, resource.Vouched) {
	if wanted.joins(used) {
		return used.And(wanted.SpiffeIDs), used.Rests.And(wanted.Rests)
	}
	return used.SpiffeIDs, used.Rests
}

// joins says whether the names stand beside those of a leaf that the proxy holds.
func (id *Identity) joins(used *kind.WorkloadCertificate) bool {
	return id.MeshIdentity == kind.MTLSIdentity && used.MeshIdentity == kind.MTLSIdentity && id.Problem == ""
}

// presented are the names under which a proxy is to be taken, sorted; none for a plain one. What SPIRE signs is
// not known here, so that the wanted name counts from the beginning.
func (s *State) presented(r *table.Reader, key ProxyKey) []string {
	wanted := s.Identity.Get(r, key)
	if wanted == nil {
		return nil
	}
	var names []string
	atOnce := wanted.Source.FromSPIRE()
	if row, ok := s.Certificates.Find(r, key.Mesh, key.Name); ok && row.Spec.InUse() != nil {
		names, atOnce = row.Spec.SpiffeIDs(), atOnce || wanted.joins(row.Spec.InUse())
	}
	if len(names) == 0 || atOnce {
		names = append(names, wanted.List()...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// serviceNames are those of the names under which a proxy is to be taken that name its services.
func (s *State) serviceNames(r *table.Reader, key ProxyKey) []string {
	var names []string
	if wanted := s.Identity.Get(r, key); wanted != nil && wanted.MeshIdentity == kind.MTLSIdentity {
		names = wanted.List()
	}
	if row, ok := s.Certificates.Find(r, key.Mesh, key.Name); ok {
		for _, leaf := range row.Spec.Certificates {
			if leaf.MeshIdentity == kind.MTLSIdentity {
				names = append(names, leaf.List()...)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (s *State) moving(r *table.Reader, key ProxyKey) kind.SpiffeIDs {
	row, ok := s.Certificates.Find(r, key.Mesh, key.Name)
	if !ok {
		return kind.SpiffeIDs{}
	}
	wanted, used := s.Identity.Get(r, key), row.Spec.InUse()
	if wanted == nil || wanted.Problem != "" || wanted.Source.FromSPIRE() || used == nil || wanted.Cover(used.SpiffeIDs) {
		return kind.SpiffeIDs{}
	}
	return wanted.SpiffeIDs
}

// Announce answers the leaves of a proxy with the names that it is to have next, or none; nil where they say
// so already.
func (s *State) Announce(r *table.Reader, key ProxyKey, now time.Time) *resource.Object[kind.DataplaneCertificates] {
	row, ok := s.Certificates.Find(r, key.Mesh, key.Name)
	if !ok {
		return nil
	}
	names, said := s.Moving.Get(r, key), kind.SpiffeIDs{}
	if row.Spec.Next != nil {
		said = row.Spec.Next.SpiffeIDs
	}
	if names.Same(said) {
		return nil
	}
	announced := *row
	announced.Spec.Next = nil
	if names.SpiffeID != "" {
		announced.Spec.Next = &kind.NextIdentity{SpiffeIDs: names, MeshIdentity: s.Identity.Get(r, key).MeshIdentity, Since: kind.Time{Time: now}}
	}
	return &announced
}

// movingKeys finds the proxies that are to have other names, or hold leaves of former ones.
func movingKeys(row *resource.Object[kind.DataplaneCertificates]) []string {
	if row.Spec.Next != nil || len(row.Spec.Aliases()) > 0 {
		return []string{MeshKey(row.Mesh)}
	}
	return nil
}

// callers names a part of a mesh's callers, as a rule does.
type callers struct{ mesh, exact, prefix string }

// also are the names that a rule does not name, of workloads that have a name which it does: while a
// workload changes its name, a rule about the one holds for the other, in whatever zone it is.
func (s *State) also(r *table.Reader, rule callers) []string {
	named := match.Rule{Exact: rule.exact, Prefix: rule.prefix}
	var others []string
	also := func(names []string) {
		if slices.ContainsFunc(names, named.Matches) {
			others = append(others, slices.DeleteFunc(slices.Clone(names), named.Matches)...)
		}
	}
	for _, row := range s.CertificatesChanging.List(r, MeshKey(rule.mesh)) {
		for _, pair := range row.Spec.Aliases() {
			also(pair)
		}
	}
	for _, zone := range s.ChangingIdentitiesByMesh.List(r, MeshKey(rule.mesh)) {
		for _, names := range zone.Spec.Workloads {
			if s.mayRename(r, rule.mesh, s.ownerOf(&zone.Meta).Zone, names) {
				also(names)
			}
		}
	}
	slices.Sort(others)
	return slices.Compact(others)
}

// permissions are the joined rules of a section of a proxy.
func (s *State) permissions(r *table.Reader, dp *resource.Object[kind.Dataplane], section string) *match.Permissions {
	joined := match.Permit(s.PermissionByMesh.List(r, MeshKey(dp.Mesh)), &dp.Meta, section)
	s.holdAlso(r, dp.Mesh, joined)
	return joined
}

// holdAlso extends rules to the further names for which they hold.
func (s *State) holdAlso(r *table.Reader, mesh string, p *match.Permissions) {
	for _, rules := range [][]match.Rule{p.Deny, p.ShadowDeny, p.Allow} {
		for i := range rules {
			rules[i].Also = s.Also.Get(r, callers{mesh, rules[i].Exact, rules[i].Prefix})
		}
	}
}
