package kind

import (
	"fmt"
	"slices"
)

// RuleItem is a conf about the traffic that the selected proxies receive.
type RuleItem[C any] struct {
	// Matches are the callers, as alternatives; by default every caller.
	Matches []RuleMatch `json:"matches,omitempty" schema:"maxItems=256"`
	Default C           `json:"default"` // the conf
}

// ReceivedItem is a conf about all traffic that the selected proxies receive.
type ReceivedItem[C any] struct {
	Default C `json:"default"` // the conf
}

// RuleMatch matches callers by their SPIFFE ID, by the SNI of the external service that they call, or by both.
type RuleMatch struct {
	SpiffeID *IDMatch `json:"spiffeID,omitempty"` // the SPIFFE ID of the caller; by default any
	// SNI is the SNI of an external service at a zone egress; by default every inbound and external service.
	SNI *SNIMatch `json:"sni,omitempty"`
	// OlderSpiffeID is the other spelling of spiffeID; it is read and never written.
	OlderSpiffeID *IDMatch `json:"spiffeId,omitempty" schema:"deprecated"`
}

// FromItem is the older form of a rule without matches. It is read as one, and never written.
type FromItem[C any] struct {
	TargetRef FromRef `json:"targetRef" schema:"required"`
	Default   C       `json:"default"` // the conf
}

// FromRef is the target of the older form of a rule: all callers.
type FromRef struct {
	Kind string `json:"kind" schema:"required enum=Mesh"` // Mesh, for all callers
}

// maxRuleMatches bounds the matches of a policy. A proxy compares each caller with each of them.
const maxRuleMatches = 256

// inboundReplaced adds the fields of the older form of a rule that have no meaning, with their replacement.
func inboundReplaced(others map[string]string) map[string]string {
	others["from.targetRef.name"] = "is not served by this release; use rules[].matches.spiffeID"
	others["from.targetRef.tags"] = "is not served by this release, since certificates have no tags; use " +
		"rules[].matches.spiffeID"
	for _, field := range []string{"labels", "mesh", "namespace", "proxyTypes", "sectionName"} {
		others["from.targetRef."+field] = "is not served by this release; leave it out for every caller, or use " +
			"rules[].matches.spiffeID"
	}
	return others
}

// ruleParts returns the rules as parts, with the confs of the rules.
func ruleParts[C any](items []RuleItem[C]) []RulePart {
	parts := make([]RulePart, len(items))
	for i := range items {
		parts[i] = RulePart{items[i].Matches, &items[i].Default}
	}
	return parts
}

// fromAsWarned returns the deprecation warning about `from`.
func fromAsWarned[C any](from []FromItem[C]) []string {
	if len(from) == 0 {
		return nil
	}
	return []string{"spec.from: is deprecated, and is stored as `rules`; write `rules: [{default: ...}]`"}
}

// rewriteFrom makes rules of items of `from` of the kind Mesh, and completes the matches of rules. What it leaves in
// `from` is invalid.
func rewriteFrom[C any](rules *[]RuleItem[C], from *[]FromItem[C]) {
	rewriteFromAs(rules, from, func(conf C) RuleItem[C] { return RuleItem[C]{Default: conf} })
	for i := range *rules {
		for j := range (*rules)[i].Matches {
			(*rules)[i].Matches[j].complete()
		}
	}
}

// rewriteFromAs makes rules of a type of items of `from` of the kind Mesh.
func rewriteFromAs[C, R any](rules *[]R, from *[]FromItem[C], rule func(conf C) R) {
	ofCallers := func(item FromItem[C]) bool { return item.TargetRef.Kind != "Mesh" }
	if len(*rules) > 0 || slices.ContainsFunc(*from, ofCallers) {
		return
	}
	for _, item := range *from {
		*rules = append(*rules, rule(item.Default))
	}
	*from = nil
}

// rewriteFromReceived makes rules without matches of items of `from` of the kind Mesh.
func rewriteFromReceived[C any](rules *[]ReceivedItem[C], from *[]FromItem[C]) {
	rewriteFromAs(rules, from, func(conf C) ReceivedItem[C] { return ReceivedItem[C]{conf} })
}

// receivedParts returns the items as parts, with the confs of the items.
func receivedParts[C any](items []ReceivedItem[C]) []RulePart {
	parts := make([]RulePart, len(items))
	for i := range items {
		parts[i] = RulePart{Conf: &items[i].Default}
	}
	return parts
}

// checkReceived checks `rules` without matches, each conf with a function.
func checkReceived[C any](c *checks, items []ReceivedItem[C], conf func(c *checks, at string, conf *C)) {
	for i := range items {
		conf(c, fmt.Sprintf("spec.rules[%d].default", i), &items[i].Default)
	}
}

func (m *RuleMatch) complete() {
	if m.SpiffeID == nil {
		m.SpiffeID, m.OlderSpiffeID = m.OlderSpiffeID, nil
	}
	if id := m.SpiffeID; id != nil && id.Type == "Prefix" {
		m.SpiffeID = &IDMatch{id.Type, trustDomainAlone(id.Value)}
	}
}

// checkFrom rejects what [rewriteFrom] leaves.
func checkFrom[C any](c *checks, from []FromItem[C]) {
	for i := range from {
		at := fmt.Sprintf("spec.from[%d].targetRef.kind", i)
		if of := from[i].TargetRef.Kind; of != "Mesh" {
			c.instead(at, "is %q, and only Mesh is served: certificates have no tags; use rules[].matches.spiffeID", of)
			return
		}
	}
	if len(from) > 0 {
		c.add("spec.from", "is the older form of rules, which are there too; write all of them in rules")
	}
}

// checkRules checks `rules` of a policy, each conf with the function of its kind. A rule about SPIFFE IDs may have no
// field of a connection, since a connection exists before its caller is known.
func checkRules[C any](c *checks, items []RuleItem[C], conf func(c *checks, at string, conf *C),
	fields []FieldRule[C]) {
	matches := 0
	for i := range items {
		at, item := fmt.Sprintf("spec.rules[%d]", i), &items[i]
		byID := false
		for j := range item.Matches {
			c.ruleMatch(fmt.Sprintf("%s.matches[%d]", at, j), &item.Matches[j])
			byID = byID || item.Matches[j].SpiffeID != nil
		}
		matches += len(item.Matches)
		conf(c, at+".default", &item.Default)
		if !byID {
			continue
		}
		for _, field := range fieldsOf(fields, &item.Default, ofConnections[C]) {
			c.add(at+".default."+field, "is not about single requests, so it can't differ by caller; move it "+
				"to a rule without spiffeID")
		}
	}
	if matches > maxRuleMatches {
		c.add("spec.rules", "have %d matches, at most %d are allowed; use prefixes, or several policies", matches,
			maxRuleMatches)
	}
}

func (c *checks) ruleMatch(at string, m *RuleMatch) {
	switch {
	case m.SpiffeID == nil && m.SNI == nil:
		c.add(at, "has no field; want spiffeID, sni or both; a rule without matches is about every caller")
	case m.OlderSpiffeID != nil:
		c.add(at+".spiffeId", "is the older spelling of spiffeID, which is there too; leave it out")
	}
	if m.SpiffeID != nil {
		c.callerID(at+".spiffeID", m.SpiffeID)
	}
	if m.SNI != nil {
		c.sniMatch(at+".sni", m.SNI)
	}
}
