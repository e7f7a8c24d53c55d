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

// mtls has the authorities of all backends of a mesh's mtls trusted, brings that of the enabled one into use, makes
// those that are builtin, and says how it stands. What was disabled or removed is followed until no proxy holds a
// certificate of it. On the global control plane it makes and reads them, and says that their roots prove the trust
// domain, which all zones share: zones sign.
func (p *Plan) mtls(rot *rotation) {
	mesh, ok := p.State.Meshes.Find(rot.r, "", rot.mesh)
	if !ok || mesh.Spec.MTLS == nil || len(mesh.Spec.MTLS.Backends) == 0 {
		rot.retire()
		p.putMeshStatus(rot.mesh, nil, rot)
		return
	}
	troubles := map[string]*problem{}
	for i := range mesh.Spec.MTLS.Backends {
		b := &mesh.Spec.MTLS.Backends[i]
		src, trouble := p.backend(rot, mesh, b)
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
		conditions = append(p.sign(rot, mesh.Spec.MTLS, troubles), conditions...)
	}
	p.putMeshStatus(rot.mesh, conditions, rot)
}

// vouch says for all zones which roots prove a trust domain that they share, since none of them may say so for the
// others. A root stays for as long as a zone has it in its own MeshTrust, for certificates that its proxies hold.
func (p *Plan) vouch(rot *rotation) {
	for _, src := range rot.sources {
		rot.signing.TrustDomain = src.domain
		rot.entrust(src) // one that was taken out of the MeshTrust by hand stays out
	}
	rot.prune()
	rot.store()
}

// vouchFor does so for a MeshIdentity of global's that gives all zones one trust domain, with a CA that is given. A CA
// that each zone makes for itself only an operator can vouch for.
func (p *Plan) vouchFor(rot *rotation) {
	mi, ok := p.State.Identities.Find(rot.r, rot.mesh, rot.name)
	shared := ok && kind.OwnerOf(&mi.Meta).Global() && mi.Spec.Provider.Bundled != nil && mi.Spec.Provider.Bundled.MeshTrustCreation != "Disabled"
	if shared {
		domain, err := pki.TrustDomain(&mi.Spec, rot.mesh, "")
		shared = err == nil && p.State.Domains.Get(rot.r, "").Holder(domain).Shared
	}
	if !shared {
		rot.retire()
		return
	}
	src, trouble := p.source(rot.r, mi, rot.now)
	if trouble == nil && src.ca != nil {
		rot.sources = []*source{src}
	}
	rot.unread = trouble != nil
	p.vouch(rot)
}

// sign follows the enabled backend, and believes the others.
func (p *Plan) sign(rot *rotation, m *kind.MeshMTLS, troubles map[string]*problem) []kind.Condition {
	for _, src := range rot.sources {
		if src.backend != m.EnabledBackend {
			rot.signing.TrustDomain = src.domain
			rot.entrust(src) // one that was taken out of the MeshTrust by hand stays out
		}
	}
	enabled := m.Enabled()
	if enabled == nil {
		rot.rest()
		rot.store()
		return rot.settled()
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
	conditions := append([]kind.Condition{rot.ready(trouble)}, rot.settled()...)
	conditions = append(conditions, p.namesSettled(rot.r, rot.mesh, kind.MTLSIdentity)...)
	return append(conditions, p.mixture(rot.r, rot.mesh)...)
}

// backend reads the authority of one backend. A builtin one that is missing is made by the control plane that owns
// the mesh: its key first, then the certificate for it, so that several instances never make two halves that do
// not belong together.
func (p *Plan) backend(rot *rotation, mesh *resource.Object[kind.Mesh], b *kind.MTLSBackend) (*source, *problem) {
	secret := func(name string) ([]byte, bool) {
		o, ok := p.State.Secrets.Find(rot.r, rot.mesh, name)
		if !ok {
			return nil, false
		}
		return o.Spec.Data, true
	}
	text, err := pki.BackendText(rot.mesh, b, secret)
	switch {
	case errors.Is(err, pki.ErrNotMade) && kind.OwnerOf(&mesh.Meta) == kind.Owner{Zone: p.State.Zone}:
		rot.do(Step{Make: p.builtin(rot.mesh, b, secret)})
		return nil, &problem{"CAMissing", "the certificate authority is being made"}
	case errors.Is(err, pki.ErrNotMade):
		return nil, &problem{"CAMissing", "the certificate authority has not come from the global control plane, which makes it"}
	case err != nil:
		return nil, &problem{"CAMissing", err.Error()}
	}
	return parsed(source{domain: rot.mesh, backend: b.Name, text: text}, rot.now)
}

// builtin is what is to be made next of a builtin backend.
func (p *Plan) builtin(mesh string, b *kind.MTLSBackend, secret func(string) ([]byte, bool)) *NewSecret {
	bits, life := b.BuiltinCA()
	certificateName, keyName := pki.BuiltinSecrets(mesh, b.Name)
	key, made := secret(keyName)
	if !made {
		return &NewSecret{kind.Secrets.Key(mesh, keyName), func(time.Time) ([]byte, error) { return pki.NewBuiltinKey(bits) }}
	}
	return &NewSecret{kind.Secrets.Key(mesh, certificateName), func(now time.Time) ([]byte, error) {
		return pki.NewBuiltinCertificate(now, mesh, key, life)
	}}
}

// unreadBackends says which backends beside the enabled one can't be read; nothing where none.
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
		"backends that are not enabled can't be read, so that nobody new believes them: %s", strings.Join(unread, "; "))}}
}

// readHere says whether the enabled backend can be read, where nothing is signed.
func readHere(m *kind.MeshMTLS, troubles map[string]*problem) []kind.Condition {
	trouble := troubles[m.EnabledBackend]
	switch {
	case m.Enabled() == nil:
		return nil
	case trouble != nil:
		return []kind.Condition{{Type: "Ready", Status: "False", Reason: trouble.reason, Message: trouble.message}}
	}
	return []kind.Condition{{Type: "Ready", Status: "True", Reason: "Ready", Message: "the certificate authority is there; zones sign with it"}}
}

// putMeshStatus writes the conditions of a mesh. One that never had mtls has no status.
func (p *Plan) putMeshStatus(mesh string, conditions []kind.Condition, rot *rotation) {
	if _, stored := p.State.MeshStatuses.Find(rot.r, "", mesh); stored || len(conditions) > 0 {
		rot.do(Step{Put: kind.MeshStatuses.Make("", mesh, kind.MeshStatus{Conditions: conditions})})
	}
}
