package check

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"weft/internal/pki"
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

// identities checks the MeshIdentities of a mesh: the proxies that they select, and their CAs.
func (l *checker) identities(mesh string, members []member) {
	for _, mi := range l.State.Tables.IdentitiesByMesh.List(l.r, state.MeshKey(mesh)) {
		object := objectOf(mi.Key())
		_, spire := mi.Spec.SpireAgent()
		if !spire {
			ca, trouble := l.source(mi)
			l.authority(mi.Key(), ca, trouble)
		}
		selects := func(m member) bool {
			s := mi.Spec.Selector
			return s != nil && s.Dataplane != nil && s.Dataplane.Matches(m.dataplane.Labels)
		}
		if len(members) > 0 && !l.everywhere(&mi.Meta) && !slices.ContainsFunc(members, selects) {
			l.found(selectorMatchesNothing, object, "it selects none of the Dataplanes of the mesh (%d): %s",
				len(members), identitySelectorText(mi.Spec.Selector))
		}
		if !spire {
			l.identityTrusted(mi, object, members)
			l.identityExempt(mi, object, members)
		}
	}
	l.mtls(mesh)
	l.issuers(mesh)
}

// mtls checks the CAs of the backends of a mesh's mtls.
func (l *checker) mtls(mesh string) {
	o, ok := l.State.Tables.Meshes.Find(l.r, "", mesh)
	if !ok || o.Spec.MTLS == nil {
		return
	}
	for i := range o.Spec.MTLS.Backends {
		b := &o.Spec.MTLS.Backends[i]
		text, err := pki.BackendText(mesh, b, l.secretOf(mesh))
		waits := errors.Is(err, pki.ErrNotMade) && l.Now.Sub(o.Modified) <= ackTime
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

// issuers finds conflicts of SPIRE's certificates with other configuration.
func (l *checker) issuers(mesh string) {
	if names := l.State.Identity.MixedIssuers(l.r, mesh); len(names) > 0 {
		l.found(providersMixed, objectOf(kind.Meshes.Key("", mesh)), "certificates of its proxies come from %s",
			strings.Join(names, " and from "))
	}
	if !l.State.Identity.AllFromSPIRE(l.r, mesh) {
		return
	}
	for _, trust := range l.State.Tables.TrustsByMesh.List(l.r, state.MeshKey(mesh)) {
		l.found(trustWithoutEffect, objectOf(trust.Key()),
			"all certificates of the mesh come from SPIRE, which provides the roots that proxies trust")
	}
}

// owners finds roots that are not trusted, because a zone states them for a trust domain of another owner.
func (l *checker) owners(mesh string) {
	for _, d := range l.State.Identity.DistrustedIn(l.r, mesh) {
		l.found(rootsNotTrusted, objectOf(d.Trust.Key()), "its roots are not trusted: %s", d.Reason)
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
	if signing != nil && signing.Next != nil && l.Now.Sub(signing.Next.Since.Time) > changeTime {
		l.found(authorityChangePending, object, "a new CA has waited for %s until every proxy trusts its root",
			ago(l.Now.Sub(signing.Next.Since.Time)))
	}
	switch former := authorityOf(signing); {
	case trouble == "" && ca != nil && ca.NotAfter().Sub(l.Now) < endsSoon:
		l.found(authorityExpiring, object, "its CA expires at %s, and no certificate outlives it", day(ca.NotAfter()))
	case trouble == "":
	case former != nil && l.Now.Before(former.NotAfter()):
		l.add(identityCannotSign, Warning, object, "%s; the former CA signs until %s", trouble, day(former.NotAfter()))
	default:
		l.found(identityCannotSign, object, "%s", trouble)
	}
}

// source returns the CA of a MeshIdentity, or the reason for which it is unusable. Both are empty while the CA is being
// generated.
func (l *checker) source(mi *resource.Object[kind.MeshIdentity]) (ca *pki.CA, trouble string) {
	text, err := pki.CAText(&mi.Spec, mi.Name, l.secretOf(mi.Mesh))
	if waited := l.Now.Sub(mi.Created); err == nil && text == nil && waited > ackTime {
		return nil, fmt.Sprintf("its CA has not been generated for %s", ago(waited))
	} else if err == nil && text == nil {
		return nil, ""
	}
	return l.usable(text, err)
}

// secretOf returns the data of the Secrets of a mesh.
func (l *checker) secretOf(mesh string) func(name string) ([]byte, bool) {
	return func(name string) ([]byte, bool) {
		secret, ok := l.State.Tables.Secrets.Find(l.r, mesh, name)
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
	case !l.Now.Before(ca.NotAfter()):
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
	row, ok := l.State.Tables.SigningCAs.Find(l.r, mesh, name)
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

// identityTrusted finds a MeshIdentity whose certificates the mesh does not trust.
func (l *checker) identityTrusted(mi *resource.Object[kind.MeshIdentity], object Object, members []member) {
	if l.Now.Sub(mi.Created) < ackTime {
		return // its MeshTrust is being generated
	}
	trusted := l.trusted(mi.Mesh)
	for _, m := range members {
		id := m.proxy.Identity
		if id == nil || id.MeshIdentity != mi.Name || id.TrustDomain == "" || slices.Contains(trusted, id.TrustDomain) {
			continue
		}
		l.found(domainNotTrusted, object,
			"its proxies have the trust domain %s, such as %s, which no MeshTrust of the mesh has", id.TrustDomain,
			m.dataplane.Name)
		return
	}
}

// identityExempt finds a MeshIdentity that gives Pods a SPIFFE ID only because the Mesh exempts them.
func (l *checker) identityExempt(mi *resource.Object[kind.MeshIdentity], object Object, members []member) {
	until, severity, ok := l.exemptUntil(mi.Mesh)
	if !ok || !l.State.Identity.Exempt.Get(l.r, mi.Mesh).Tags {
		return
	}
	for _, m := range members {
		if id := m.proxy.Identity; id == nil || id.MeshIdentity != mi.Name {
			continue
		}
		if problem := l.State.Identity.NamespaceProblem(l.r, m.dataplane); problem != "" {
			l.add(membersExempt, severity, object, "%s and other Pods have a SPIFFE ID by it until %s, then they lose "+
				"it: %s", m.dataplane.Name, day(until), problem)
			return
		}
	}
}

// signingKey finds a mesh whose proxies cannot authenticate. Pods prove themselves with tokens of Kubernetes.
func (l *checker) signingKey(mesh string, members []member) {
	dataplanes := 0
	for _, m := range members {
		if m.dataplane.Label(kind.PodUIDLabel) == "" {
			dataplanes++
		}
	}
	if dataplanes == 0 {
		return
	}
	for secret := range l.State.Tables.Secrets.All(l.Snapshot) {
		if realm, _, ok := pki.SigningKeyOf(secret.Key()); ok && realm == pki.DataplaneRealm(mesh) {
			return
		}
	}
	l.found(signingKeyMissing, objectOf(kind.Meshes.Key("", mesh)),
		"it has Dataplanes (%d) and no signing key of their tokens, so no proxy can connect", dataplanes)
}
