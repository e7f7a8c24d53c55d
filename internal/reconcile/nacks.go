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
	fault string // panic of a translation function, empty where translation succeeds
	// leftOut are the proxies that run without the policy, and rejecting those that reject configuration of it now.
	leftOut, rejecting rejectingProxies
	// blocksStart states that a listener or a route is rejected, without which a proxy that starts is not ready.
	blocksStart bool
	restricts   bool // the resource is a policy that is never left out
}

// rejectingProxies are proxies whose Envoy rejects something.
type rejectingProxies struct {
	count   int
	names   string // of the first maxNamedRejecting proxies
	message string // of the first proxy
}

func (p *rejectingProxies) add(name, message string) {
	switch p.count++; {
	case p.count == 1:
		p.names, p.message = name, message
	case p.count <= maxNamedRejecting:
		p.names += ", " + name
	}
}

// String returns the names and the message.
func (p *rejectingProxies) String() string {
	names := p.names
	if p.count > maxNamedRejecting {
		names += fmt.Sprintf(" and %d more", p.count-maxNamedRejecting)
	}
	return fmt.Sprintf("(%s): %s", names, p.message)
}

func (p *Plan) summarizeNACKs(r *table.Reader, key causeKey) nackSummary {
	f := nackSummary{restricts: kind.IsRestrictive(key.Cause.Kind)}
	for _, fault := range p.State.Tables.FaultsByCause.List(r, state.CauseKey(key.Mesh, key.Cause)) {
		f.fault = resource.OneLine(fault.Panic)
	}
	without := map[*resource.Object[kind.DataplaneInsight]]bool{}
	if kind.MayBeLeftOut(key.Cause.Kind) {
		for _, e := range p.State.Tables.ExceptionsFrom(r, key.Cause.Key(key.Mesh)) {
			if e.Exception.Excludes() && !without[e.Insight] {
				without[e.Insight] = true
				f.leftOut.add(p.proxyName(e.Insight),
					aboutNACK(e.Exception.Type, e.Exception.Name, e.Exception.Message))
			}
		}
	}
	for _, nacked := range p.State.Tables.NACKsOf(r, key.Mesh, key.Cause) {
		if !without[nacked.Insight] {
			nack := nackWith(&nacked.Insight.Spec, nacked.Cause)
			f.blocksStart = f.blocksStart || nack.BlocksStart()
			f.rejecting.add(p.proxyName(nacked.Insight), aboutNACK(nack.Type, nack.Name, nack.Message))
		}
	}
	return f
}

// proxyName returns the name of a proxy in its zone, and on global the zone too.
func (p *Plan) proxyName(insight *resource.Object[kind.DataplaneInsight]) string {
	if !p.Global() {
		return insight.Name
	}
	return kind.OwnerName(&kind.Dataplanes.Info, &insight.Meta) + " of the zone " + p.State.Tables.ZoneOf(&insight.Meta)
}

// nackWith returns a proxy's first NACK with this cause.
func nackWith(insight *kind.DataplaneInsight, c kind.Cause) *kind.NACK {
	i := slices.IndexFunc(insight.NACKs, func(nack kind.NACK) bool { return slices.Contains(nack.Causes, c) })
	return &insight.NACKs[i] // exists: the index is made of the same causes
}

func aboutNACK(of, name, message string) string {
	return fmt.Sprintf("%s %s: %s", of, name, quoted(message))
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
	case f.leftOut.count+f.rejecting.count == 0:
		return nil
	}
	var texts []string
	if n := f.leftOut.count; n > 0 {
		what := "1 proxy rejects its configuration, and runs without the policy until it is written again"
		if n > 1 {
			what = fmt.Sprintf("%d proxies reject its configuration, and run without the policy until it is written "+
				"again", n)
		}
		texts = append(texts, what+" "+f.leftOut.String())
	}
	if n := f.rejecting.count; n > 0 {
		what := "1 proxy rejects its configuration, and keeps the previous one"
		if n > 1 {
			what = fmt.Sprintf("%d proxies reject its configuration, and keep the previous one", n)
		}
		what += " " + f.rejecting.String()
		switch {
		case f.blocksStart && f.restricts:
			what += "; a policy that restricts traffic is not left out, so a proxy that starts does not become ready"
		case f.blocksStart:
			what += "; a proxy that starts has no previous one, and does not become ready"
		}
		texts = append(texts, what)
	}
	return []kind.Condition{{
		Type: kind.AcceptedCondition, Status: "False", Reason: "RejectedByProxies", Message: strings.Join(texts, "; "),
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
