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
func (p *Plan) permission(r *table.Reader, mesh, name string) []Step {
	if _, ok := p.State.Permissions.Find(r, mesh, name); !ok {
		return nil
	}
	conditions := p.refused.Get(r, causeOf(kind.MeshTrafficPermissions.Key(mesh, name))).conditions()
	if _, told := p.State.PermissionStatuses.Find(r, mesh, name); !told && len(conditions) == 0 {
		return nil
	}
	status := kind.MeshTrafficPermissionStatus{Conditions: conditions}
	return []Step{{Put: kind.MeshTrafficPermissionStatuses.Make(mesh, name, status)}}
}

// trust says of a MeshTrust whether proxies take it. Where it comes from is for whoever made it to say.
func (p *Plan) trust(r *table.Reader, mesh, name string) []Step {
	if _, ok := p.State.Trusts.Find(r, mesh, name); !ok {
		return nil
	}
	status := kind.MeshTrustStatus{Conditions: p.refused.Get(r, causeOf(kind.MeshTrusts.Key(mesh, name))).conditions()}
	told, ok := p.State.TrustStatuses.Find(r, mesh, name)
	switch {
	case ok:
		status.Origin = told.Spec.Origin
	case len(status.Conditions) == 0:
		return nil
	}
	return []Step{{Put: kind.MeshTrustStatuses.Make(mesh, name, status)}}
}

// followRefusals keeps an eye on what is refused of a resource that has a status for it alone.
func (rc *Reconciler) followRefusals(key causeKey) {
	if rc.pinnedCauses[key] {
		return
	}
	rc.pinnedCauses[key] = true
	rc.plan.refused.Pin(key)
}

func (rc *Reconciler) forgetRefusals(key causeKey) {
	if rc.pinnedCauses[key] {
		delete(rc.pinnedCauses, key)
		rc.plan.refused.Unpin(key)
	}
}

func (k causeKey) unit() Unit { return Unit{k.Cause.Kind, k.Mesh, k.Cause.Name} }
