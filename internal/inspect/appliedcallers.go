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
		a.Warnings = append(callerWarnings(a.Confs, unknownToIngress, true), rs.zoneWarnings(p, a.Confs)...)
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
		a := AppliedSection{Section: c.Section, ExternalService: c.Key.Service, Protocol: c.Protocol,
			Confs: append(received, rs.appliedSent(c.Key, c.Policies)...)}
		a.Warnings = append(callerWarnings(received, "", !c.Protocol.IsHTTP()), egressWarnings(received)...)
		a.Warnings = append(a.Warnings, rs.zoneWarnings(p, received)...)
		a.Warnings = append(a.Warnings, sentWarnings(a.Confs, c.Protocol, false)...)
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
	a.Warnings = sentWarnings(a.Confs, kind.TCP, true)
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
func sentWarnings(confs []AppliedCallers, protocol kind.Protocol, forwarded bool) []string {
	var warnings []string
	for _, c := range confs {
		warnings = append(warnings, c.Notes...)
		switch conf := c.Conf.(type) {
		case *kind.HealthCheckConf:
			text := !forwarded && (protocol == kind.HTTP || !protocol.IsHTTP())
			by := checkedBy{text: text, forward: forwarded}
			warnings = append(warnings, checkerNotes(c.Kind, conf, protocol, by)...)
		case *kind.CircuitBreakerConf:
			warnings = append(warnings, c.fieldWarnings(func(path policy.Path) string {
				isPath := func(field string) bool { return strings.HasPrefix(path.String(), field) }
				if !protocol.IsHTTP() && slices.ContainsFunc(ofRequests, isPath) {
					return notHTTP
				}
				return ""
			})...)
		}
	}
	return warnings
}

// ofRequests are the fields of a MeshCircuitBreaker about requests and their responses.
var ofRequests = []string{"connectionLimits.maxRequests", "connectionLimits.maxRetries",
	"outlierDetection.detectors.successRate", "outlierDetection.detectors.failurePercentage"}

// zoneWarnings returns the policies, or rules of them, that zone proxies do not apply.
func (rs *Reports) zoneWarnings(p *proxy.Proxy, received []AppliedCallers) []string {
	var warnings []string
	for _, c := range received {
		if c.Kind == kind.MeshCircuitBreakers.Name {
			warnings = append(warnings, c.Kind+": rules have no effect at a zone proxy, which has no application; "+
				"use to")
		}
	}
	for _, of := range p.Group.Policies.Keys() {
		if !proxy.AppliedByZoneProxies(of.Kind) {
			warnings = append(warnings, fmt.Sprintf("%s: to has no effect at a zone proxy: the proxies of the clients "+
				"apply it", of))
		}
	}
	return warnings
}

// egressWarnings returns the timeouts that have no effect at a zone egress.
func egressWarnings(confs []AppliedCallers) []string {
	var warnings []string
	for _, c := range confs {
		if c.Kind == kind.MeshTimeouts.Name && c.Match != nil {
			warnings = append(warnings, fmt.Sprintf("%s: the rules about %s have no effect: timeouts of a zone egress "+
				"don't differ by caller", c.Kind, c.Match.SpiffeID.Value))
		}
	}
	return warnings
}

// Reasons why the caller of a connection is unknown.
const (
	unknownToIngress   = "a zone ingress doesn't decrypt connections, so it knows no caller"
	unknownToPlaintext = "the inbound is plaintext, so it knows no caller"
)

// inboundWarnings returns the confs of an inbound that have no effect.
func inboundWarnings(l *proxy.InboundListener, confs []AppliedCallers) []string {
	reason := ""
	if l.Permissions == nil {
		reason = unknownToPlaintext
	}
	warnings := append(callerWarnings(confs, reason, !l.Protocol.IsHTTP()), panicWarnings(confs)...)
	if len(confs) > 0 && strings.Contains(l.Section, "+") {
		warnings = append(warnings, fmt.Sprintf("the inbounds %s share a listener, which has one conf: rules about "+
			"any of them apply to all, in the order of precedence", strings.ReplaceAll(l.Section, "+", ", ")))
	}
	return warnings
}

// panicWarnings says where the application of an inbound is used although it is ejected.
func panicWarnings(confs []AppliedCallers) []string {
	for _, c := range confs {
		breaker, ok := c.Conf.(*kind.CircuitBreakerConf)
		if !ok {
			continue
		}
		o := breaker.Outliers()
		if o.Detection() != (kind.Detectors{}) && (o.HealthyPanicThreshold == nil || *o.HealthyPanicThreshold > 0) {
			return []string{c.Kind + ": outlierDetection has no effect: the application is the only endpoint, so it " +
				"is used also while it is ejected, unless healthyPanicThreshold is 0"}
		}
	}
	return nil
}

// notHTTP is why a field about requests has no effect.
const notHTTP = " on connections that are not HTTP"

// callerWarnings returns the confs and fields that have no effect where callers are unknown for a reason, or where
// connections are not HTTP.
func callerWarnings(confs []AppliedCallers, unknown string, tcp bool) []string {
	var warnings []string
	for _, c := range confs {
		if c.Match != nil && unknown != "" {
			warnings = append(warnings, fmt.Sprintf("%s: the rules about %s never match: %s", c.Kind,
				c.Match.SpiffeID.Value, unknown))
			continue
		}
		warnings = append(warnings, c.fieldWarnings(func(path policy.Path) string {
			switch {
			case !tcp && isExcessFault(c.Kind, path):
				return fmt.Sprintf(": a caller gets %d faults at most", kind.MaxFaults)
			case tcp && isHTTPField(path.String()):
				return notHTTP
			}
			return ""
		})...)
	}
	return warnings
}

// isHTTPField reports whether a field is about requests, by its path: "http.requestTimeout", "local.http.disabled" or
// "http[0]".
func isHTTPField(path string) bool {
	return strings.HasPrefix(strings.TrimPrefix(path, "local."), "http")
}

// isExcessFault reports whether a field is a fault beyond those that a caller gets.
func isExcessFault(of string, path policy.Path) bool {
	i, ok := path.ItemOf("http")
	return of == kind.MeshFaultInjections.Name && ok && i >= kind.MaxFaults
}
