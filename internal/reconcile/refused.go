package reconcile

import (
	"fmt"
	"slices"
	"strings"

	"weft/internal/graph"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

const (
	// namedProxies are as many as a condition names.
	namedProxies = 5
	// quoted is how much of Envoy's words a condition repeats, in bytes.
	quoted = 1 << 10
)

// accepted is the type of the condition that says whether proxies take what a resource is made into.
const accepted = "Accepted"

// causeKey names a resource that configuration is made of.
type causeKey struct {
	Mesh  string
	Cause kind.Cause
}

func causeOf(key resource.Key) causeKey {
	return causeKey{key.Mesh, kind.Cause{Kind: key.Kind, Name: key.Name}}
}

// refusals are what proxies refuse of one resource's configuration now, and whether there is any new one.
type refusals struct {
	fault   string // why there is none: the panic of a function of ours
	proxies int
	names   string // of the first ones
	said    string // by the first one
}

func (p *Plan) refusedBy(r *table.Reader, key causeKey) refusals {
	var f refusals
	var names []string
	for _, fault := range p.State.FaultsByCause.List(r, graph.CauseKey(key.Mesh, key.Cause)) {
		f.fault = fault.Panic
	}
	for _, insight := range p.State.InsightsByCause.List(r, graph.CauseKey(key.Mesh, key.Cause)) {
		f.proxies++
		if len(names) < namedProxies {
			names = append(names, insight.Name)
		}
		if f.said == "" {
			f.said = said(&insight.Spec, key.Cause)
		}
	}
	f.names = strings.Join(names, ", ")
	return f
}

// said is what a proxy says of the first resource that has this cause.
func said(insight *kind.DataplaneInsight, c kind.Cause) string {
	i := slices.IndexFunc(insight.NACKs, func(refusal kind.NACK) bool { return slices.Contains(refusal.Causes, c) })
	refusal := &insight.NACKs[i] // the index found the row by it
	message := strings.ToValidUTF8(refusal.Message[:min(len(refusal.Message), quoted)], "")
	return fmt.Sprintf("%s %s: %s", refusal.Type, refusal.Name, message)
}

// conditions tell readers of the resource; none where nobody refuses anything.
func (f refusals) conditions() []kind.Condition {
	switch {
	case f.fault != "":
		return []kind.Condition{{
			Type: accepted, Status: "False", Reason: "TranslationFailed",
			Message: fmt.Sprintf("its configuration can't be made, and proxies keep what they had; this is a bug in weft, of which the control plane's log has the details: %s", f.fault),
		}}
	case f.proxies == 0:
		return nil
	}
	names := f.names
	if f.proxies > namedProxies {
		names += fmt.Sprintf(" and %d more", f.proxies-namedProxies)
	}
	what := "1 proxy refuses what it is made into, and keeps what it had"
	if f.proxies > 1 {
		what = fmt.Sprintf("%d proxies refuse what it is made into, and keep what they had", f.proxies)
	}
	return []kind.Condition{{
		Type: accepted, Status: "False", Reason: "RejectedByProxies",
		Message: fmt.Sprintf("%s (%s): %s", what, names, f.said),
	}}
}

// permission says of a MeshTrafficPermission whether proxies take it.
func (p *Plan) permission(r *table.Reader, u Unit) (w Writes) {
	if _, ok := p.State.Permissions.Find(r, u.Mesh, u.Name); !ok {
		return w
	}
	conditions := p.refused.Get(r, causeOf(resource.Key(u))).conditions()
	stored, told := p.State.PermissionStatuses.Find(r, u.Mesh, u.Name)
	if told || len(conditions) > 0 {
		status := kind.MeshTrafficPermissionStatus{Conditions: conditions}
		put(&w, calmly, stored, kind.MeshTrafficPermissionStatuses.Make(u.Mesh, u.Name, status))
	}
	return w
}

// trust says of a MeshTrust whether proxies take it, and what it was made for.
func (p *Plan) trust(r *table.Reader, u Unit) (w Writes) {
	if _, ok := p.State.Trusts.Find(r, u.Mesh, u.Name); !ok {
		return w
	}
	status := kind.MeshTrustStatus{Conditions: p.refused.Get(r, causeOf(resource.Key(u))).conditions()}
	stored, told := p.State.TrustStatuses.Find(r, u.Mesh, u.Name)
	if told {
		status.Origin = stored.Spec.Origin
	}
	ca, ok := p.State.SigningCAs.Find(r, u.Mesh, u.Name)
	if made := ok && len(ca.Spec.Roots) > 0; made {
		status.Origin = &kind.TrustOrigin{KRI: p.origin(u.Mesh, u.Name)}
	} else if p.Global() {
		return w // its zone says whether proxies take it
	}
	switch {
	case told:
		put(&w, calmly, stored, kind.MeshTrustStatuses.Make(u.Mesh, u.Name, status))
	case status.Origin != nil || len(status.Conditions) > 0:
		put(&w, soon, stored, kind.MeshTrustStatuses.Make(u.Mesh, u.Name, status))
	}
	return w
}

// origin names what a MeshTrust was made for: a MeshIdentity, or the mtls of its mesh.
func (p *Plan) origin(mesh, name string) string {
	if name == kind.MTLSIdentity {
		return fmt.Sprintf("kri_m____%s_", mesh)
	}
	return fmt.Sprintf("kri_mid_%s_%s__%s_", mesh, p.State.Zone, name)
}
