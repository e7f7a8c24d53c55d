package identity

import (
	"cmp"
	"slices"

	"weft/internal/pki"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// Identity is what a MeshIdentity, or the mtls of its mesh, gives a proxy.
type Identity struct {
	// Mesh is the mesh of the identity; empty: the proxy's own.
	Mesh         string
	MeshIdentity string // its name, or [kind.MTLSIdentity]
	kind.SpiffeIDs
	TrustDomain string
	Source      Source
	// RestsOn are the facts of the Dataplane (see [kind.Facts]) that the SPIFFE IDs rest on, by voucher. Unvouched are
	// the facts without a voucher: then there is a Problem.
	RestsOn   resource.Vouched
	Unvouched []string
	// Problem is why the proxy has no SPIFFE ID although it should have one. Such a proxy gets no certificate, and it
	// does not become plaintext.
	Problem string
}

// Authority is a CA that signs; without a fingerprint there is none yet.
type Authority struct {
	Fingerprint string
	TrustDomain string
}

// NextCertificate is the content of a proxy's next certificate.
type NextCertificate struct {
	// Mesh is the mesh of its identity; empty: the proxy's own.
	Mesh         string
	MeshIdentity string // or [kind.MTLSIdentity]
	kind.SpiffeIDs
	// Authority is the fingerprint of the CA that signs it; empty: there is none yet.
	Authority string
	// RestsOn are the facts of the Dataplane that its SPIFFE IDs rest on, by voucher.
	RestsOn resource.Vouched
}

// Trust is the set of trust domains that the proxies of a mesh trust, sorted.
type Trust struct {
	Mesh    string
	Domains []TrustDomain
}

// TrustDomain is the roots of one trust domain, in PEM, sorted and without duplicates.
type TrustDomain struct {
	Name  string
	Roots []string
}

// identity returns the identity of a Dataplane. Of the MeshIdentities that select it, the one with the most labels is
// chosen, then the first by name; without one, the mtls of the mesh. A selected Dataplane never becomes plaintext
// because its SPIFFE ID can't be rendered: its identity then has a Problem, and no proxy can present it.
func (s *Stage) identity(r *table.Reader, key state.ProxyKey) *Identity {
	if key.Type == kind.EgressProxy {
		return s.EgressIdentity.Get(r, s.EgressChoice.Get(r, s.state.Zone).Chosen)
	}
	dp, ok := s.state.Dataplanes.Find(r, key.Mesh, key.Name)
	if !ok {
		return nil
	}
	selecting := s.SelectingIdentities(r, dp)
	if len(selecting) == 0 {
		return s.mtlsIdentity(r, dp)
	}
	chosen := selecting[0]
	id, domain, err := pki.SpiffeID(&chosen.Spec, key.Mesh, s.state.Zone, dp.Name, dp.Labels, &dp.Spec)
	if err != nil {
		return &Identity{MeshIdentity: chosen.Name, Problem: err.Error(), Source: s.sourceOf(&chosen.Spec, "")}
	}
	given := &Identity{MeshIdentity: chosen.Name, SpiffeIDs: kind.SpiffeIDsOf(id), TrustDomain: domain,
		Source: s.sourceOf(&chosen.Spec, domain)}
	var facts []string // of SPIRE none: it attests the workload itself
	if !given.Source.FromSPIRE() {
		facts = pki.SpiffeFacts(&chosen.Spec, dp)
		if problem := pki.NamespaceProblem(&chosen.Spec, dp); problem != "" && !s.Exempt.Get(r, dp.Mesh).Tags {
			return given.withProblem(problem)
		}
	}
	given, facts = s.reserve(r, dp, given, facts)
	return given.restingOn(dp, facts)
}

// restingOn returns an identity that rests on facts of its Dataplane. If a fact has no voucher, the identity has no
// SPIFFE ID. So neither clients nor rules accept the proxy by an ID that its owner chose.
func (id *Identity) restingOn(dp *resource.Object[kind.Dataplane], facts []string) *Identity {
	id.RestsOn, id.Unvouched = dp.Vouched.Partition(facts)
	if len(id.Unvouched) > 0 {
		return id.withProblem(pki.ErrorOfUnvouched(dp, id.Unvouched).Error())
	}
	return id
}

// SelectingIdentities returns the MeshIdentities that select a Dataplane, the chosen one first.
func (s *Stage) SelectingIdentities(
	r *table.Reader,
	dp *resource.Object[kind.Dataplane],
) []*resource.Object[kind.MeshIdentity] {
	var selecting []*resource.Object[kind.MeshIdentity]
	for _, candidate := range s.state.IdentitiesByMesh.List(r, state.MeshKey(dp.Mesh)) {
		selector := candidate.Spec.Selector
		if selector != nil && selector.Dataplane != nil && selector.Dataplane.Matches(dp.Labels) {
			selecting = append(selecting, candidate)
		}
	}
	slices.SortFunc(selecting, func(a, b *resource.Object[kind.MeshIdentity]) int {
		return cmp.Or(cmp.Compare(SelectorLabels(b), SelectorLabels(a)), cmp.Compare(a.Name, b.Name))
	})
	return selecting
}

// NamespaceProblem returns why the chosen MeshIdentity of a Pod gives it no SPIFFE ID unless the Mesh exempts it; see
// [pki.NamespaceProblem]. SPIRE attests the workload itself, so its identities have none.
func (s *Stage) NamespaceProblem(r *table.Reader, dp *resource.Object[kind.Dataplane]) string {
	selecting := s.SelectingIdentities(r, dp)
	if len(selecting) == 0 || selecting[0].Spec.Provider.Type == kind.Spire {
		return ""
	}
	return pki.NamespaceProblem(&selecting[0].Spec, dp)
}

// SelectorLabels returns the number of labels in the selector of a MeshIdentity.
func SelectorLabels(o *resource.Object[kind.MeshIdentity]) int {
	return len(o.Spec.Selector.Dataplane.MatchLabels)
}
