package admission

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"weft/internal/identity"
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
	case *resource.Object[kind.MeshTrafficPermission]:
		return append(PolicyWarnings(o), w.permissionWarnings(ctx, o)...)
	case *resource.Object[kind.MeshTimeout]:
		return slices.Concat(PolicyWarnings(o), connectionsOfRoutes(o.Spec.To),
			w.ruleWarnings(ctx, o.Mesh, kind.MeshTimeouts.Parts(o)))
	case *resource.Object[kind.MeshRateLimit]:
		return append(PolicyWarnings(o), w.ruleWarnings(ctx, o.Mesh, kind.MeshRateLimits.Parts(o))...)
	case *resource.Object[kind.MeshFaultInjection]:
		return append(PolicyWarnings(o), w.ruleWarnings(ctx, o.Mesh, kind.MeshFaultInjections.Parts(o))...)
	case *resource.Object[kind.MeshProxyPatch]:
		return slices.Concat(PolicyWarnings(o), w.unlistedTypes(&o.Spec), invalidResults(&o.Spec))
	case *resource.Object[kind.MeshExternalService]:
		return w.externalWarnings(ctx, o)
	}
	return PolicyWarnings(o)
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

// PolicyWarnings returns the warnings that depend on a policy alone. They are in its status too.
func PolicyWarnings(o resource.Any) []string { return append(withoutEffect(o), contentWarnings(o)...) }

// withoutEffect warns of a policy without items, and of items whose conf is empty. A permission without callers has a
// warning of its own.
func withoutEffect(o resource.Any) (warnings []string) {
	k, ok := kind.ByName(o.Key().Kind).(kind.Policy)
	if !ok || o.Key().Kind == kind.MeshTrafficPermissions.Name {
		return nil
	}
	parts := k.Parts(o)
	if parts.Default == nil && len(parts.To)+len(parts.Rules) == 0 {
		return []string{"spec: has no item of `to` or `rules`, so that the policy has no effect"}
	}
	empty := func(field string, i int, conf any) {
		if reflect.ValueOf(conf).Elem().IsZero() {
			warnings = append(warnings, fmt.Sprintf("spec.%s[%d].default: is empty, so that the item has no effect",
				field, i))
		}
	}
	for i := range parts.To {
		empty("to", i, parts.To[i].Conf)
	}
	for i := range parts.Rules {
		empty("rules", i, parts.Rules[i].Conf)
	}
	return warnings
}

// contentWarnings are the warnings of a kind about what its policies say.
func contentWarnings(o resource.Any) []string {
	switch o := o.(type) {
	case *resource.Object[kind.MeshTrafficPermission]:
		return noCallers(o.Spec.Rules)
	case *resource.Object[kind.MeshTimeout]:
		return longConnections(o.Spec.To)
	case *resource.Object[kind.MeshCircuitBreaker]:
		return slices.Concat(unsplitErrors(o.Spec.To), neverEjected(o.Spec.Rules), limitsOfAll(&o.Spec))
	case *resource.Object[kind.MeshHealthCheck]:
		return checksOfAll(&o.Spec)
	case *resource.Object[kind.MeshRetry]:
		return methodsAlone(o.Spec.To)
	case *resource.Object[kind.MeshTLS]:
		return tlsWarnings(o.Spec.Rules)
	case *resource.Object[kind.MeshPassthrough]:
		if conf := &o.Spec.Default; len(conf.AppendMatch) > 0 && conf.Mode() != kind.PassthroughMatched {
			return []string{fmt.Sprintf("spec.default.appendMatch: has no effect while passthroughMode is %s; it "+
				"needs Matched", conf.Mode())}
		}
	case *resource.Object[kind.MeshRateLimit]:
		return unusedStatuses(o.Spec.Rules)
	case *resource.Object[kind.MeshProxyPatch]:
		return patchWarnings(&o.Spec)
	}
	return nil
}

// noCallers warns of a permission that names no caller.
func noCallers(rules []kind.PermissionRule) []string {
	if slices.ContainsFunc(rules, func(r kind.PermissionRule) bool {
		return len(r.Default.Allow)+len(r.Default.AllowWithShadowDeny)+len(r.Default.Deny) > 0
	}) {
		return nil
	}
	return []string{"spec.rules: names no caller: the policy allows and denies no caller, so the inbounds that it " +
		"selects deny every caller that no other policy allows"}
}

// longConnections warns of connections between proxies that outlive the default.
func longConnections(items []kind.ToItem[kind.TimeoutConf]) []string {
	var warnings []string
	for i := range items {
		d := items[i].Default.Requests().MaxConnectionDuration
		if d == nil || *d > 0 && time.Duration(*d) <= identity.ConnectionLife {
			continue
		}
		warnings = append(warnings, fmt.Sprintf("spec.to[%d].default.http.maxConnectionDuration: is longer than the "+
			"default of %s: a peer that is evicted, or that a permission denies, may keep an open connection for as "+
			"long", i, identity.ConnectionLife))
	}
	return warnings
}

// connectionsOfRoutes warns of timeouts of connections of a route, whose requests share them with all others.
func connectionsOfRoutes(items []kind.ToItem[kind.TimeoutConf]) []string {
	var warnings []string
	for i := range items {
		if items[i].TargetRef.Kind != kind.MeshHTTPRoutes.Name {
			continue
		}
		for _, field := range items[i].Default.OfConnections() {
			warnings = append(warnings, fmt.Sprintf("spec.to[%d].default.%s: has no effect: it is about connections, "+
				"which the requests of all routes share; target the service", i, field))
		}
	}
	return warnings
}

// unsplitErrors warns of detectors of failures to reach an endpoint that count them apart although the policy does not
// split them.
func unsplitErrors(items []kind.ToItem[kind.CircuitBreakerConf]) []string {
	var warnings []string
	for i := range items {
		o := items[i].Default.Outliers()
		if split := o.SplitExternalAndLocalErrors; split != nil && !*split && o.Detection().LocalOriginFailures != nil {
			warnings = append(warnings, fmt.Sprintf("spec.to[%d].default.outlierDetection."+
				"splitExternalAndLocalErrors: false has no effect beside detectors.localOriginFailures, which counts "+
				"these errors apart", i))
		}
	}
	return warnings
}

// limitsOfAll warns of limits that hold for zone proxies too, which carry the traffic of many clients.
func limitsOfAll(p *kind.MeshCircuitBreaker) []string {
	if p.TargetRef != nil && p.TargetRef.Kind != "Mesh" {
		return nil
	}
	var warnings []string
	for i := range p.To {
		if p.To[i].Default.ConnectionLimits != nil {
			warnings = append(warnings, fmt.Sprintf("spec.to[%d].default.connectionLimits: also holds for the zone "+
				"proxies of the mesh, for the traffic of all their clients together; target Dataplanes by labels to "+
				"leave them out", i))
		}
	}
	return warnings
}

// neverEjected warns of detectors of failures of an application that have no effect, unless another policy sets the
// panic threshold.
func neverEjected(rules []kind.ReceivedItem[kind.CircuitBreakerConf]) []string {
	var warnings []string
	for i := range rules {
		o := rules[i].Default.Outliers()
		if o.Detection() == (kind.Detectors{}) || o.HealthyPanicThreshold != nil && *o.HealthyPanicThreshold == 0 {
			continue
		}
		warnings = append(warnings, fmt.Sprintf("spec.rules[%d].default.outlierDetection: an application is the only "+
			"endpoint of its inbound, so it is ejected only with healthyPanicThreshold: 0", i))
	}
	return warnings
}

// methodsAlone warns of methods that have no causes of their own.
func methodsAlone(items []kind.ToItem[kind.RetryConf]) []string {
	var warnings []string
	for i := range items {
		h := items[i].Default.HTTP
		if h == nil || len(h.RetryOn) == 0 || len(h.RetriableResponseHeaders) > 0 ||
			slices.ContainsFunc(h.RetryOn, isCause) {
			continue
		}
		warnings = append(warnings, fmt.Sprintf("spec.to[%d].default.http.retryOn: has methods and no cause, so it "+
			"changes nothing; add a cause, such as 5xx", i))
	}
	return warnings
}

// checksOfAll warns of checks that every proxy of a mesh sends to every endpoint.
func checksOfAll(p *kind.MeshHealthCheck) []string {
	if p.TargetRef != nil && p.TargetRef.Kind != "Mesh" {
		return nil
	}
	var warnings []string
	for i := range p.To {
		if p.To[i].TargetRef.Kind == "Mesh" {
			warnings = append(warnings, fmt.Sprintf("spec.to[%d]: every proxy of the mesh checks every endpoint that "+
				"it reaches, in each interval; target some Dataplanes, or the services that need checks", i))
		}
	}
	return warnings
}

// tlsWarnings warns of confs that expose inbounds, or with which no handshake succeeds.
func tlsWarnings(rules []kind.ReceivedItem[kind.TLSConf]) []string {
	var warnings []string
	for i := range rules {
		conf := &rules[i].Default
		if conf.Mode == kind.TLSPermissive {
			warnings = append(warnings, fmt.Sprintf("spec.rules[%d].default.mode: is Permissive: a plaintext "+
				"connection has no identity, so no MeshTrafficPermission applies to it", i))
		}
		if !conf.FitsECDSA() {
			warnings = append(warnings, fmt.Sprintf("spec.rules[%d].default.tlsCiphers: has none for ECDSA keys, "+
				"which the certificates of this control plane have: their connections fail with TLS 1.2", i))
		}
	}
	return warnings
}

// unusedStatuses warns of statuses that Envoy replaces.
func unusedStatuses(rules []kind.RuleItem[kind.RateLimitConf]) []string {
	var warnings []string
	for i := range rules {
		if r := rules[i].Default.Requests().OnRateLimit; r != nil && r.Status != nil && *r.Status < 400 {
			warnings = append(warnings, fmt.Sprintf("spec.rules[%d].default.local.http.onRateLimit.status: is %d: "+
				"Envoy responds with 429 in place of a status below 400", i, *r.Status))
		}
	}
	return warnings
}

// isCause reports whether an entry of HTTPRetries.RetryOn is no method.
func isCause(entry string) bool { return !strings.HasPrefix(entry, kind.HTTPMethodPrefix) }

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
