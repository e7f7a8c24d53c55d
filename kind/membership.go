package kind

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"weft/resource"
)

// The environment of a Dataplane: a machine, or a Pod. It is the tag EnvironmentTag of its inbounds, and the label
// [EnvLabel].
const (
	EnvironmentTag = "kuma.io/environment"
	Universal      = "universal"
	Kubernetes     = "kubernetes"
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

// NotAdmittedEarly returns the reason for which a mesh admits no Dataplane with some labels in a zone, whatever its
// inbounds will be, or "". Their tags are not known yet, except the zone, the environment and the namespace. proxy is
// how the text names it: "the Pod shop/web". (Mesh Membership.)
func (m *Membership) NotAdmittedEarly(mesh, proxy string, labels map[string]string, zone string) string {
	if m == nil {
		return ""
	}
	env := cmp.Or(labels[EnvLabel], Universal)
	known := judged{labels: labels, zone: zone, env: env}
	if namespace := labels[NamespaceLabel]; namespace != "" {
		known.has = map[string]string{NamespaceLabel: namespace}
	}
	may := func(rule MembershipRule) bool {
		best := known // an inbound with each further tag that the rule wants
		best.has = map[string]string{}
		maps.Copy(best.has, rule.Tags)
		maps.Copy(best.has, known.has)
		return rule.matches(&best)
	}
	for rule := range m.Blocked {
		if m.Blocked[rule].matches(&known) {
			return fmt.Sprintf("mesh %s does not admit %s: it is blocked by dataplaneProxyMembership.blocked[%d] %s",
				mesh, proxy, rule, m.Blocked[rule])
		}
	}
	if len(m.Allowed) > 0 && !slices.ContainsFunc(m.Allowed, may) {
		return fmt.Sprintf("mesh %s does not admit %s: it is allowed by none of dataplaneProxyMembership.allowed: %s",
			mesh, proxy, someRules(m.Allowed))
	}
	return ""
}

// judged is the part of a Dataplane that rules match.
type judged struct {
	is        string // "networking.inbound[0] is"
	has       map[string]string
	labels    map[string]string // of the Dataplane
	zone, env string
}

func judgedOf(dp *resource.Object[Dataplane], zone string) []judged {
	env := cmp.Or(dp.Label(EnvLabel), Universal)
	if len(dp.Spec.Networking.Inbound) == 0 {
		return []judged{{"by its labels it is", dp.Labels, dp.Labels, zone, env}}
	}
	var parts []judged
	for i := range dp.Spec.Networking.Inbound {
		parts = append(parts, judged{fmt.Sprintf("networking.inbound[%d] is", i), dp.Spec.Networking.Inbound[i].Tags,
			dp.Labels, zone, env})
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

func (rule *MembershipRule) matches(part *judged) bool {
	if rule.Kubernetes != nil {
		return part.env == Kubernetes && rule.Kubernetes.matches(part.labels, part.zone)
	}
	for tag, want := range rule.Tags {
		if got, ok := part.value(tag); !ok || want != anyValue && got != want {
			return false
		}
	}
	return len(rule.Tags) > 0
}

// matches reports whether the rule matches a Dataplane of a Pod in a zone. The labels of the Pod are those of the
// Dataplane.
func (k *KubernetesMembers) matches(labels map[string]string, zone string) bool {
	if k.Zone != "" && k.Zone != zone || k.Pod != nil && !Subset(k.Pod.Labels, labels) {
		return false
	}
	return k.Namespace == nil || (k.Namespace.Name == "" || k.Namespace.Name == labels[NamespaceLabel]) &&
		Subset(k.Namespace.Labels, NamespaceLabels(labels))
}

// Labels of a Dataplane that the control plane copies from its Pod, and from the namespace of the Pod.
const (
	// ServiceAccountLabel has the name of the Pod's ServiceAccount.
	ServiceAccountLabel = "k8s.kuma.io/service-account"
	// PodUIDLabel has the UID of the Pod. Only Dataplanes of Pods have it.
	PodUIDLabel = "k8s.kuma.io/pod-uid"
	// NamespaceLabelsLabel has the labels of the namespace, in the form of [EncodeNamespaceLabels].
	NamespaceLabelsLabel = "k8s.kuma.io/namespace-labels"
)

// EncodeNamespaceLabels returns the value of [NamespaceLabelsLabel]: a JSON object with sorted keys.
func EncodeNamespaceLabels(labels map[string]string) string {
	text, _ := json.Marshal(labels)
	return string(text)
}

// NamespaceLabels returns the labels of the namespace in which the Pod of a Dataplane is, from the labels of the
// Dataplane.
func NamespaceLabels(labels map[string]string) map[string]string {
	var of map[string]string
	if json.Unmarshal([]byte(labels[NamespaceLabelsLabel]), &of) != nil {
		return nil
	}
	return of
}

// String returns the rule as in messages, "{team: a, kuma.io/zone: east}", sorted by tag.
func (rule MembershipRule) String() string {
	if rule.Kubernetes != nil {
		return "{kubernetes: " + rule.Kubernetes.String() + "}"
	}
	return pairs(rule.Tags)
}

// String returns the match as in messages, "{namespace.name: ns-1, zone: east}".
func (k *KubernetesMembers) String() string {
	var texts []string
	add := func(field, value string) {
		if value != "" {
			texts = append(texts, field+": "+value)
		}
	}
	if n := k.Namespace; n != nil {
		add("namespace.name", n.Name)
		if len(n.Labels) > 0 {
			add("namespace.labels", pairs(n.Labels))
		}
	}
	if k.Pod != nil {
		add("pod.labels", pairs(k.Pod.Labels))
	}
	add("zone", k.Zone)
	return "{" + strings.Join(texts, ", ") + "}"
}

func pairs(of map[string]string) string {
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		texts = append(texts, name+": "+of[name])
	}
	return "{" + strings.Join(texts, ", ") + "}"
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
