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

// compatible is the type of the condition for the compatibility of certificates within a mesh.
const compatible = "Compatible"

// mixedProviders is the reason of Compatible=False.
const mixedProviders = "MixedProviders"

// reconcileSPIRE retires the CA that a MeshIdentity used before SPIRE, and writes the status. The certificates of SPIRE
// are known from the insights, where each agent reports them.
func (p *Plan) reconcileSPIRE(rot *rotation, mi *resource.Object[kind.MeshIdentity]) {
	rot.retire()
	ready := kind.Condition{Type: "Ready", Status: "True", Reason: "Ready",
		Message: "certificates come from the SPIRE agent of each proxy's machine"}
	if _, err := pki.TrustDomain(&mi.Spec, mi.Mesh, p.State.Zone); err != nil {
		ready = kind.Condition{Type: "Ready", Status: "False", Reason: "TrustDomainInvalid", Message: err.Error()}
	}
	conditions := append([]kind.Condition{ready}, rot.rotationConverged()...)
	rot.addStep(Step{Put: kind.MeshIdentityStatuses.Make(rot.mesh, rot.name, kind.MeshIdentityStatus{
		Conditions: append(conditions, p.mixedProvidersCondition(rot.r, rot.mesh)...),
	})})
}

// mixedProvidersCondition returns Compatible=False where some proxies of a mesh have certificates from SPIRE and others
// do not, or from another trust domain there: these proxies can't connect. It returns none where all match. (Zone
// Egress Identity.)
func (p *Plan) mixedProvidersCondition(r *table.Reader, mesh string) []kind.Condition {
	issuers := p.State.MixedIssuers(r, mesh)
	if len(issuers) == 0 {
		return nil
	}
	return []kind.Condition{{Type: compatible, Status: "False", Reason: mixedProviders, Message: fmt.Sprintf(
		"certificates of the mesh come from %s; proxies with those of one reject proxies with those of another, "+
			"since SPIRE's roots can't be joined with others: use one for the whole mesh",
		strings.Join(issuers, " and from "))}}
}

// warnMixed logs that a mesh has mixed providers, once while it lasts and this replica is the leader.
func (rc *Reconciler) warnMixed(next resource.Any) {
	status, ok := next.(*resource.Object[kind.MeshIdentityStatus])
	if !ok {
		return
	}
	condition, mixed := conditionOf(status.Spec.Conditions, compatible)
	if mixed && !rc.mixed[status.Mesh] {
		rc.log.Warn("MeshIdentities of a mesh have providers that don't go together", "mesh", status.Mesh, "problem",
			condition.Message)
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
