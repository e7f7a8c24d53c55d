package reconcile

import (
	"fmt"
	"slices"
	"strings"

	"weft/internal/pki"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// compatible is the type of the condition that says whether all proxies of a mesh can prove to each other who
// they are.
const compatible = "Compatible"

// mixedProviders is the reason where not all can.
const mixedProviders = "MixedProviders"

// spire ends what a MeshIdentity signed before SPIRE took over, and says how it stands. What SPIRE does is known
// from what each proxy's agent sees, which stands in its insight.
func (p *Plan) spire(rot *rotation, mi *resource.Object[kind.MeshIdentity]) {
	rot.retire()
	ready := kind.Condition{Type: "Ready", Status: "True", Reason: "Ready", Message: "certificates come from the SPIRE agent of each proxy's machine"}
	if _, err := pki.TrustDomain(&mi.Spec, mi.Mesh, p.State.Zone); err != nil {
		ready = kind.Condition{Type: "Ready", Status: "False", Reason: "TrustDomainInvalid", Message: err.Error()}
	}
	conditions := append([]kind.Condition{ready}, rot.settled()...)
	rot.do(Step{Put: kind.MeshIdentityStatuses.Make(rot.mesh, rot.name, kind.MeshIdentityStatus{
		Conditions: append(conditions, p.mixture(rot.r, rot.mesh)...),
	})})
}

// mixture says that some proxies of a mesh have certificates from SPIRE and others have not, or of another trust
// domain there: they refuse each other. Nothing where they are of one kind. (Zone Egress Identity.)
func (p *Plan) mixture(r *table.Reader, mesh string) []kind.Condition {
	issuers := p.State.MixedIssuers(r, mesh)
	if len(issuers) == 0 {
		return nil
	}
	return []kind.Condition{{Type: compatible, Status: "False", Reason: mixedProviders, Message: fmt.Sprintf(
		"certificates of the mesh come from %s; proxies with those of one refuse proxies with those of another, since SPIRE's roots can't be joined with others: use one for the whole mesh",
		strings.Join(issuers, " and from "))}}
}

// warnMixed logs that a mesh is mixed, once for as long as it is and this instance leads.
func (rc *Reconciler) warnMixed(next resource.Any) {
	status, ok := next.(*resource.Object[kind.MeshIdentityStatus])
	if !ok {
		return
	}
	condition, mixed := conditionOf(status.Spec.Conditions, compatible)
	if mixed && !rc.mixed[status.Mesh] {
		rc.log.Warn("MeshIdentities of a mesh have providers that don't go together", "mesh", status.Mesh, "problem", condition.Message)
	}
	rc.mixed[status.Mesh] = mixed
}

func conditionOf(conditions []kind.Condition, of string) (kind.Condition, bool) {
	i := slices.IndexFunc(conditions, func(c kind.Condition) bool { return c.Type == of })
	if i < 0 {
		return kind.Condition{}, false
	}
	return conditions[i], true
}
