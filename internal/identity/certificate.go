package identity

import (
	"slices"
	"time"

	"weft/internal/match"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// Holders returns the certificates of all proxies below a root of a mesh.
func (s *Stage) Holders(r *table.Reader, mesh, fingerprint string) []*resource.Object[kind.DataplaneCertificates] {
	key := state.RootKey(mesh, fingerprint)
	return slices.Concat(s.state.CertificatesByRoot.List(r, key), s.state.EgressCertificatesByRoot.List(r, key))
}

// authority returns the CA of a MeshIdentity. It is a derived value of its own, so that a CA's other fields recompute
// no proxy.
func (s *Stage) authority(r *table.Reader, key state.IdentityKey) Authority {
	if ca, ok := s.state.SigningCAs.Find(r, key.Mesh, key.Name); ok {
		return Authority{ca.Spec.Fingerprint, ca.Spec.TrustDomain}
	}
	return Authority{}
}

// NextCertificate returns the next certificate of a proxy; nil where the control plane signs none. A proxy with a
// certificate keeps its SPIFFE IDs and its CA until all clients accept the wanted SPIFFE IDs and a CA signs for them.
func (s *Stage) NextCertificate(r *table.Reader, key state.ProxyKey, wanted *Identity) *NextCertificate {
	if wanted == nil || wanted.Source.FromSPIRE() {
		return nil
	}
	next := &NextCertificate{MeshIdentity: wanted.MeshIdentity, SpiffeIDs: wanted.SpiffeIDs, RestsOn: wanted.RestsOn}
	source := state.IdentityKey{Mesh: key.Mesh, Name: wanted.MeshIdentity}
	if a := s.Authority.Get(r, source); a.TrustDomain == wanted.TrustDomain {
		next.Authority = a.Fingerprint
	}
	row, ok := s.state.Certificates.Find(r, key.Mesh, key.Name)
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
	names, rests := interimIDs(used, wanted)
	return &NextCertificate{
		MeshIdentity: used.MeshIdentity, SpiffeIDs: names, RestsOn: rests,
		Authority: s.Authority.Get(r, state.IdentityKey{Mesh: key.Mesh, Name: used.MeshIdentity}).Fingerprint,
	}
}

// interimIDs returns the SPIFFE IDs of a proxy until it may have the wanted ones, and the facts that they rest on.
// Under the mtls of a mesh, where a certificate has several, new ones are added at once, and old ones stay until no
// client needs them.
func interimIDs(used *kind.WorkloadCertificate, wanted *Identity) (kind.SpiffeIDs, resource.Vouched) {
	if wanted.joins(used) {
		return used.Union(wanted.SpiffeIDs), used.RestsOn.And(wanted.RestsOn)
	}
	return used.SpiffeIDs, used.RestsOn
}

// joins returns whether the SPIFFE IDs are added to those of the proxy's current certificate.
func (id *Identity) joins(used *kind.WorkloadCertificate) bool {
	return id.MeshIdentity == kind.MTLSIdentity && used.MeshIdentity == kind.MTLSIdentity && id.Problem == ""
}

// presentedIDs returns the SPIFFE IDs that clients accept of a proxy, sorted; none for a plaintext one. Certificates of
// SPIRE are not known here, so the wanted ID is accepted from the beginning.
func (s *Stage) presentedIDs(r *table.Reader, key state.ProxyKey) []string {
	wanted := s.Identity.Get(r, key)
	if wanted == nil {
		return nil
	}
	var names []string
	atOnce := wanted.Source.FromSPIRE()
	if row, ok := s.state.Certificates.Find(r, key.Mesh, key.Name); ok && row.Spec.InUse() != nil {
		names, atOnce = row.Spec.SpiffeIDs(), atOnce || wanted.joins(row.Spec.InUse())
	}
	if len(names) == 0 || atOnce {
		names = append(names, wanted.List()...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// serviceIDs returns the accepted SPIFFE IDs of a proxy that identify its services.
func (s *Stage) serviceIDs(r *table.Reader, key state.ProxyKey) []string {
	var names []string
	if wanted := s.Identity.Get(r, key); wanted != nil && wanted.MeshIdentity == kind.MTLSIdentity {
		names = wanted.List()
	}
	if row, ok := s.state.Certificates.Find(r, key.Mesh, key.Name); ok {
		for _, cert := range row.Spec.Certificates {
			if cert.MeshIdentity == kind.MTLSIdentity {
				names = append(names, cert.List()...)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (s *Stage) nextIDs(r *table.Reader, key state.ProxyKey) kind.SpiffeIDs {
	row, ok := s.state.Certificates.Find(r, key.Mesh, key.Name)
	if !ok {
		return kind.SpiffeIDs{}
	}
	wanted, used := s.Identity.Get(r, key), row.Spec.InUse()
	if wanted == nil || wanted.Problem != "" || wanted.Source.FromSPIRE() || used == nil ||
		wanted.Covers(used.SpiffeIDs) {
		return kind.SpiffeIDs{}
	}
	return wanted.SpiffeIDs
}

// WithNextIDs returns the certificates row of a proxy with the SPIFFE IDs of its next certificate, or without; nil
// where the row has them already.
func (s *Stage) WithNextIDs(
	r *table.Reader,
	key state.ProxyKey,
	now time.Time,
) *resource.Object[kind.DataplaneCertificates] {
	row, ok := s.state.Certificates.Find(r, key.Mesh, key.Name)
	if !ok {
		return nil
	}
	names, said := s.NextIDs.Get(r, key), kind.SpiffeIDs{}
	if row.Spec.Next != nil {
		said = row.Spec.Next.SpiffeIDs
	}
	if names.Equal(said) {
		return nil
	}
	announced := *row
	announced.Spec.Next = nil
	if names.SpiffeID != "" {
		announced.Spec.Next = &kind.NextIdentity{SpiffeIDs: names, MeshIdentity: s.Identity.Get(r, key).MeshIdentity,
			Since: kind.Time{Time: now}}
	}
	return &announced
}

// ExtendRules sets the further SPIFFE IDs that rules match.
func (s *Stage) ExtendRules(r *table.Reader, mesh string, p *match.Permissions) {
	for _, rules := range [][]match.Rule{p.Deny, p.ShadowDeny, p.Allow} {
		for i := range rules {
			rules[i].OtherIDs = s.OtherIDs.Get(r, callers{mesh, rules[i].IDPattern})
		}
	}
}
