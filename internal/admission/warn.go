package admission

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"time"

	"weft/internal/store"
	"weft/kind"
	"weft/resource"
)

// deprecations returns the warnings about older forms in a resource as its user wrote it.
func deprecations(written resource.Any) []string {
	if k, ok := kind.ByName(written.Key().Kind).(kind.Policy); ok {
		return k.Deprecations(written)
	}
	return kind.ServedAs(written)
}

// warnings returns the warnings about a valid resource that may not do what the user intends. before is nil for a new
// resource.
func (w *Writer) warnings(ctx context.Context, before, o resource.Any) []string {
	switch o := o.(type) {
	case *resource.Object[kind.Mesh]:
		former, _ := before.(*resource.Object[kind.Mesh])
		return slices.Concat(memberWarnings(o.Spec.DataplaneProxyMembership), w.evictionWarnings(ctx, former, o),
			w.egressWarnings(ctx, former, o))
	case *resource.Object[kind.Dataplane]:
		if n := &o.Spec.Networking; len(n.Inbound)+len(n.Outbound) == 0 && n.ZoneIngress == nil &&
			n.ZoneEgress == nil && n.TransparentProxying == nil {
			return []string{"networking: has no inbound, no outbound, no transparentProxying and no section of a " +
				"zone proxy: its proxy carries no traffic"}
		}
	case *resource.Object[kind.MeshIdentity]:
		if s := o.Spec.Selector; s == nil || s.Dataplane == nil {
			return []string{"spec.selector: without `dataplane` it selects no proxy; `dataplane: {matchLabels: {}}` " +
				"selects every proxy"}
		}
		return w.labelsInPath(&o.Spec)
	case *resource.Object[kind.Zone]:
		if w.self().Global() {
			return nil
		}
		return []string{"this control plane serves one zone, its own: no other zone connects to it, whatever " +
			"its Zone says"}
	case *resource.Object[kind.MeshTrust]:
		return expiredRoots(o, time.Now())
	case *resource.Object[kind.MeshExternalService]:
		return w.externalWarnings(ctx, o)
	}
	if of, ok := kind.ByName(o.Key().Kind).(kind.Policy); ok {
		return slices.Concat(kind.PolicyWarnings(o), kind.UnusedFields(o), w.policyWarnings(ctx, of, o))
	}
	return nil
}

// policyWarnings returns the warnings about a policy that depend on what is stored, or on the settings.
func (w *Writer) policyWarnings(ctx context.Context, of kind.Policy, o resource.Any) []string {
	switch o := o.(type) {
	case *resource.Object[kind.MeshTrafficPermission]:
		return w.permissionWarnings(ctx, o)
	case *resource.Object[kind.MeshProxyPatch]:
		return w.patchWarnings(&o.Spec)
	}
	return w.ruleWarnings(ctx, o.Key().Mesh, of.Parts(o))
}

// externalWarnings warns of an external service that no client can use.
func (w *Writer) externalWarnings(ctx context.Context, o *resource.Object[kind.MeshExternalService]) []string {
	var warnings []string
	if len(o.Spec.Endpoints) == 0 {
		warnings = append(warnings, "spec.endpoints: is empty, so that each request to the service fails")
	}
	if !w.hasIdentity(ctx, o.Mesh) {
		warnings = append(warnings, fmt.Sprintf("mesh %q has no MeshIdentity and no mtls: external services are "+
			"reached through zone egresses, which require mutual TLS, so no client can reach it until there is one",
			o.Mesh))
	}
	return warnings
}

// labelsInPath warns of labels in the SPIFFE IDs of Pods, whose authors choose them.
func (w *Writer) labelsInPath(m *kind.MeshIdentity) []string {
	if w.env != kind.Kubernetes || m.SpiffeID == nil {
		return nil
	}
	t, err := kind.ParseTemplate(m.SpiffeID.Path, kind.PathActions)
	if err != nil || len(t.Labels()) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("spec.spiffeID.path: has the labels %s, which the author of a Pod chooses; {{ "+
		".Namespace }} and {{ .ServiceAccount }} are those of the Pod", strings.Join(t.Labels(), ", "))}
}

// hasIdentity returns whether a mesh has a MeshIdentity, or mtls in the Mesh. Without either, callers have no identity
// and permissions are not enforced. Where the store fails it returns true, so that there is no warning.
func (w *Writer) hasIdentity(ctx context.Context, mesh string) bool {
	rows, _, err := w.rows.List(ctx, kind.MeshIdentities.Name)
	if err != nil || slices.ContainsFunc(rows, func(row store.Row) bool { return row.Key.Mesh == mesh }) {
		return true
	}
	m, err := w.mesh(ctx, mesh)
	return err != nil || m.Spec.MTLS.SigningBackend() != nil
}

func expiredRoots(o *resource.Object[kind.MeshTrust], now time.Time) []string {
	var warnings []string
	for i, bundle := range o.Spec.CABundles {
		for block, rest := pem.Decode([]byte(bundle.PEM.Value)); block != nil; block, rest = pem.Decode(rest) {
			if cert, err := x509.ParseCertificate(block.Bytes); err == nil && now.After(cert.NotAfter) {
				warnings = append(warnings, fmt.Sprintf("spec.caBundles[%d]: %s has expired on %s", i, cert.Subject,
					cert.NotAfter.UTC().Format(time.DateOnly)))
			}
		}
	}
	return warnings
}
