package kind

import (
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
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
// A rule allows by what somebody vouches for, and by what the Dataplane states where exempt has tags; the value "*"
// matches any stated value. A rule blocks by what the Dataplane states. (Mesh Membership.)
func (m *Membership) NotAdmittedReason(dp *resource.Object[Dataplane], zone string, exempt Exemption) string {
	if by := m.ExcludedBy(dp, zone, exempt); by != "" {
		return fmt.Sprintf("mesh %s does not admit Dataplane %s: %s", dp.Mesh, dp.Name, by)
	}
	return ""
}

// ExcludedBy returns the part of [Membership.NotAdmittedReason] that is equal for Dataplanes with equal tags and
// labels: the rule, and where none allows the Dataplane, what each rule requires and the Dataplane does not have. It is
// "" where the mesh admits the Dataplane.
func (m *Membership) ExcludedBy(dp *resource.Object[Dataplane], zone string, exempt Exemption) string {
	if m == nil {
		return ""
	}
	parts := judgedOf(dp, zone)
	for i := range parts {
		for rule := range m.Blocked {
			if m.Blocked[rule].matches(&parts[i]) {
				return fmt.Sprintf("%s blocked by dataplaneProxyMembership.blocked[%d] %s", parts[i].is, rule,
					m.Blocked[rule])
			}
		}
	}
	if len(m.Allowed) == 0 {
		return ""
	}
	for i := range parts {
		stated := m.allows(&parts[i])
		if !exempt.Tags {
			parts[i].needsVouchers(dp)
		}
		if m.allows(&parts[i]) {
			continue
		}
		remedy := ""
		if stated && parts[i].env == Universal {
			remedy = "; give its agent a token that vouches for its tags and labels: `weft generate dataplane-token " +
				"--dataplane-file FILE`"
		}
		return fmt.Sprintf("%s allowed by none of dataplaneProxyMembership.allowed: %s%s", parts[i].is,
			someRules(m.Allowed, func(*MembershipRule) *judged { return &parts[i] }), remedy)
	}
	return ""
}

// allows reports whether a rule of `allowed` matches a part of a Dataplane.
func (m *Membership) allows(part *judged) bool {
	return slices.ContainsFunc(m.Allowed, func(rule MembershipRule) bool { return rule.matches(part) })
}

// AllowingRule is a rule of `allowed` that matches what a Dataplane states.
type AllowingRule struct {
	Index int      // in allowed
	Facts []string // that the rule reads, which need a voucher; see [Facts]
}

// AllowingRules returns the rules that allow a Dataplane of a zone, or would if what they read had a voucher.
func (m *Membership) AllowingRules(dp *resource.Object[Dataplane], zone string) []AllowingRule {
	if m == nil {
		return nil
	}
	var rules []AllowingRule
	stated := judgedOf(dp, zone)
	for i := range m.Allowed {
		allowing, matched := AllowingRule{Index: i}, false
		for n := range stated {
			if m.Allowed[i].matches(&stated[n]) {
				matched = true
				allowing.Facts = append(allowing.Facts, m.Allowed[i].facts(dp)...)
			}
		}
		if matched {
			slices.Sort(allowing.Facts)
			allowing.Facts = slices.Compact(allowing.Facts)
			rules = append(rules, allowing)
		}
	}
	return rules
}

// facts returns the facts of a Dataplane that a rule which matches it reads.
func (rule *MembershipRule) facts(dp *resource.Object[Dataplane]) []string {
	var facts []string
	for tag, value := range rule.Tags {
		switch {
		case IsComputedTag(tag) || value == anyValue:
		case len(dp.Spec.Networking.Inbound) > 0:
			facts = append(facts, TagFact(tag, value))
		case !IsComputedLabel(tag):
			facts = append(facts, LabelFact(tag, value))
		}
	}
	if k := rule.Kubernetes; k != nil {
		if k.Pod != nil {
			for label, value := range k.Pod.Labels {
				facts = append(facts, LabelFact(label, value))
			}
		}
		if k.Namespace != nil && len(k.Namespace.Labels) > 0 {
			facts = append(facts, LabelFact(NamespaceLabelsLabel, dp.Labels[NamespaceLabelsLabel]))
		}
	}
	return facts
}

// NotAdmittedEarly returns the reason for which a mesh admits no Dataplane with some labels in a zone, whatever its
// inbounds will be, or "". Their tags are not known yet, except the zone, the environment and the namespace. proxy is
// how the text names it: "the Pod shop/web". (Mesh Membership.)
func (m *Membership) NotAdmittedEarly(mesh, proxy string, labels map[string]string, zone string) string {
	return m.notAdmittedAtBest(mesh, proxy, labels, zone, nil)
}

// NotAdmittedNamespace returns the reason for which a mesh admits no Pod of a namespace of Kubernetes in a zone, with
// whatever labels and inbounds, or "". labels are those of the namespace.
func (m *Membership) NotAdmittedNamespace(mesh, namespace string, labels map[string]string, zone string) string {
	known := map[string]string{EnvLabel: Kubernetes, NamespaceLabel: namespace,
		NamespaceLabelsLabel: EncodeNamespaceLabels(labels)}
	podLabels := func(rule *MembershipRule) map[string]string {
		if rule.Kubernetes == nil || rule.Kubernetes.Pod == nil {
			return nil
		}
		return rule.Kubernetes.Pod.Labels
	}
	return m.notAdmittedAtBest(mesh, "a Pod of the namespace "+namespace, known, zone, podLabels)
}

// notAdmittedAtBest returns the reason for which a mesh admits no Dataplane with some labels, or "": a rule blocks
// these labels, or none allows a Dataplane that also has each further tag that the rule wants and, unless podLabels is
// nil, the labels that podLabels returns.
func (m *Membership) notAdmittedAtBest(mesh, proxy string, labels map[string]string, zone string,
	podLabels func(*MembershipRule) map[string]string) string {
	if m == nil {
		return ""
	}
	env := cmp.Or(labels[EnvLabel], Universal)
	known := judged{labels: labels, zone: zone, env: env}
	if namespace := labels[NamespaceLabel]; namespace != "" {
		known.has = map[string]string{NamespaceLabel: namespace}
	}
	best := func(rule *MembershipRule) *judged {
		best := known
		best.has = map[string]string{}
		maps.Copy(best.has, rule.Tags)
		maps.Copy(best.has, known.has)
		if podLabels != nil {
			best.labels = map[string]string{}
			maps.Copy(best.labels, podLabels(rule))
			maps.Copy(best.labels, labels)
		}
		return &best
	}
	may := func(rule MembershipRule) bool { return rule.matches(best(&rule)) }
	for rule := range m.Blocked {
		if m.Blocked[rule].matches(&known) {
			return fmt.Sprintf("mesh %s does not admit %s: it is blocked by dataplaneProxyMembership.blocked[%d] %s",
				mesh, proxy, rule, m.Blocked[rule])
		}
	}
	if len(m.Allowed) > 0 && !slices.ContainsFunc(m.Allowed, may) {
		return fmt.Sprintf("mesh %s does not admit %s: it is allowed by none of dataplaneProxyMembership.allowed: %s",
			mesh, proxy, someRules(m.Allowed, best))
	}
	return ""
}

// judged is the part of a Dataplane that rules match.
type judged struct {
	is        string // "networking.inbound[0] is"
	has       map[string]string
	labels    map[string]string // of the Dataplane
	zone, env string
	// vouched and labelVouched return whether somebody vouches for a pair of has and of labels; nil: each counts.
	vouched, labelVouched func(name, value string) bool
}

// needsVouchers lets rules match what somebody vouches for.
func (j *judged) needsVouchers(dp *resource.Object[Dataplane]) {
	j.labelVouched = func(label, value string) bool { return vouchesForLabel(dp, label, value) }
	j.vouched = func(tag, value string) bool {
		if len(dp.Spec.Networking.Inbound) == 0 && !IsComputedTag(tag) {
			return j.labelVouched(tag, value)
		}
		return IsComputedTag(tag) || Vouches(dp, TagFact(tag, value))
	}
}

func judgedOf(dp *resource.Object[Dataplane], zone string) []judged {
	env := cmp.Or(dp.Label(EnvLabel), Universal)
	if len(dp.Spec.Networking.Inbound) == 0 {
		return []judged{{is: "by its labels it is", has: dp.Labels, labels: dp.Labels, zone: zone, env: env}}
	}
	var parts []judged
	for i := range dp.Spec.Networking.Inbound {
		parts = append(parts, judged{is: fmt.Sprintf("networking.inbound[%d] is", i),
			has: dp.Spec.Networking.Inbound[i].Tags, labels: dp.Labels, zone: zone, env: env})
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

// isUnvouched reports whether a pair has no voucher and needs one.
func isUnvouched(vouched func(name, value string) bool, name, value string) bool {
	return vouched != nil && !vouched(name, value)
}

func (rule *MembershipRule) matches(part *judged) bool {
	for range rule.unmet(part) {
		return false
	}
	return true
}

// unmet yields what a rule requires and a proxy does not have, in no order: its name, and the value that the proxy has
// in its place, nil where it has none. This is the required value where that has no voucher. The labels of a Pod are
// those of its Dataplane.
func (rule *MembershipRule) unmet(part *judged) iter.Seq2[required, *string] {
	return func(yield func(required, *string) bool) {
		if k := rule.Kubernetes; k != nil {
			k.unmet(part, yield)
			return
		}
		if len(rule.Tags) == 0 {
			yield(required{name: "rule"}, nil)
			return
		}
		for tag, want := range rule.Tags {
			got, ok := part.value(tag)
			unmet := !ok || want != anyValue && (got != want || isUnvouched(part.vouched, tag, got))
			if unmet && !yield(required{"", tag, want}, found(got, ok)) {
				return
			}
		}
	}
}

func (k *KubernetesMembers) unmet(part *judged, yield func(required, *string) bool) {
	if part.env != Kubernetes {
		yield(required{name: "environment", value: Kubernetes}, &part.env)
		return
	}
	if k.Zone != "" && k.Zone != part.zone && !yield(required{name: "zone", value: k.Zone}, &part.zone) {
		return
	}
	if k.Pod != nil && !unmetLabels("Pod label ", k.Pod.Labels, part.labels, part.labelVouched, yield) ||
		k.Namespace == nil {
		return
	}
	got, ok := part.labels[NamespaceLabel]
	if name := k.Namespace.Name; name != "" && name != got && !yield(required{"", "namespace", name}, found(got, ok)) {
		return
	}
	if len(k.Namespace.Labels) > 0 {
		all := part.labels[NamespaceLabelsLabel]
		vouched := func(string, string) bool { return !isUnvouched(part.labelVouched, NamespaceLabelsLabel, all) }
		unmetLabels("namespace label ", k.Namespace.Labels, NamespaceLabels(part.labels), vouched, yield)
	}
}

// unmetLabels returns false where yield does.
func unmetLabels(of string, want, labels map[string]string, vouched func(label, value string) bool,
	yield func(required, *string) bool) bool {
	for name, value := range want {
		got, ok := labels[name]
		unmet := !ok || got != value || isUnvouched(vouched, name, value)
		if unmet && !yield(required{of, name, value}, found(got, ok)) {
			return false
		}
	}
	return true
}

// required is what a rule requires: the label with a name of a Pod or namespace, or a tag, or another part of a rule,
// with its value.
type required struct{ of, name, value string }

func found(value string, ok bool) *string {
	if !ok {
		return nil
	}
	return &value
}

// unmetText returns what a proxy does not have, as in messages, "namespace is shop, no Pod label app", sorted.
func (rule *MembershipRule) unmetText(part *judged) string {
	var texts []string
	for what, has := range rule.unmet(part) {
		switch {
		case has == nil:
			texts = append(texts, "no "+what.of+what.name)
		case *has == what.value:
			texts = append(texts, what.of+what.name+" is "+*has+", for which neither its token nor an operator vouches")
		case *has == "":
			texts = append(texts, what.of+what.name+" is empty")
		default:
			texts = append(texts, what.of+what.name+" is "+*has)
		}
	}
	slices.Sort(texts)
	return strings.Join(texts, ", ")
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

// someRules lists the first rules, each with what part, the part of a proxy that the rule is compared with, does not
// have.
func someRules(rules []MembershipRule, part func(*MembershipRule) *judged) string {
	const shown = 5
	var texts []string
	for i := range rules[:min(len(rules), shown)] {
		texts = append(texts, fmt.Sprintf("%s (%s)", rules[i], rules[i].unmetText(part(&rules[i]))))
	}
	if more := len(rules) - shown; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, ", ")
}
