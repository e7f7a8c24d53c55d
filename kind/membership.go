package kind

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"weft/resource"
)

// The environment of a Dataplane on a machine. It is the tag EnvironmentTag of its inbounds, and the label [EnvLabel].
const (
	EnvironmentTag = "kuma.io/environment"
	Universal      = "universal"
)

// anyValue is the value of a rule's tag that matches any value.
const anyValue = "*"

// NotAdmittedReason returns the reason for which a mesh does not admit a Dataplane of a zone, as a text for its
// operator, or "" where it does. A nil Membership admits every Dataplane.
//
// Each inbound is matched by its tags, in any state, and a Dataplane without inbounds by its labels. Zone and
// environment match without a tag. One inbound that is blocked, or that no rule allows, excludes the whole Dataplane.
// (Mesh Membership.)
func (m *Membership) NotAdmittedReason(dp *resource.Object[Dataplane], zone string) string {
	if m == nil {
		return ""
	}
	parts := judgedOf(dp, zone)
	for i := range parts {
		for rule := range m.Blocked {
			if m.Blocked[rule].matches(&parts[i]) {
				return fmt.Sprintf(
					"mesh %s does not admit Dataplane %s: %s blocked by dataplaneProxyMembership.blocked[%d] %s",
					dp.Mesh, dp.Name, parts[i].is, rule, m.Blocked[rule])
			}
		}
	}
	for i := range parts {
		allows := func(rule MembershipRule) bool { return rule.matches(&parts[i]) }
		if len(m.Allowed) > 0 && !slices.ContainsFunc(m.Allowed, allows) {
			return fmt.Sprintf(
				"mesh %s does not admit Dataplane %s: %s allowed by none of dataplaneProxyMembership.allowed: %s",
				dp.Mesh, dp.Name, parts[i].is, someRules(m.Allowed))
		}
	}
	return ""
}

// judged is the part of a Dataplane that rules match.
type judged struct {
	is        string // "networking.inbound[0] is"
	has       map[string]string
	zone, env string
}

func judgedOf(dp *resource.Object[Dataplane], zone string) []judged {
	env := cmp.Or(dp.Label(EnvLabel), Universal)
	if len(dp.Spec.Networking.Inbound) == 0 {
		return []judged{{"by its labels it is", dp.Labels, zone, env}}
	}
	var parts []judged
	for i := range dp.Spec.Networking.Inbound {
		parts = append(parts, judged{fmt.Sprintf("networking.inbound[%d] is", i), dp.Spec.Networking.Inbound[i].Tags,
			zone, env})
	}
	return parts
}

func (j *judged) value(tag string) (string, bool) {
	switch tag {
	case ZoneLabel:
		return j.zone, true
	case EnvironmentTag:
		return j.env, true
	}
	value, ok := j.has[tag]
	return value, ok
}

// matches ignores rules for Kubernetes: proxies on machines have no Pod.
func (rule *MembershipRule) matches(part *judged) bool {
	if rule.Kubernetes != nil {
		return false
	}
	for tag, want := range rule.Tags {
		if got, ok := part.value(tag); !ok || want != anyValue && got != want {
			return false
		}
	}
	return len(rule.Tags) > 0
}

// String returns the rule as in messages, "{team: a, kuma.io/zone: east}", sorted by tag.
func (rule MembershipRule) String() string {
	if rule.Kubernetes != nil {
		return "{kubernetes, which matches no proxy on machines}"
	}
	var pairs []string
	for _, tag := range slices.Sorted(maps.Keys(rule.Tags)) {
		pairs = append(pairs, tag+": "+rule.Tags[tag])
	}
	return "{" + strings.Join(pairs, ", ") + "}"
}

// someRules lists the first rules.
func someRules(rules []MembershipRule) string {
	const shown = 5
	var texts []string
	for _, rule := range rules[:min(len(rules), shown)] {
		texts = append(texts, rule.String())
	}
	if more := len(rules) - shown; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, ", ")
}
