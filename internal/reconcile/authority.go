package reconcile

import (
	"fmt"
	"strings"
	"time"

	"weft/internal/pki"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// source is the CA of a MeshIdentity, or of a backend of a mesh's mtls.
type source struct {
	domain  string
	backend string // name of the mtls backend, empty for a MeshIdentity
	text    []byte
	ca      *pki.CA // nil until the CA has been generated
}

// problem is the reason and the message of the condition for a source that can't be used.
type problem struct{ reason, message string }

// source returns the CA of a MeshIdentity, or the problem that prevents its use.
func (p *Plan) source(r *table.Reader, mi *resource.Object[kind.MeshIdentity]) (*source, *problem) {
	domain, err := pki.TrustDomain(&mi.Spec, mi.Mesh, p.State.Tables.Zone)
	if err != nil {
		return nil, &problem{"TrustDomainInvalid", resource.Line(err)}
	}
	if holder := p.State.Identity.Domains.Get(r, "").Holder(domain); !p.State.Tables.Standalone && !p.Global() &&
		holder.Zone != "" &&
		holder.Zone != p.State.Tables.Zone {
		return nil,
			&problem{"TrustDomainTaken", fmt.Sprintf("the trust domain %s is of the zone %q; choose another", domain,
				holder.Zone)}
	}
	if trouble := ofControlPlane(mi, ""); trouble != nil {
		return nil, trouble
	}
	text, err := pki.CAText(&mi.Spec, mi.Name, p.secrets(r, mi.Mesh))
	if err != nil {
		return nil, &problem{"CAMissing", resource.Line(err)}
	}
	if text == nil {
		return &source{domain: domain}, nil
	}
	return parseSource(r, source{domain: domain, text: text})
}

// ofControlPlane returns the problem of a resource that refers to a generated Secret in a field with a prefix; nil:
// there is none.
func ofControlPlane(o resource.Any, prefix string) *problem {
	for _, reference := range pki.GeneratedReferences(o) {
		if strings.HasPrefix(reference.Field, prefix) {
			return &problem{"SecretOfControlPlane",
				fmt.Sprintf("%s: %q %s", reference.Field, reference.Secret, pki.GeneratedProblem)}
		}
	}
	return nil
}

// parseSource returns the source with its parsed CA, or a problem where the CA is invalid or expired.
func parseSource(r *table.Reader, src source) (*source, *problem) {
	ca, err := pki.ParseCA(src.text)
	if err != nil {
		return nil, &problem{"CAInvalid", resource.Line(err)}
	}
	if r.Past(ca.NotAfter()) {
		return nil, &problem{"CAExpired", fmt.Sprintf("the CA ended at %s; replace it", formatTime(ca.NotAfter()))}
	}
	r.Past(ca.NotBefore()) // a CA of later is valid from then on
	if err := ca.MaySign(src.domain, r.Now()); err != nil {
		return nil, &problem{"CAInvalid", resource.Line(err)}
	}
	src.ca = ca
	return &src, nil
}

// identity generates the CA and the MeshTrust of a MeshIdentity, rotates a replaced CA, and writes the status. A
// deleted MeshIdentity has writes until no proxy holds one of its certificates.
func (p *Plan) identity(r *table.Reader, u Request) Writes {
	rot := p.rotation(r, u.Mesh, u.Name)
	mi, ok := p.State.Tables.Identities.Find(r, u.Mesh, u.Name)
	switch {
	case u.Name == kind.MTLSIdentity:
		p.mtls(rot)
	case p.Global():
		p.vouchFor(rot)
	case !ok:
		rot.retire()
	case mi.Spec.Provider.Type == kind.Spire:
		p.spire(rot, mi)
	default:
		p.bundled(rot, mi)
	}
	return rot.writes
}

// bundled signs with the CA of a MeshIdentity.
func (p *Plan) bundled(rot *rotation, mi *resource.Object[kind.MeshIdentity]) {
	r := rot.r
	rot.life = mi.Spec.CertificateLife()
	if b := mi.Spec.Provider.Bundled; b != nil {
		rot.manualTrust = b.MeshTrustCreation == "Disabled"
	}
	src, trouble := p.source(r, mi)
	switch {
	case trouble != nil:
		rot.signing.Next = nil // prune then removes the root of the next CA too
	case src.ca == nil:
		rot.signing.Next = nil
		rot.addWrite(Write{Make: &NewSecret{kind.Secrets.Key(rot.mesh, pki.CASecretName(rot.name)), newCA(src.domain)}})
		trouble = &problem{"CAMissing", "the certificate authority is being made"}
	default:
		rot.sources = []*source{src}
		trouble = rot.follow(src)
	}
	rot.prune()
	rot.store()
	conditions := append([]kind.Condition{rot.ready(trouble)}, rot.rotationConverged()...)
	conditions = append(conditions, p.identityConverged(r, rot.mesh, rot.name)...)
	rot.putStatus(append(conditions, p.mixedProvidersCondition(r, rot.mesh)...))
}

// newCA returns a function that generates a CA: the certificate, followed by the private key, in PEM.
func newCA(domain string) func(time.Time) ([]byte, error) {
	return func(now time.Time) ([]byte, error) {
		certificate, key, err := pki.NewCA(now, domain)
		return append(certificate, key...), err
	}
}
