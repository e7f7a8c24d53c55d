package reconcile

import (
	"fmt"
	"log/slog"
	"strings"

	"weft/internal/pki"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// compatible is the type of the condition for the compatibility of certificates within a mesh.
const compatible = "Compatible"

// mixedProviders is the reason of Compatible=False.
const mixedProviders = "MixedProviders"

// spire retires the CA that a MeshIdentity used before SPIRE, and writes the status. The certificates of SPIRE
// are known from the insights, where each agent reports them.
func (p *Plan) spire(rot *rotation, mi *resource.Object[kind.MeshIdentity]) {
	rot.retire()
	ready := kind.Condition{Type: "Ready", Status: "True", Reason: "Ready",
		Message: "certificates come from the SPIRE agent of each proxy's machine"}
	if _, err := pki.TrustDomain(&mi.Spec, mi.Mesh, p.State.Tables.Zone); err != nil {
		ready = kind.Condition{Type: "Ready", Status: "False", Reason: "TrustDomainInvalid",
			Message: resource.Line(err)}
	}
	conditions := append([]kind.Condition{ready}, rot.rotationConverged()...)
	rot.putStatus(append(conditions, p.mixedProvidersCondition(rot.r, rot.mesh)...))
}

// mixedProvidersCondition returns Compatible=False where some proxies of a mesh have certificates from SPIRE and others
// do not, or from another trust domain there: these proxies can't connect. It returns none where all match. (Zone
// Egress Identity.)
func (p *Plan) mixedProvidersCondition(r *table.Reader, mesh string) []kind.Condition {
	issuers := p.State.Identity.MixedIssuers(r, mesh)
	if len(issuers) == 0 {
		return nil
	}
	return []kind.Condition{{Type: compatible, Status: "False", Reason: mixedProviders, Message: fmt.Sprintf(
		"certificates of the mesh come from %s; proxies with those of one reject proxies with those of another, "+
			"since SPIRE's roots can't be joined with others: use one for the whole mesh",
		strings.Join(issuers, " and from "))}}
}

// ProvidersKind is the kind of requests for the providers of a mesh's certificates.
const ProvidersKind = "providers"

// providers reports mixed providers in the log, once for a mesh and not for each of its MeshIdentities.
func (p *Plan) providers(r *table.Reader, u Request) (w Writes) {
	for _, problem := range p.mixedProvidersCondition(r, u.Mesh) {
		w.Notices = []Notice{{slog.LevelWarn, "MeshIdentities of a mesh have providers that don't go together",
			[]any{"mesh", u.Mesh, "problem", problem.Message}}}
	}
	return w
}
