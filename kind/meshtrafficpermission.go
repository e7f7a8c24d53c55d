package kind

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"iter"
	"slices"
	"strings"

	"weft/resource"
)

// MeshTrafficPermission allows and denies clients of the proxies that it targets.
//
// The rules of all permissions that match a proxy, or one of its inbounds, are joined: deny takes precedence over
// allowWithShadowDeny, and that over allow. A proxy with an identity denies every client that no rule allows. A
// permission with the label kuma.io/effect: shadow has no effect.
type MeshTrafficPermission struct {
	// the target proxies; by default the whole mesh
	TargetRef *TargetRef       `json:"targetRef,omitempty"`
	Rules     []PermissionRule `json:"rules,omitempty" schema:"maxItems=256"` // the rules; all of them apply
}

// PermissionRule is one rule with its matches.
type PermissionRule struct {
	// Matches narrow the rule to filter chains of zone egresses, by SNI; without any it applies to everything.
	Matches []PermissionMatch `json:"matches,omitempty" schema:"maxItems=1024"`
	Default PermissionDefault `json:"default"` // the allowed and denied clients
}

// PermissionMatch matches a filter chain of a zone egress.
type PermissionMatch struct {
	SNI *SNIMatch `json:"sni,omitempty" schema:"required" missing:"the SNI of what is called; a rule without matches is about everything"` // the SNI of the filter chain
}

// SNIMatch matches an SNI, in any format that the service has.
type SNIMatch struct {
	Type string `json:"type" schema:"required enum=Exact"` // the type of the match
	// the SNI, such as status.zoneEgress.sni of a MeshExternalService
	Value string `json:"value" schema:"required maxLength=253" missing:"a server name"`
}

// PermissionDefault has the clients of each verdict.
type PermissionDefault struct {
	// Deny are the clients that are denied, even where another rule allows them.
	Deny []CallerMatch `json:"deny,omitempty" schema:"maxItems=4096"`
	// AllowWithShadowDeny are clients that are allowed, and counted as if they were denied.
	AllowWithShadowDeny []CallerMatch `json:"allowWithShadowDeny,omitempty" schema:"maxItems=4096"`
	// Allow are the clients that are allowed.
	Allow []CallerMatch `json:"allow,omitempty" schema:"maxItems=4096"`
}

// CallerMatch matches a client by its SPIFFE ID, by the SNI that it used at a zone egress, or by both.
type CallerMatch struct {
	SpiffeID *IDMatch `json:"spiffeID,omitempty"` // the SPIFFE ID of the client; by default any
	// SNI is the SNI of the external service that the client calls; by default any. An entry with an SNI applies to
	// that filter chain of zone egresses only.
	SNI *SNIMatch `json:"sni,omitempty"`
	// OlderSpiffeID is the other spelling of spiffeID; it is read and never written.
	OlderSpiffeID *IDMatch `json:"spiffeId,omitempty" schema:"deprecated"`
}

// IDMatch matches a SPIFFE ID, exactly or by prefix.
type IDMatch struct {
	Type string `json:"type" schema:"required enum=Exact|Prefix"` // the type of the match
	// spiffe://TRUST-DOMAIN/PATH; a prefix is whole segments of the path, and at least the whole trust domain:
	// spiffe://prod/web matches itself and spiffe://prod/web/1, not spiffe://prod/web-admin
	Value string `json:"value" schema:"required maxLength=2048" missing:"spiffe://TRUST-DOMAIN, and a path if any"`
}

// MeshTrafficPermissions is the kind of [MeshTrafficPermission].
var MeshTrafficPermissions = NewPolicy(PolicyKind[MeshTrafficPermission, PermissionDefault]{
	Kind: resource.Kind[MeshTrafficPermission]{
		Info: resource.Info{
			Name: "MeshTrafficPermission", Plural: "meshtrafficpermissions", ShortName: "mtp",
			Replaces: []resource.OlderKind{{Name: "TrafficPermission", Plural: "traffic-permissions",
				Instead: "write a MeshTrafficPermission with `rules`; a caller of the service X has the SPIFFE ID " +
					"spiffe://MESH/X under mtls"}},
			Replaced: map[string]string{
				"targetRef.mesh":       otherMesh,
				"from":                 "has no meaning here; use `rules`, which `weft migrate` makes of it",
				"rules.default.action": "has no meaning here; use allow, deny or allowWithShadowDeny",
			},
		},
		Default:  defaultMeshTrafficPermission,
		Validate: validateMeshTrafficPermission,
	},
	Split:       permissionParts,
	Restrictive: true,
	JoinsRules:  true,
	Content:     noCallers,
	Fields: []FieldRule[PermissionDefault]{{Reason: func(_ *PermissionDefault, _ string, at *Place) string {
		if !at.Secured {
			return "without an identity, a Dataplane allows every caller"
		}
		return ""
	}}},
})

func permissionParts(p *MeshTrafficPermission) Parts {
	parts := Parts{TargetRef: p.TargetRef}
	for i := range p.Rules {
		rule := RulePart{Conf: &p.Rules[i].Default}
		for _, m := range p.Rules[i].Matches {
			rule.Matches = append(rule.Matches, RuleMatch{SNI: m.SNI})
		}
		parts.Rules = append(parts.Rules, rule)
	}
	return parts
}

// lists returns the callers of a rule by their field.
func (d *PermissionDefault) lists() []callerList {
	return []callerList{{"deny", d.Deny}, {"allowWithShadowDeny", d.AllowWithShadowDeny}, {"allow", d.Allow}}
}

type callerList struct {
	name    string
	callers []CallerMatch
}

// PermissionEntry is one entry of a rule, and its field in the rule, such as "default.allow[1]".
type PermissionEntry struct {
	CallerMatch
	Field string
}

// Entries returns the entries of a rule in the order deny, allowWithShadowDeny, allow.
func (d *PermissionDefault) Entries() []PermissionEntry {
	var entries []PermissionEntry
	for _, list := range d.lists() {
		for i, caller := range list.callers {
			entries = append(entries, PermissionEntry{caller, fmt.Sprintf("default.%s[%d]", list.name, i)})
		}
	}
	return entries
}

func defaultMeshTrafficPermission(o *resource.Object[MeshTrafficPermission]) {
	for i := range o.Spec.Rules {
		for _, list := range o.Spec.Rules[i].Default.lists() {
			for j := range list.callers {
				if caller := &list.callers[j]; caller.SpiffeID == nil {
					caller.SpiffeID, caller.OlderSpiffeID = caller.OlderSpiffeID, nil
				}
				if id := list.callers[j].SpiffeID; id != nil && id.Type == "Prefix" {
					list.callers[j].SpiffeID = &IDMatch{id.Type, trustDomainAlone(id.Value)}
				}
			}
		}
	}
}

// trustDomainAlone removes the final slash of a prefix that is a whole trust domain: some clients reject a SPIFFE ID
// that ends in a slash.
func trustDomainAlone(prefix string) string {
	alone := strings.TrimSuffix(prefix, "/")
	if domain, found := strings.CutPrefix(alone, "spiffe://"); found && domain != "" && !strings.Contains(domain, "/") {
		return alone
	}
	return prefix
}

// IDPattern is what a match matches: SPIFFE IDs that are Exact, or that begin with Prefix. Either may be empty.
type IDPattern struct {
	Exact  string `json:",omitempty"`
	Prefix string `json:",omitempty"`
}

// Pattern returns what the match of a policy with the metadata matches. A prefix matches at the end of a segment, the
// trust domain being the first: "spiffe://prod/web" matches "spiffe://prod/web/1", not "spiffe://prod/web-admin". In a
// policy that an earlier release stored, it matches within a segment of the path too, until the policy is written
// again.
func (m *IDMatch) Pattern(meta *resource.Meta) IDPattern {
	switch {
	case m.Type != "Prefix":
		return IDPattern{Exact: m.Value}
	case !m.hasPath():
		return IDPattern{Prefix: m.Value + "/"}
	case !m.endsInSegment() || !meta.Vouched.Complete:
		return IDPattern{Prefix: m.Value}
	}
	return IDPattern{m.Value, m.Value + "/"}
}

func (m *IDMatch) hasPath() bool {
	return strings.Contains(strings.TrimPrefix(m.Value, "spiffe://"), "/")
}

// endsInSegment reports whether the match is a prefix with a path and without a final slash.
func (m *IDMatch) endsInSegment() bool {
	return m.Type == "Prefix" && m.hasPath() && !strings.HasSuffix(m.Value, "/")
}

// OpenPrefixes returns a warning for each prefix of SPIFFE IDs in a policy that an earlier release stored and that
// matches within a segment.
func OpenPrefixes(o resource.Any) []string {
	if o.Envelope().Vouched.Complete {
		return nil
	}
	var warnings []string
	for field, id := range segmentPrefixes(o) {
		warnings = append(warnings, fmt.Sprintf("spec.%s.value: %q matches %q too, as in the release that stored "+
			"the policy; from the next change of the policy on, it matches whole segments: itself, and what begins "+
			"with %q", field, id.Value, id.Value+"-x", id.Value+"/"))
	}
	return warnings
}

// RecordPrefixes records in a policy that a user writes that its prefixes of SPIFFE IDs match whole segments, unless
// the spec stays as it was. It returns a warning for each one that matched within a segment before the write, and for
// each one that looks as if it should.
func RecordPrefixes(before, after resource.Any) []string {
	var warnings []string
	open := map[string]bool{}
	if before != nil && !before.Envelope().Vouched.Complete {
		had, _ := json.Marshal(resource.SpecOf(before))
		if has, _ := json.Marshal(resource.SpecOf(after)); bytes.Equal(had, has) {
			return nil
		}
		for _, id := range segmentPrefixes(before) {
			open[id.Value] = true
		}
	}
	for field, id := range segmentPrefixes(after) {
		after.Envelope().Vouched.Complete = true
		if open[id.Value] {
			warnings = append(warnings, fmt.Sprintf("spec.%s.value: %q matches whole segments from now on: itself, "+
				"and what begins with %q; before, it matched %q too", field, id.Value, id.Value+"/", id.Value+"-x"))
		} else if strings.ContainsAny(id.Value[len(id.Value)-1:], "-_.") {
			warnings = append(warnings, fmt.Sprintf("spec.%s.value: %q matches whole segments: itself, and what "+
				"begins with %q, not %q; write an entry for each caller", field, id.Value, id.Value+"/", id.Value+"x"))
		}
	}
	return warnings
}

// segmentPrefixes returns the prefixes of SPIFFE IDs in a policy that end with a segment, by their field.
func segmentPrefixes(o resource.Any) iter.Seq2[string, *IDMatch] {
	return func(yield func(string, *IDMatch) bool) {
		policy, ok := ByName(o.Key().Kind).(Policy)
		if !ok {
			return
		}
		for i, rule := range policy.Parts(o).Rules {
			for j, match := range rule.Matches {
				field := fmt.Sprintf("rules[%d].matches[%d].spiffeID", i, j)
				if match.SpiffeID != nil && match.SpiffeID.endsInSegment() && !yield(field, match.SpiffeID) {
					return
				}
			}
			permission, ok := rule.Conf.(*PermissionDefault)
			if !ok {
				continue
			}
			for _, entry := range permission.Entries() {
				field := fmt.Sprintf("rules[%d].%s.spiffeID", i, entry.Field)
				if entry.SpiffeID != nil && entry.SpiffeID.endsInSegment() && !yield(field, entry.SpiffeID) {
					return
				}
			}
		}
	}
}

// Has reports whether the pattern matches a SPIFFE ID.
func (p IDPattern) Has(id string) bool {
	return p.Exact != "" && id == p.Exact || p.Prefix != "" && strings.HasPrefix(id, p.Prefix)
}

// Covers reports whether the pattern matches each SPIFFE ID that the other one, which matches some, matches.
func (p IDPattern) Covers(other IDPattern) bool {
	return (other.Exact == "" || p.Has(other.Exact)) &&
		(other.Prefix == "" || p.Prefix != "" && strings.HasPrefix(other.Prefix, p.Prefix))
}

// IsPrefix reports whether the pattern is that of a match of the type Prefix.
func (p IDPattern) IsPrefix() bool { return p.Prefix != "" }

// Value returns the value of the match: the pattern as a user writes it.
func (p IDPattern) Value() string { return cmp.Or(p.Exact, p.Prefix) }

// Match returns the pattern as a match. The value of one that matches within a segment, as only policies of earlier
// releases do, ends in an asterisk, which no written value does.
func (p IDPattern) Match() *IDMatch {
	switch {
	case !p.IsPrefix():
		return &IDMatch{"Exact", p.Exact}
	case p.Exact == "" && !strings.HasSuffix(p.Prefix, "/"):
		return &IDMatch{"Prefix", p.Prefix + "*"}
	}
	return &IDMatch{"Prefix", p.Value()}
}

// String returns the pattern as in messages: "spiffe://prod/web", "spiffe://prod/*", "spiffe://prod/web(/*)".
func (p IDPattern) String() string { return p.Match().String() }

// String returns the match as in messages, see [IDPattern.String].
func (m *IDMatch) String() string {
	switch {
	case m.Type != "Prefix" || strings.HasSuffix(m.Value, "*"):
		return m.Value
	case m.endsInSegment():
		return m.Value + "(/*)"
	}
	return m.Value + "*"
}

func validateMeshTrafficPermission(o *resource.Object[MeshTrafficPermission],
	found resource.Problems) resource.Problems {
	c := envelope(&o.Meta, found)
	if o.Spec.TargetRef != nil {
		c.targetRef("spec.targetRef", o.Spec.TargetRef)
	}
	for i := range o.Spec.Rules {
		for j, match := range o.Spec.Rules[i].Matches {
			c.permissionMatch(fmt.Sprintf("spec.rules[%d].matches[%d]", i, j), match)
		}
		for _, list := range o.Spec.Rules[i].Default.lists() {
			for j, caller := range list.callers {
				c.caller(fmt.Sprintf("spec.rules[%d].default.%s[%d]", i, list.name, j), caller)
			}
		}
	}
	return c.problems
}

func (c *checks) permissionMatch(at string, match PermissionMatch) {
	if match.SNI != nil {
		c.sniMatch(at+".sni", match.SNI)
	}
}

func (c *checks) sniMatch(at string, m *SNIMatch) {
	if !IsHostname(m.Value) && isKumaSNI(m.Value) {
		c.add(at+".value", "%s is an SNI of Kuma; weft gives the service another one: write what "+
			"status.zoneEgress.sni of the MeshExternalService shows", quote(m.Value))
		return
	}
	c.hostname(at+".value", m.Value, "not a server name")
}

// isKumaSNI reports whether a name has a form of Kuma's SNIs: sni.extsvc.MESH.NAME.PORT, or NAME{TAG=VALUE}.
func isKumaSNI(name string) bool {
	return strings.HasPrefix(name, "sni.") || strings.Contains(name, "{")
}

func (c *checks) caller(at string, caller CallerMatch) {
	if caller.SNI != nil {
		c.sniMatch(at+".sni", caller.SNI)
	}
	switch {
	case caller.SpiffeID == nil && caller.SNI == nil:
		c.add(at+".spiffeID", "is required where there is no sni")
	case caller.SpiffeID == nil:
		return
	case caller.OlderSpiffeID != nil:
		c.add(at+".spiffeId", "is the older spelling of spiffeID, which is there too; leave it out")
	}
	if caller.SpiffeID != nil {
		c.callerID(at+".spiffeID", caller.SpiffeID)
	}
}

func (c *checks) callerID(at string, id *IDMatch) {
	if !c.valid(at + ".type") {
		return
	}
	if id.Type == "Exact" {
		if _, err := spiffeid.FromString(id.Value); err != nil {
			c.add(at+".value", "%s is not a SPIFFE ID: %s", quote(id.Value), err)
		}
		return
	}
	c.idPrefix(at+".value", id.Value)
}

// idPrefix requires a trust domain, and optionally a path.
func (c *checks) idPrefix(field, prefix string) {
	rest, found := strings.CutPrefix(prefix, "spiffe://")
	domain, path, _ := strings.Cut(rest, "/")
	if !found {
		c.add(field, "%s is not the beginning of SPIFFE IDs: want spiffe://TRUST-DOMAIN, and what follows if any",
			quote(prefix))
		return
	}
	c.trustDomain(field, domain)
	if strings.ContainsFunc(path, notInSPIFFEPath) {
		c.add(field,
			"%s matches no SPIFFE ID: after the trust domain, only letters, digits, ., -, _ and / stand in one",
			quote(prefix))
	}
}

func notInSPIFFEPath(r rune) bool {
	return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_/", r)
}

// noCallers warns of a permission that names no caller.
func noCallers(p *MeshTrafficPermission) []string {
	if slices.ContainsFunc(p.Rules, func(r PermissionRule) bool {
		return len(r.Default.Allow)+len(r.Default.AllowWithShadowDeny)+len(r.Default.Deny) > 0
	}) {
		return nil
	}
	return []string{"spec.rules: names no caller: the policy allows and denies no caller, so the inbounds that it " +
		"selects deny every caller that no other policy allows"}
}
