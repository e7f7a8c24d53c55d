package reconcile

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"weft/internal/pki"
	"weft/kind"
	"weft/resource"
)

// mtls makes the mesh trust the CAs of all mtls backends, signs with the CA of the enabled backend, generates
// builtin CAs, and writes the status. A disabled or removed backend is reconciled until no proxy holds one of its
// certificates. The global control plane generates and reads CAs and writes the shared MeshTrust; zones sign.
func (p *Plan) mtls(rot *rotation) {
	mesh, ok := p.State.Tables.Meshes.Find(rot.r, "", rot.mesh)
	if !ok || mesh.Spec.MTLS == nil || len(mesh.Spec.MTLS.Backends) == 0 {
		rot.retire()
		p.putMeshStatus(rot.mesh, nil, rot)
		return
	}
	troubles := map[string]*problem{}
	for i := range mesh.Spec.MTLS.Backends {
		b := &mesh.Spec.MTLS.Backends[i]
		trouble := ofControlPlane(mesh, fmt.Sprintf("mtls.backends[%d].", i))
		var src *source
		if trouble == nil {
			src, trouble = p.readBackend(rot, mesh, b)
		}
		if troubles[b.Name] = trouble; trouble == nil {
			rot.sources = append(rot.sources, src)
		}
	}
	rot.unread = len(rot.sources) < len(mesh.Spec.MTLS.Backends)
	conditions := p.unreadBackends(mesh.Spec.MTLS, troubles)
	if p.Global() {
		p.vouch(rot)
		conditions = append(readHere(mesh.Spec.MTLS, troubles), conditions...)
	} else {
		conditions = append(p.signWithEnabled(rot, mesh.Spec.MTLS, troubles), conditions...)
	}
	p.putMeshStatus(rot.mesh, conditions, rot)
}

// vouch writes, on global, the roots of a trust domain that zones share, since no zone may write them for the others. A
// root stays for as long as a zone has it in its own MeshTrust, for certificates that its proxies hold.
func (p *Plan) vouch(rot *rotation) {
	for _, src := range rot.sources {
		rot.signing.TrustDomain = src.domain
		rot.entrust(src) // a root that an operator removed stays removed
	}
	rot.prune()
	rot.store()
}

// vouchFor calls vouch for a global MeshIdentity with a provided CA and one trust domain for all zones. Where each zone
// generates its own CA, an operator must write the MeshTrust.
func (p *Plan) vouchFor(rot *rotation) {
	mi, ok := p.State.Tables.Identities.Find(rot.r, rot.mesh, rot.name)
	shared := ok && kind.OwnerOf(&mi.Meta).Global() && mi.Spec.Provider.Bundled != nil &&
		mi.Spec.Provider.Bundled.MeshTrustCreation != "Disabled"
	if shared {
		domain, err := pki.TrustDomain(&mi.Spec, rot.mesh, "")
		shared = err == nil && p.State.Identity.Domains.Get(rot.r, "").Holder(domain).Shared
	}
	if !shared {
		rot.retire()
		return
	}
	src, trouble := p.source(rot.r, mi)
	if trouble == nil && src.ca != nil {
		rot.sources = []*source{src}
	}
	rot.unread = trouble != nil
	p.vouch(rot)
}

// signWithEnabled signs with the enabled backend, trusts all backends, and returns the conditions of the mesh.
func (p *Plan) signWithEnabled(rot *rotation, m *kind.MeshMTLS, troubles map[string]*problem) []kind.Condition {
	for _, src := range rot.sources {
		if src.backend != m.EnabledBackend {
			rot.signing.TrustDomain = src.domain
			rot.entrust(src) // a root that an operator removed stays removed
		}
	}
	enabled := m.SigningBackend()
	if enabled == nil {
		rot.endSigning()
		rot.store()
		return rot.rotationConverged()
	}
	rot.life = kind.Duration(enabled.CertificateLife())
	trouble := troubles[enabled.Name]
	if trouble == nil {
		i := slices.IndexFunc(rot.sources, func(src *source) bool { return src.backend == enabled.Name })
		trouble = rot.follow(rot.sources[i])
	} else {
		rot.signing.Next = nil
	}
	rot.prune()
	rot.store()
	conditions := append([]kind.Condition{rot.ready(trouble)}, rot.rotationConverged()...)
	conditions = append(conditions, p.identityConverged(rot.r, rot.mesh, kind.MTLSIdentity)...)
	return append(conditions, p.mixedProvidersCondition(rot.r, rot.mesh)...)
}

// readBackend returns the CA of one backend. The control plane that owns the mesh generates a missing builtin CA: the
// key first, then its certificate, so that several replicas never store a key and a certificate that do not match.
func (p *Plan) readBackend(rot *rotation, mesh *resource.Object[kind.Mesh], b *kind.MTLSBackend) (*source, *problem) {
	secret := func(name string) ([]byte, bool) {
		o, ok := p.State.Tables.Secrets.Find(rot.r, rot.mesh, name)
		if !ok {
			return nil, false
		}
		return o.Spec.Data, true
	}
	text, err := pki.BackendText(rot.mesh, b, secret)
	switch {
	case errors.Is(err, pki.ErrNotMade) && kind.OwnerOf(&mesh.Meta) == kind.Owner{Zone: p.State.Tables.Zone}:
		rot.addWrite(Write{Make: p.nextBuiltinSecret(rot.mesh, b, secret)})
		return nil, &problem{"CAMissing", "the certificate authority is being made"}
	case errors.Is(err, pki.ErrNotMade):
		return nil,
			&problem{"CAMissing",
				"the certificate authority has not come from the global control plane, which makes it"}
	case err != nil:
		return nil, &problem{"CAMissing", resource.Line(err)}
	}
	return parseSource(rot.r, source{domain: rot.mesh, backend: b.Name, text: text})
}

// nextBuiltinSecret returns the next Secret to generate for a builtin backend.
func (p *Plan) nextBuiltinSecret(mesh string, b *kind.MTLSBackend, secret func(string) ([]byte, bool)) *NewSecret {
	bits, life := b.BuiltinCA()
	certificateName, keyName := pki.BuiltinSecrets(mesh, b.Name)
	key, made := secret(keyName)
	if !made {
		return &NewSecret{kind.Secrets.Key(mesh, keyName), func(time.Time) ([]byte, error) {
			return pki.NewBuiltinKey(bits)
		}}
	}
	return &NewSecret{kind.Secrets.Key(mesh, certificateName), func(now time.Time) ([]byte, error) {
		return pki.NewBuiltinCertificate(now, mesh, key, life)
	}}
}

// unreadBackends returns a condition that names the backends, besides the enabled one, that can't be read; none where
// all can.
func (p *Plan) unreadBackends(m *kind.MeshMTLS, troubles map[string]*problem) []kind.Condition {
	var unread []string
	for _, b := range m.Backends {
		if trouble := troubles[b.Name]; trouble != nil && b.Name != m.EnabledBackend {
			unread = append(unread, fmt.Sprintf("%s: %s", b.Name, trouble.message))
		}
	}
	if len(unread) == 0 {
		return nil
	}
	return []kind.Condition{{Type: "BackendsRead", Status: "False", Reason: "CAMissing", Message: fmt.Sprintf(
		"backends that are not enabled can't be read, so no proxy newly trusts them: %s",
		strings.Join(unread, "; "))}}
}

// readHere returns the condition Ready of the enabled backend on a control plane that does not sign.
func readHere(m *kind.MeshMTLS, troubles map[string]*problem) []kind.Condition {
	trouble := troubles[m.EnabledBackend]
	switch {
	case m.SigningBackend() == nil:
		return nil
	case trouble != nil:
		return []kind.Condition{{Type: "Ready", Status: "False", Reason: trouble.reason, Message: trouble.message}}
	}
	return []kind.Condition{{Type: "Ready", Status: "True", Reason: "Ready",
		Message: "the certificate authority is there; zones sign with it"}}
}

// putMeshStatus writes the conditions of a mesh. A mesh that never had mtls has no status.
func (p *Plan) putMeshStatus(mesh string, conditions []kind.Condition, rot *rotation) {
	conditions = append(conditions, p.reconciled(rot.r, rot.request())...)
	stored, ok := p.State.Tables.MeshStatuses.Find(rot.r, "", mesh)
	if ok {
		putIfDifferent(&rot.writes, conditionDelay(stored.Spec.Conditions, conditions), stored,
			kind.MeshStatuses.Make("", mesh, kind.MeshStatus{Conditions: conditions}))
	} else if _, exists := p.State.Tables.Meshes.Find(rot.r, "", mesh); exists && len(conditions) > 0 {
		rot.writes.addWrite(servingDelay,
			Write{Create: kind.MeshStatuses.Make("", mesh, kind.MeshStatus{Conditions: conditions})})
	}
}
