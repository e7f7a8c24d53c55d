package reconcile

import (
	"fmt"
	"time"

	"weft/internal/pki"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// source is the CA that a MeshIdentity names, or a backend of the mtls of a mesh.
type source struct {
	domain  string
	backend string // its name
	text    []byte
	ca      *pki.CA // nil: it is still to be made
}

// problem is why a source can't be used.
type problem struct{ reason, message string }

// source reads the CA of a MeshIdentity.
func (p *Plan) source(r *table.Reader, mi *resource.Object[kind.MeshIdentity], now time.Time) (*source, *problem) {
	domain, err := pki.TrustDomain(&mi.Spec, mi.Mesh, p.State.Zone)
	if err != nil {
		return nil, &problem{"TrustDomainInvalid", err.Error()}
	}
	if holder := p.State.Domains.Get(r, "").Holder(domain); !p.State.Alone && !p.Global() && holder.Zone != "" && holder.Zone != p.State.Zone {
		return nil, &problem{"TrustDomainTaken", fmt.Sprintf("the trust domain %s is of the zone %q; choose another", domain, holder.Zone)}
	}
	text, err := pki.CAText(&mi.Spec, mi.Name, p.secrets(r, mi.Mesh))
	if err != nil {
		return nil, &problem{"CAMissing", err.Error()}
	}
	if text == nil {
		return &source{domain: domain}, nil
	}
	return parsed(source{domain: domain, text: text}, now)
}

// parsed is a source with its CA, if that may be used now.
func parsed(src source, now time.Time) (*source, *problem) {
	ca, err := pki.ParseCA(src.text)
	if err != nil {
		return nil, &problem{"CAInvalid", err.Error()}
	}
	if !now.Before(ca.NotAfter()) {
		return nil, &problem{"CAExpired", fmt.Sprintf("the CA ended at %s; replace it", written(ca.NotAfter()))}
	}
	if err := ca.MaySign(src.domain, now); err != nil {
		return nil, &problem{"CAInvalid", err.Error()}
	}
	src.ca = ca
	return &src, nil
}

// identity makes a MeshIdentity's CA and MeshTrust, brings a replaced CA into use, and says how it stands.
// One that is gone is followed until nobody holds a leaf of it.
func (p *Plan) identity(r *table.Reader, mesh, name string, now time.Time) ([]Step, time.Time) {
	rot := p.rotation(r, mesh, name, now)
	if name == kind.MTLSIdentity {
		p.mtls(rot)
		return rot.steps, rot.again
	}
	if p.Global() {
		p.vouchFor(rot)
		return rot.steps, rot.again
	}
	mi, ok := p.State.Identities.Find(r, mesh, name)
	if !ok {
		rot.retire()
		return rot.steps, rot.again
	}
	if _, ok := mi.Spec.SpireAgent(); ok {
		p.spire(rot, mi)
		return rot.steps, rot.again
	}
	rot.life = mi.Spec.CertificateLife()
	if b := mi.Spec.Provider.Bundled; b != nil {
		rot.byHand = b.MeshTrustCreation == "Disabled"
	}
	src, trouble := p.source(r, mi, now)
	switch {
	case trouble != nil:
		rot.signing.Next = nil // its root goes with it
	case src.ca == nil:
		rot.signing.Next = nil
		rot.do(Step{Make: &NewSecret{kind.Secrets.Key(mesh, pki.CASecretName(name)), newCA(src.domain)}})
		trouble = &problem{"CAMissing", "the certificate authority is being made"}
	default:
		rot.sources = []*source{src}
		trouble = rot.follow(src)
	}
	rot.prune()
	rot.store()
	conditions := append([]kind.Condition{rot.ready(trouble)}, rot.settled()...)
	conditions = append(conditions, p.namesSettled(r, mesh, name)...)
	conditions = append(conditions, p.mixture(r, mesh)...)
	rot.do(Step{Put: kind.MeshIdentityStatuses.Make(mesh, name, kind.MeshIdentityStatus{Conditions: conditions})})
	return rot.steps, rot.again
}

// newCA makes the certificate of a CA followed by its private key.
func newCA(domain string) func(time.Time) ([]byte, error) {
	return func(now time.Time) ([]byte, error) {
		certificate, key, err := pki.NewCA(now, domain)
		return append(certificate, key...), err
	}
}
