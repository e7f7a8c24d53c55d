package check

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"weft/internal/pki"
	"weft/internal/service"
	"weft/internal/state"
	"weft/kind"
	"weft/resource"
)

const (
	// endsSoon is the time before expiry from which a certificate that an operator must replace is a finding.
	endsSoon = 30 * 24 * time.Hour
	// changeTime is the maximum duration of a change of a CA.
	changeTime = 10 * time.Minute
)

// mesh checks the mtls of a mesh, the issuers of its certificates, and its routes to other zones.
func (l *checker) mesh(o *resource.Object[kind.Mesh]) {
	l.mtls(o)
	if names := l.Identity.MixedIssuers(l.r, o.Name); len(names) > 0 {
		l.found(providersMixed, objectOf(o.Key()), "certificates of its proxies come from %s",
			strings.Join(names, " and from "))
	}
	if n := l.Services.GeneratedCount(l.r, o.Name); n >= service.MaxGenerated {
		l.found(generatedServicesFull, objectOf(o.Key()),
			"%d MeshServices are generated in this zone, the maximum is %d: a new value of %s gets none", n,
			service.MaxGenerated, kind.ServiceTag)
	}
	l.egressRoute(o)
}

// meshIdentity checks a MeshIdentity: the proxies that it selects, and its CA.
func (l *checker) meshIdentity(mi *resource.Object[kind.MeshIdentity]) {
	if _, spire := mi.Spec.SpireAgent(); !spire {
		ca, trouble := l.source(mi)
		l.authority(mi.Key(), ca, trouble)
	}
	selects := func(dp *resource.Object[kind.Dataplane]) bool {
		s := mi.Spec.Selector
		return s != nil && s.Dataplane != nil && s.Dataplane.Matches(dp.Labels)
	}
	index, all := l.Tables.DataplanesBySelector, state.MeshKey(mi.Mesh)
	if !l.everywhere(&mi.Meta) && index.Any(l.r, all) && !index.Contains(l.r, selectedKey(mi), selects) {
		l.found(selectorMatchesNothing, objectOf(mi.Key()), "it selects no Dataplane of the mesh: %s",
			identitySelectorText(mi.Spec.Selector))
	}
}

// selectedKey returns an index key of all Dataplanes that a MeshIdentity may select.
func selectedKey(mi *resource.Object[kind.MeshIdentity]) string {
	if s := mi.Spec.Selector; s != nil && s.Dataplane != nil {
		for _, label := range slices.Sorted(maps.Keys(s.Dataplane.MatchLabels)) {
			return state.LabelKey(mi.Mesh, label, s.Dataplane.MatchLabels[label])
		}
	}
	return state.MeshKey(mi.Mesh)
}

// mtls checks the CAs of the backends of a mesh's mtls.
func (l *checker) mtls(o *resource.Object[kind.Mesh]) {
	if o.Spec.MTLS == nil {
		return
	}
	for i := range o.Spec.MTLS.Backends {
		b := &o.Spec.MTLS.Backends[i]
		text, err := pki.BackendText(o.Name, b, l.secretOf(o.Name))
		waits := errors.Is(err, pki.ErrNotMade) && !l.past(o.Modified.Add(ackTime))
		ca, trouble := l.usable(text, err)
		switch {
		case waits:
		case b.Name == o.Spec.MTLS.EnabledBackend:
			l.authority(o.Key(), ca, trouble)
		case trouble != "":
			l.add(identityCannotSign, Warning, objectOf(o.Key()), "the backend %s, which is not enabled: %s", b.Name,
				trouble)
		}
	}
}

// trustWithoutEffect finds a MeshTrust of a mesh whose certificates all come from SPIRE.
func (l *checker) trustWithoutEffect(trust *resource.Object[kind.MeshTrust]) {
	if l.onlySPIRE.Get(l.r, trust.Mesh) {
		l.found(trustWithoutEffect, objectOf(trust.Key()),
			"all certificates of the mesh come from SPIRE, which provides the roots that proxies trust")
	}
}

// owners finds roots that are not trusted, because a zone states them for a trust domain of another owner.
func (l *checker) owners(o *resource.Object[kind.Mesh]) {
	for _, d := range l.Identity.DistrustedIn(l.r, o.Name) {
		l.found(rootsNotTrusted, objectOf(d.Trust.Key()), "its roots are not trusted: %s", d.Reason).cause = d.Reason
	}
}

func identitySelectorText(s *kind.IdentitySelector) string {
	if s == nil || s.Dataplane == nil {
		return "it has no selector"
	}
	return "matchLabels: " + pairs(s.Dataplane.MatchLabels)
}

// authority checks the CA of a MeshIdentity, or of the enabled backend of a Mesh, and the CA that signs. Findings
// contain only expiry dates of it.
func (l *checker) authority(of resource.Key, ca *pki.CA, trouble string) {
	object, signing := objectOf(of), l.signs(of)
	if signing != nil && signing.Next != nil && l.past(signing.Next.Since.Add(changeTime)) {
		l.found(authorityChangePending, object, "a new CA has waited for %s until every proxy trusts its root",
			age(signing.Next.Since.Time))
	}
	switch former := authorityOf(signing); {
	case trouble == "" && ca != nil && l.past(ca.NotAfter().Add(-endsSoon)):
		l.found(authorityExpiring, object, "its CA expires at %s, and no certificate outlives it", day(ca.NotAfter()))
	case trouble == "":
	case former != nil && !l.past(former.NotAfter()):
		l.add(identityCannotSign, Warning, object, "%s; the former CA signs until %s", trouble, day(former.NotAfter()))
	default:
		l.found(identityCannotSign, object, "%s", trouble)
	}
}

// source returns the CA of a MeshIdentity, or the reason for which it is unusable. Both are empty while the CA is being
// generated.
func (l *checker) source(mi *resource.Object[kind.MeshIdentity]) (ca *pki.CA, trouble string) {
	text, err := pki.CAText(&mi.Spec, mi.Name, l.secretOf(mi.Mesh))
	if err != nil || text != nil {
		return l.usable(text, err)
	}
	if l.past(mi.Created.Add(ackTime)) {
		trouble = "its CA has not been generated since " + day(mi.Created)
	}
	return nil, trouble
}

// secretOf returns the data of the Secrets of a mesh.
func (l *checker) secretOf(mesh string) func(name string) ([]byte, bool) {
	return func(name string) ([]byte, bool) {
		secret, ok := l.Tables.Secrets.Find(l.r, mesh, name)
		if !ok {
			return nil, false
		}
		return secret.Spec.Data, true
	}
}

// usable returns the CA, or the reason for which it is unusable.
func (l *checker) usable(text []byte, err error) (ca *pki.CA, trouble string) {
	if err == nil {
		ca, err = pki.ParseCA(text)
	}
	switch {
	case err != nil:
		return nil, err.Error()
	case l.past(ca.NotAfter()):
		return nil, fmt.Sprintf("its CA expired at %s", day(ca.NotAfter()))
	}
	return ca, ""
}

// signs returns the status of the CA that signs for a MeshIdentity or the mtls of a Mesh, or nil before the first one.
func (l *checker) signs(of resource.Key) *kind.SigningCA {
	mesh, name := of.Mesh, of.Name
	if of.Kind == kind.Meshes.Name {
		mesh, name = of.Name, kind.MTLSIdentity
	}
	row, ok := l.Tables.SigningCAs.Find(l.r, mesh, name)
	if !ok {
		return nil
	}
	return &row.Spec
}

func authorityOf(signing *kind.SigningCA) *pki.CA {
	if signing == nil || len(signing.Authority) == 0 {
		return nil
	}
	ca, err := pki.ParseCA(signing.Authority)
	if err != nil {
		return nil // it cannot sign
	}
	return ca
}

// identityTrusted finds that the MeshIdentity of a proxy gives certificates that the mesh does not trust.
func (l *checker) identityTrusted(m member) {
	id := m.proxy.Identity
	if id == nil || id.TrustDomain == "" || !l.distrusted.Get(l.r, domainKey{m.dataplane.Mesh, id.MeshIdentity,
		id.TrustDomain}) {
		return
	}
	l.found(domainNotTrusted, objectOf(kind.MeshIdentities.Key(m.dataplane.Mesh, id.MeshIdentity)),
		"its proxies have the trust domain %s, such as %s, which no MeshTrust of the mesh has", id.TrustDomain,
		observers{}).by = m.dataplane.Name
}

// identityExempt finds that a MeshIdentity gives a Pod a SPIFFE ID only because the Mesh exempts it.
func (l *checker) identityExempt(m member) {
	e, id := l.exempt.Get(l.r, m.dataplane.Mesh), m.proxy.Identity
	if !e.stated || id == nil || !l.Identity.Exempt.Get(l.r, m.dataplane.Mesh).Tags {
		return
	}
	if problem := l.Identity.NamespaceProblem(l.r, m.dataplane); problem != "" {
		l.add(membersExempt, e.severity, objectOf(kind.MeshIdentities.Key(m.dataplane.Mesh, id.MeshIdentity)),
			"Pods such as %s have a SPIFFE ID by it until %s, then they lose it: %s", observers{}, day(e.until),
			problem).by = m.dataplane.Name
	}
}

// signingKey finds that a Dataplane can't authenticate, since its mesh has no signing key. Pods prove themselves with
// tokens of Kubernetes.
func (l *checker) signingKey(dp *resource.Object[kind.Dataplane]) {
	if dp.Label(kind.PodUIDLabel) == "" && !l.hasSigningKey.Get(l.r, dp.Mesh) {
		l.found(signingKeyMissing, objectOf(kind.Meshes.Key("", dp.Mesh)), "it has Dataplanes (%s) and no signing "+
			"key of their tokens, so no proxy can connect", observerCount{}).by = dp.Name
	}
}
