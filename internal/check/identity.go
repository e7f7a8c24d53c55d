package check

import (
	"slices"
	"time"

	"weft/internal/graph"
	"weft/internal/identity"
	"weft/kind"
	"weft/resource"
)

// endsSoon is how long before its end a certificate that somebody must replace is a finding.
const endsSoon = 30 * 24 * time.Hour

func (l *look) controlPlane() {
	switch ends := l.ServerCertificateEnds; {
	case l.Now.After(ends):
		l.add(serverCertificateEnds, Error, controlPlane, "the certificate of its servers ended at %s: no proxy can connect", day(ends))
	case ends.Sub(l.Now) < endsSoon:
		l.found(serverCertificateEnds, controlPlane, "the certificate of its servers ends at %s", day(ends))
	}
}

// identities looks at the MeshIdentities of a mesh: whom they select, and whether they can sign.
func (l *look) identities(mesh string, members []member) {
	for _, mi := range l.State.IdentitiesByMesh.List(l.r, graph.MeshKey(mesh)) {
		object := objectOf(mi.Key())
		l.authority(mi, object)
		selects := func(m member) bool {
			s := mi.Spec.Selector
			return s != nil && s.Dataplane != nil && s.Dataplane.Matches(m.object.Labels)
		}
		if len(members) > 0 && !slices.ContainsFunc(members, selects) {
			l.found(selectorMatchesNothing, object, "it selects none of the Dataplanes of the mesh (%d): %s", len(members), identitySelectorText(mi.Spec.Selector))
		}
		l.identityBelieved(mi, object, members)
	}
}

func identitySelectorText(s *kind.IdentitySelector) string {
	if s == nil || s.Dataplane == nil {
		return "it has no selector"
	}
	return "matchLabels: " + pairs(s.Dataplane.MatchLabels)
}

// authority looks at the CA of a MeshIdentity. Of what it reads only the end goes on.
func (l *look) authority(mi *resource.Object[kind.MeshIdentity], object Object) {
	text, err := identity.CAText(&mi.Spec, mi.Name, func(name string) ([]byte, bool) {
		secret, ok := l.State.Secrets.Find(l.r, mi.Mesh, name)
		if !ok {
			return nil, false
		}
		return secret.Spec.Data, true
	})
	if text == nil && err == nil {
		if waited := l.Now.Sub(mi.Created); waited > settleTime {
			l.found(identityCannotSign, object, "its certificate authority has not been made in %s", ago(waited))
		}
		return
	}
	var ca *identity.CA
	if err == nil {
		ca, err = identity.ParseCA(text)
	}
	switch {
	case err != nil:
		l.found(identityCannotSign, object, "%s", err)
	case !l.Now.Before(ca.NotAfter()):
		l.found(identityCannotSign, object, "its certificate authority ended at %s", day(ca.NotAfter()))
	case ca.NotAfter().Sub(l.Now) < endsSoon:
		l.found(authorityEnds, object, "its certificate authority ends at %s, and no certificate outlives it", day(ca.NotAfter()))
	}
}

// identityBelieved finds a MeshIdentity whose certificates the mesh does not believe.
func (l *look) identityBelieved(mi *resource.Object[kind.MeshIdentity], object Object, members []member) {
	if l.Now.Sub(mi.Created) < settleTime {
		return // its MeshTrust is being made
	}
	believed := l.believed(mi.Mesh)
	for _, m := range members {
		id := m.proxy.Identity
		if id == nil || id.MeshIdentity != mi.Name || id.TrustDomain == "" || slices.Contains(believed, id.TrustDomain) {
			continue
		}
		l.found(domainNotBelieved, object, "it names proxies of the trust domain %s, such as %s, which no MeshTrust of the mesh has", id.TrustDomain, m.object.Name)
		return
	}
}

// signingKey finds a mesh whose proxies cannot prove who they are.
func (l *look) signingKey(mesh string, dataplanes int) {
	if dataplanes == 0 {
		return
	}
	for secret := range l.State.Secrets.All(l.Snapshot) {
		if realm, _, ok := identity.SigningKeyOf(secret.Key()); ok && realm == identity.DataplaneRealm(mesh) {
			return
		}
	}
	l.found(signingKeyMissing, objectOf(kind.Meshes.Key("", mesh)), "it has Dataplanes (%d) and no key that signs their tokens, so that no proxy can connect", dataplanes)
}
