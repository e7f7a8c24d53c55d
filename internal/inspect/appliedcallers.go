package inspect

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"weft/internal/policy"
	"weft/internal/proxy"
	"weft/kind"
)

// AppliedCallers is the effective conf of the callers of one match.
type AppliedCallers struct {
	// Match are the callers; absent for all callers of which no other match is.
	Match *kind.RuleMatch `json:"match,omitempty"`
	AppliedConf
}

// AppliedSection is a section of a zone proxy.
type AppliedSection struct {
	Section string `json:"section"`
	// ExternalService is the external service of a filter chain of a zone egress; empty: a zone ingress.
	ExternalService string           `json:"meshExternalService,omitempty"`
	Protocol        kind.Protocol    `json:"protocol"`
	Confs           []AppliedCallers `json:"confs"`
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
	switch {
	case m.AllCallers():
		return nil
	case m.Prefix:
		return &kind.RuleMatch{SpiffeID: &kind.IDMatch{Type: "Prefix", Value: m.SpiffeID}}
	}
	return &kind.RuleMatch{SpiffeID: &kind.IDMatch{Type: "Exact", Value: m.SpiffeID}}
}

// appliedSections returns the sections of a zone proxy that a policy about callers applies to.
func (rs *Reports) appliedSections(p *proxy.Proxy) []AppliedSection {
	var sections []AppliedSection
	for i := range p.Ingresses {
		in := &p.Ingresses[i]
		a := AppliedSection{Section: in.Section, Protocol: kind.TCP,
			Confs: rs.appliedCallers(proxy.PlaceOf(p.Key, p.Key.Mesh, in.Section, nil))}
		a.Warnings = callerWarnings(a.Confs, unknownToIngress, true)
		if len(a.Confs) > 0 {
			sections = append(sections, a)
		}
	}
	for i := range p.Chains {
		c := &p.Chains[i]
		a := AppliedSection{Section: c.Section, ExternalService: c.Key.Service, Protocol: c.Protocol,
			Confs: rs.appliedCallers(proxy.PlaceOf(p.Key, c.Key.Mesh, c.Section, c.SNIs))}
		a.Warnings = append(callerWarnings(a.Confs, "", !c.Protocol.IsHTTP()), egressWarnings(a.Confs)...)
		if len(a.Confs) > 0 {
			sections = append(sections, a)
		}
	}
	return sections
}

// sharedUpstream are the fields of a MeshTimeout about the connections to external servers, which all egresses share.
var sharedUpstream = []string{"connectionTimeout", "http.maxConnectionDuration", "http.maxStreamDuration"}

// egressWarnings returns the timeouts that have no effect at a zone egress.
func egressWarnings(confs []AppliedCallers) []string {
	var warnings []string
	for _, c := range confs {
		if c.Kind != kind.MeshTimeouts.Name {
			continue
		}
		if c.Match != nil {
			warnings = append(warnings, fmt.Sprintf("%s: the rules about %s have no effect: timeouts of a zone egress "+
				"don't differ by caller", c.Kind, c.Match.SpiffeID.Value))
			continue
		}
		for _, field := range sharedUpstream {
			if item, ok := c.Origins[field]; ok {
				warnings = append(warnings, fmt.Sprintf("%s: %s has no effect: zone egresses share the settings of "+
					"connections to an external service (%s)", c.Kind, field, item))
			}
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
	warnings := callerWarnings(confs, reason, !l.Protocol.IsHTTP())
	if len(confs) > 0 && strings.Contains(l.Section, "+") {
		warnings = append(warnings, fmt.Sprintf("the inbounds %s share a listener, which has one conf: rules about "+
			"any of them apply to all, in the order of precedence", strings.ReplaceAll(l.Section, "+", ", ")))
	}
	return warnings
}

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
		for _, path := range slices.Sorted(maps.Keys(c.Origins)) {
			if tcp && strings.HasPrefix(path, "http.") {
				warnings = append(warnings, fmt.Sprintf("%s: %s has no effect on connections that are not HTTP (%s)",
					c.Kind, path, c.Origins[path]))
			}
		}
	}
	return warnings
}
