package reconcile

import (
	"fmt"
	"slices"
	"strings"

	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

const (
	// maxNamedRejecting is the number of proxies that a condition names.
	maxNamedRejecting = 5
	// maxQuotedBytes is the number of bytes of Envoy's message that a condition quotes.
	maxQuotedBytes = 1 << 10
)

// causeKey identifies a resource from which configuration is made.
type causeKey struct {
	Mesh  string
	Cause kind.Cause
}

func causeOf(key resource.Key) causeKey {
	return causeKey{key.Mesh, kind.Cause{Kind: key.Kind, Name: key.Name}}
}

// nackSummary summarizes the NACKs of one resource's configuration, and the failure of its translation.
type nackSummary struct {
	fault   string // panic of a translation function, empty where translation succeeds
	proxies int
	names   string // of the first maxNamedRejecting proxies
	message string // message of the first proxy
}

func (p *Plan) summarizeNACKs(r *table.Reader, key causeKey) nackSummary {
	var f nackSummary
	var names []string
	for _, fault := range p.State.Tables.FaultsByCause.List(r, state.CauseKey(key.Mesh, key.Cause)) {
		f.fault = resource.OneLine(fault.Panic)
	}
	for _, nacked := range p.State.Tables.NACKsOf(r, key.Mesh, key.Cause) {
		f.proxies++
		if len(names) < maxNamedRejecting {
			names = append(names, p.proxyName(nacked.Insight))
		}
		if f.message == "" {
			f.message = nackMessage(&nacked.Insight.Spec, nacked.Cause)
		}
	}
	f.names = strings.Join(names, ", ")
	return f
}

// proxyName returns the name of a proxy in its zone, and on global the zone too.
func (p *Plan) proxyName(insight *resource.Object[kind.DataplaneInsight]) string {
	if !p.Global() {
		return insight.Name
	}
	return kind.OwnerName(&kind.Dataplanes.Info, &insight.Meta) + " of the zone " + p.State.Tables.ZoneOf(&insight.Meta)
}

// nackMessage returns a proxy's message about its first NACK with this cause.
func nackMessage(insight *kind.DataplaneInsight, c kind.Cause) string {
	i := slices.IndexFunc(insight.NACKs, func(nack kind.NACK) bool { return slices.Contains(nack.Causes, c) })
	nack := &insight.NACKs[i] // exists: the index is made of the same causes
	return fmt.Sprintf("%s %s: %s", nack.Type, nack.Name, quoted(nack.Message))
}

// quoted returns a message of Envoy as a condition has it: at most [maxQuotedBytes], as one line.
func quoted(message string) string {
	return resource.OneLine(strings.ToValidUTF8(message[:min(len(message), maxQuotedBytes)], ""))
}

// conditions returns the condition Accepted=False; none where no proxy has rejected the configuration.
func (f nackSummary) conditions() []kind.Condition {
	switch {
	case f.fault != "":
		return []kind.Condition{{
			Type: kind.AcceptedCondition, Status: "False", Reason: "TranslationFailed",
			Message: fmt.Sprintf(
				"its configuration can't be made, and proxies keep the previous one; this is a bug in "+
					"weft, of which the control plane's log has the details: %s", f.fault),
		}}
	case f.proxies == 0:
		return nil
	}
	names := f.names
	if f.proxies > maxNamedRejecting {
		names += fmt.Sprintf(" and %d more", f.proxies-maxNamedRejecting)
	}
	what := "1 proxy rejects its configuration, and keeps the previous one"
	if f.proxies > 1 {
		what = fmt.Sprintf("%d proxies reject its configuration, and keep the previous one", f.proxies)
	}
	return []kind.Condition{{
		Type: kind.AcceptedCondition, Status: "False", Reason: "RejectedByProxies",
		Message: fmt.Sprintf("%s (%s): %s", what, names, f.message),
	}}
}

// policy writes the status of a policy of any kind: the condition Accepted where it is False. The others are computed
// when they are read, and on Kubernetes stored too.
func (p *Plan) policy(r *table.Reader, u Request) (w Writes) {
	if _, ok := p.State.Tables.Find(r, resource.Key(u)); !ok {
		return w
	}
	conditions := p.nacks.Get(r, causeOf(resource.Key(u))).conditions()
	if len(conditions) == 0 {
		conditions = p.conflictConditions(r, resource.Key(u))
	}
	if len(conditions) == 0 {
		conditions = p.takenBack(r, resource.Key(u))
	}
	if len(conditions) == 0 {
		conditions = p.unpermitted(r, resource.Key(u))
	}
	stored, told := p.State.Tables.PolicyRows[u.Kind].Statuses.Find(r, u.Mesh, u.Name)
	var old kind.PolicyStatus
	if told {
		old = stored.Spec
	}
	conditions = p.withComputed(r, resource.Key(u), conditions, old.Conditions)
	if told || len(conditions) > 0 {
		status := kind.StatusKind(u.Kind).(*resource.Kind[kind.PolicyStatus])
		putIfDifferent(&w, statusDelay, stored, status.Make(u.Mesh, u.Name, kind.PolicyStatus{Conditions: conditions}))
	}
	return w
}

// unpermitted returns the condition Accepted=False of a MeshProxyPatch that a user could not write by now: it is older
// than the list of types, or of another control plane. It goes on, except for what leads to the machines of proxies.
func (p *Plan) unpermitted(r *table.Reader, of resource.Key) []kind.Condition {
	if of.Kind != kind.MeshProxyPatches.Name || p.Unpermitted == nil {
		return nil
	}
	o, ok := p.State.Tables.Find(r, of)
	if !ok {
		return nil
	}
	text := p.Unpermitted(&o.(*resource.Object[kind.MeshProxyPatch]).Spec.Default)
	if text == "" {
		return nil
	}
	return []kind.Condition{{
		Type: kind.AcceptedCondition, Status: "False", Reason: "NotPermitted",
		Message: "it stays applied until it is written again, without what leads to a proxy's machine: " + text,
	}}
}

// takenBack returns the condition Accepted=False of a policy without a part of which proxies get resources that Envoy
// has rejected; none otherwise.
func (p *Plan) takenBack(r *table.Reader, of resource.Key) []kind.Condition {
	rejections := p.State.Tables.RejectionsByCause.List(r, state.CauseKey(of.Mesh, causeOf(of).Cause))
	if len(rejections) == 0 {
		return nil
	}
	first := &rejections[0]
	more := ""
	if n := len(rejections) - 1; n > 0 {
		more = fmt.Sprintf(", and of %d more", n)
	}
	without := "modifications"
	if of.Kind == kind.MeshHealthChecks.Name {
		without = "the event log"
	}
	return []kind.Condition{{
		Type: kind.AcceptedCondition, Status: "False", Reason: "RejectedByProxies",
		Message: fmt.Sprintf("Envoy rejects the %s of %s%s, so proxies have it without %s: %s", first.Resource,
			first.Proxy, more, without, quoted(first.Message)),
	}}
}

// conflictConditions returns the condition Accepted=False of a policy with an item that has no effect somewhere, since
// the conf that it is merged with would be invalid.
func (p *Plan) conflictConditions(r *table.Reader, of resource.Key) []kind.Condition {
	conflicts := p.State.Proxies.ConflictsOf(r, of)
	if len(conflicts) == 0 {
		return nil
	}
	first := &conflicts[0]
	more := ""
	if n := len(conflicts) - 1; n > 0 {
		more = fmt.Sprintf(", and for %d more", n)
	}
	return []kind.Condition{{
		Type: kind.AcceptedCondition, Status: "False", Reason: "InvalidCombination",
		Message: fmt.Sprintf("spec.to[%d] has no effect on traffic to %s %s:%d: with the policies that it is merged "+
			"with, %s%s", first.Origin.Part, first.Destination.Kind, first.Destination.Service, first.Destination.Port,
			first.Reason, more),
	}}
}

// trust writes the status of a MeshTrust: its origin, and whether proxies accept it.
func (p *Plan) trust(r *table.Reader, u Request) (w Writes) {
	if _, ok := p.State.Tables.Trusts.Find(r, u.Mesh, u.Name); !ok {
		return w
	}
	status := kind.MeshTrustStatus{Conditions: append(p.nacks.Get(r, causeOf(resource.Key(u))).conditions(),
		p.reconciled(r, u)...)}
	if len(status.Conditions) == 0 && p.kubernetes != nil { // for the column ACCEPTED of kubectl
		status.Conditions = []kind.Condition{kind.Accepted}
	}
	stored, told := p.State.Tables.TrustStatuses.Find(r, u.Mesh, u.Name)
	if told {
		status.Origin = stored.Spec.Origin
	}
	ca, ok := p.State.Tables.SigningCAs.Find(r, u.Mesh, u.Name)
	if made := ok && len(ca.Spec.Roots) > 0; made {
		status.Origin = &kind.TrustOrigin{KRI: p.origin(u.Mesh, u.Name)}
	} else if p.Global() {
		return w // the zone of the MeshTrust writes its status
	}
	switch {
	case told:
		putIfDifferent(&w, statusDelay, stored, kind.MeshTrustStatuses.Make(u.Mesh, u.Name, status))
	case status.Origin != nil || len(status.Conditions) > 0:
		putIfDifferent(&w, servingDelay, stored, kind.MeshTrustStatuses.Make(u.Mesh, u.Name, status))
	}
	return w
}

// origin returns the KRI of the MeshIdentity, or of the Mesh with mtls, for which a MeshTrust was made.
func (p *Plan) origin(mesh, name string) string {
	if name == kind.MTLSIdentity {
		return fmt.Sprintf("kri_m____%s_", mesh)
	}
	return fmt.Sprintf("kri_mid_%s_%s__%s_", mesh, p.State.Tables.Zone, name)
}
