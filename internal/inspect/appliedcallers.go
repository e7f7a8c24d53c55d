package inspect

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"weft/internal/policy"
	"weft/internal/proxy"
	"weft/internal/service"
	"weft/kind"
)

// AppliedCallers is the effective conf of the callers of one match.
type AppliedCallers struct {
	// Match selects the callers. It is absent for the callers that no other match selects.
	Match *kind.RuleMatch `json:"match,omitempty"`
	AppliedConf
}

// AppliedSection is a section of a zone proxy.
type AppliedSection struct {
	Section string `json:"section"`
	// ExternalService is the external service of a filter chain of a zone egress; empty: a zone ingress.
	ExternalService string `json:"meshExternalService,omitempty"`
	// Service is the service and port, "web:80", of this zone to which a zone ingress forwards; empty: any.
	Service  string           `json:"service,omitempty"`
	Protocol kind.Protocol    `json:"protocol"`
	Confs    []AppliedCallers `json:"confs"`
	// Warnings are the confs, or fields of them, that have no effect here.
	Warnings []string `json:"warnings,omitempty"`
}

// appliedCallers returns the effective confs of the callers of a place.
func (rs *Reports) appliedCallers(at proxy.PlaceKey) []AppliedCallers {
	merged := rs.State.Proxies.MergedAt(rs.r, at)
	var confs []AppliedCallers
	for _, of := range slices.Sorted(maps.Keys(merged)) {
		for _, callers := range merged[of] {
			confs = append(confs, AppliedCallers{ruleMatch(callers.Match), appliedConf(of, callers.Merged, "rules")})
		}
	}
	return confs
}

// ruleMatch returns a match as a rule has it; nil for every caller.
func ruleMatch(m policy.Match) *kind.RuleMatch {
	if m.AllCallers() {
		return nil
	}
	return &kind.RuleMatch{SpiffeID: m.ID.Match()}
}

// appliedSections returns the sections of a zone proxy that a policy applies to: by listener of a zone ingress and
// service that it forwards to, or by filter chain of a zone egress.
func (rs *Reports) appliedSections(p *proxy.Proxy) []AppliedSection {
	var sections []AppliedSection
	add := func(a AppliedSection) {
		if len(a.Confs) > 0 || len(a.Warnings) > 0 {
			sections = append(sections, a)
		}
	}
	for i := range p.Ingresses {
		in := &p.Ingresses[i]
		a := AppliedSection{Section: in.Section, Protocol: kind.TCP,
			Confs: rs.appliedCallers(proxy.PlaceOf(p.Key, p.Key.Mesh, in.Section, nil))}
		a.Warnings = append(unusedConfs(a.Confs, kind.Place{Direction: kind.Received, Role: kind.ZoneIngressRole,
			Protocol: kind.TCP, Secured: true}), zoneWarnings(p)...)
		add(a)
		for _, group := range p.Passes {
			for _, to := range rs.forwardedBy(group.Mesh) {
				add(rs.appliedForwarding(in.Section, to, group.Policies))
			}
		}
	}
	for i := range p.Chains {
		c := &p.Chains[i]
		received := rs.appliedCallers(proxy.PlaceOf(p.Key, c.Key.Mesh, c.Section, c.SNIs))
		sent := rs.appliedSent(c.Key, c.Policies)
		a := AppliedSection{Section: c.Section, ExternalService: c.Key.Service, Protocol: c.Protocol,
			Confs: slices.Concat(received, sent)}
		a.Warnings = append(unusedConfs(received, kind.Place{Direction: kind.Received, Role: kind.ZoneEgressRole,
			Protocol: c.Protocol, Secured: true}), zoneWarnings(p)...)
		a.Warnings = append(a.Warnings, sentWarnings(sent, c.Protocol, kind.ZoneEgressRole)...)
		add(a)
	}
	return sections
}

// forwardedBy returns the ports of services of this zone that a zone ingress forwards to, sorted.
func (rs *Reports) forwardedBy(mesh string) []service.DestinationKey {
	var to []service.DestinationKey
	for _, route := range rs.State.ZoneProxies.SNIRoutes.Get(rs.r, mesh) {
		to = append(to, route.Destination.WithLocality(""))
	}
	slices.SortFunc(to, service.CompareDestinations)
	return slices.Compact(to)
}

// appliedForwarding returns the effective confs of what a section of a zone ingress forwards to a service.
func (rs *Reports) appliedForwarding(section string, to service.DestinationKey,
	policies proxy.PolicySet) AppliedSection {
	a := AppliedSection{Section: section, Service: fmt.Sprintf("%s:%d", to.Service, to.Port), Protocol: kind.TCP,
		Confs: rs.appliedSent(to, policies)}
	a.Warnings = sentWarnings(a.Confs, kind.TCP, kind.ZoneIngressRole)
	return a
}

// appliedSent returns the effective confs of what a zone proxy sends to a destination, for all of its callers.
func (rs *Reports) appliedSent(to service.DestinationKey, policies proxy.PolicySet) []AppliedCallers {
	merged := rs.State.Proxies.MergedConfs(rs.r, proxy.EffectiveKey{Policies: policies, Destination: to})
	var sent []AppliedCallers
	for _, conf := range appliedConfs(merged, "to") {
		sent = append(sent, AppliedCallers{nil, conf})
	}
	return sent
}

// sentWarnings returns the confs about the traffic that a zone proxy sends, or fields of them, that have no effect.
func sentWarnings(confs []AppliedCallers, protocol kind.Protocol, role kind.Role) []string {
	var warnings []string
	for _, c := range confs {
		warnings = append(warnings, c.Notes...)
		if conf, ok := c.Conf.(*kind.HealthCheckConf); ok {
			forwarded := role == kind.ZoneIngressRole
			text := !forwarded && (protocol == kind.HTTP || !protocol.IsHTTP())
			by := checkedBy{text: text, forward: forwarded}
			warnings = append(warnings, checkerNotes(c.Kind, conf, protocol, by)...)
		}
	}
	return append(warnings, unusedConfs(confs, kind.Place{Direction: kind.Sent, Role: role, Protocol: protocol})...)
}

// unusedConfs returns the confs, and fields of them, that have no effect at a place.
func unusedConfs(confs []AppliedCallers, at kind.Place) []string {
	var warnings []string
	for i := range confs {
		c, items := &confs[i], "its items"
		of := kind.ByName(c.Kind).(kind.Policy)
		if at.ByID = c.Match != nil; at.ByID {
			items = "the rules about " + c.Match.SpiffeID.Value
		}
		if reason := of.NoEffectReason(c.Conf, "", &at); reason != "" {
			warnings = append(warnings, fmt.Sprintf("%s: %s have no effect: %s", c.Kind, items, reason))
			continue
		}
		warnings = append(warnings, c.fieldWarnings(func(path policy.Path) string {
			return of.NoEffectReason(c.Conf, path.String(), &at)
		})...)
	}
	return warnings
}

// zoneWarnings returns the policies about the traffic of a zone proxy that it does not apply.
func zoneWarnings(p *proxy.Proxy) []string {
	var warnings []string
	for _, of := range p.Group.Policies.Keys() {
		if !proxy.AppliedByZoneProxies(of.Kind) {
			warnings = append(warnings, fmt.Sprintf("%s: to has no effect at a zone proxy: the proxies of the clients "+
				"apply it", of))
		}
	}
	return warnings
}

// inboundWarnings returns the confs of an inbound that have no effect.
func inboundWarnings(l *proxy.InboundListener, confs []AppliedCallers) []string {
	warnings := unusedConfs(confs,
		kind.Place{Direction: kind.Received, Protocol: l.Protocol, Secured: l.Permissions != nil})
	if len(confs) > 0 && strings.Contains(l.Section, "+") {
		warnings = append(warnings, fmt.Sprintf("the inbounds %s share a listener, which has one conf: rules about "+
			"any of them apply to all, in the order of precedence", strings.ReplaceAll(l.Section, "+", ", ")))
	}
	return warnings
}
