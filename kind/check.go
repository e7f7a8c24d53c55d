package kind

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"weft/resource"
)

// checks collects the problems of one object. Each method adds a problem for an invalid value, and reports whether the
// value is valid.
type checks struct {
	problems resource.Problems
	// wrong has the fields whose values the rules of their tags reject ([resource.Rules]). They get no second problem.
	wrong map[string]bool
	// namespaces reports whether the object is of Kubernetes, so that its references may have a namespace.
	namespaces bool
}

// checksOf returns the checks of an object, with the problems of its labels and those that the rules of its fields
// found.
func checksOf(meta *resource.Meta, nameProblem string, found resource.Problems) *checks {
	c := &checks{}
	if nameProblem != "" {
		c.add("name", "%s", nameProblem)
	}
	c.labels("labels", meta.Labels)
	c.problems.Append(found)
	if len(found) > 0 {
		c.wrong = map[string]bool{}
		for _, problem := range found {
			c.wrong[problem.Field] = true
		}
	}
	return c
}

// add adds a problem of a field, unless the rules of its tag reject the value.
func (c *checks) add(field, format string, args ...any) bool {
	if !c.wrong[field] {
		c.problems.Add(field, format, args...)
	}
	return false
}

// instead adds a problem of a field in place of that which the rules of its tag found: it has more to say.
func (c *checks) instead(field, format string, args ...any) bool {
	if c.wrong[field] {
		i := slices.IndexFunc(c.problems, func(p resource.Problem) bool { return p.Field == field })
		if i >= 0 {
			c.problems[i].Reason = fmt.Sprintf(format, args...)
		}
		return false
	}
	return c.add(field, format, args...)
}

// valid reports whether the rules of the tag of a field accept its value.
func (c *checks) valid(field string) bool { return !c.wrong[field] }

// envelope returns the checks of an object, with the problems of its name and labels.
func envelope(meta *resource.Meta, found resource.Problems) *checks {
	c := checksOf(meta, resource.NameProblem(meta.Name), found)
	c.namespaces = meta.Label(EnvLabel) == Kubernetes
	return c
}

// topEnvelope is envelope for a mesh or a zone, whose names have stricter rules.
func topEnvelope(meta *resource.Meta, found resource.Problems) *checks {
	return checksOf(meta, resource.MeshNameProblem(meta.Name), found)
}

var (
	dnsName    = regexp.MustCompile(`^[a-z0-9_]([-_a-z0-9]*[a-z0-9_])?(\.[a-z0-9_]([-_a-z0-9]*[a-z0-9_])?)*$`)
	labelName  = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`)
	tagName    = regexp.MustCompile(`^[A-Za-z0-9._:/-]+$`)
	tagValue   = regexp.MustCompile(`^[A-Za-z0-9._:-]+$`)
	service    = regexp.MustCompile(`^[A-Za-z0-9._-]+$`) // a segment of the path of a SPIFFE ID
	onlyDigits = regexp.MustCompile(`^[0-9]+$`)
	aNumber    = regexp.MustCompile(`^([0-9]+|0x[0-9a-f]*)$`) // as inet_aton(3) parses it
	duration   = regexp.MustCompile(`^([0-9]+y)?([0-9]+d)?([-+]?0|[-+]?(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))*)$`)
)

// Patterns are the patterns of names and values: those of labels and tags, and those that a field's tag `schema` refers
// to with "pattern=".
var Patterns = map[string]*regexp.Regexp{
	"name":      resource.Subdomain,
	"host":      dnsName,
	"mesh":      resource.Label1035,
	"section":   resource.Label1123,
	"labelName": regexp.MustCompile(`^([-a-z0-9.]+/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`),
	"tagName":   tagName,
	"tagValue":  tagValue,
	"duration":  duration,
}

const (
	maxName  = resource.MaxName
	maxLabel = resource.MaxLabel

	// proxyType is a label and a tag of former releases.
	proxyType        = ProxyTypeLabel
	proxyTypeProblem = "has no meaning here: networking.zoneIngress or networking.zoneEgress makes a Dataplane a " +
		"zone proxy"
)

var protocols = []string{string(TCP), string(TLS), string(HTTP), string(HTTP2), string(GRPC), string(Kafka)}

// sectionName rejects a number as the name of an inbound, of a zone proxy section or of a service's port, since it
// would look like a port.
func (c *checks) sectionName(field, name string) {
	if onlyDigits.MatchString(name) {
		c.add(field, "%q is a number; leave the name out, and it is reached by its port", name)
	}
}

// address checks a unicast IP address in its canonical form, since listeners and endpoints are identified by it.
func (c *checks) address(field, address string) bool {
	if problem := resource.AddressProblem(address); problem != "" {
		return c.add(field, "%s", problem)
	}
	return true
}

func (c *checks) oneOf(field, value string, allowed ...string) bool {
	if value == "" {
		return c.instead(field, "is required: %s", strings.Join(allowed, ", "))
	}
	if !slices.Contains(allowed, value) {
		return c.instead(field, "is %s, want one of %s", quote(value), strings.Join(allowed, ", "))
	}
	return true
}

// labels checks names and values by the rules of Kubernetes. The value of kuma.io/display-name is a resource's name,
// which may be longer than a label's value.
func (c *checks) labels(field string, labels map[string]string) {
	for _, name := range sortedNames(labels) {
		at := field + "[" + name + "]"
		value := labels[name]
		switch {
		case name == proxyType:
			c.add(at, proxyTypeProblem)
		case name == CanarySelector:
			if _, err := ParseCanarySelector(value); err != nil {
				c.add(at, "%v", err)
			}
		case !isLabelName(name):
			c.add(at, "is not a label's name: [PREFIX/]NAME, of letters, digits, '-', '_' and '.', NAME at most %d",
				maxLabel)
		case name == WorkloadLabel || name == ServiceAccountLabel:
			if value != "" && (len(value) > maxName || !labelName.MatchString(value)) {
				c.add(at, "%s is not the name of a workload: letters, digits, '-', '_' and '.', at most %d",
					quote(value), maxName)
			}
		case name == NamespaceLabelsLabel:
			if value != "" && NamespaceLabels(labels) == nil {
				c.add(at, "%s is not an object of labels in JSON", quote(value))
			}
		case name != DisplayName && value != "" && (len(value) > maxLabel || !labelName.MatchString(value)):
			c.add(at, "%s is not a label's value: letters, digits, '-', '_' and '.', at most %d", quote(value),
				maxLabel)
		}
	}
}

func isLabelName(name string) bool {
	prefix, rest, found := strings.Cut(name, "/")
	if !found {
		rest = name
	} else if len(prefix) > maxName || !resource.Subdomain.MatchString(prefix) {
		return false
	}
	return len(rest) <= maxLabel && labelName.MatchString(rest)
}

// tags checks the tags of an inbound or of a selector of inbounds.
func (c *checks) tags(field string, tags map[string]string) {
	for _, name := range sortedNames(tags) {
		at := field + "[" + name + "]"
		value := tags[name]
		switch {
		case name == proxyType:
			c.add(at, proxyTypeProblem)
		case len(name) > maxName || !tagName.MatchString(name):
			c.add(at, "is not a tag's name: letters, digits, '.', '-', '_', ':' and '/'")
		case value == "":
			c.add(at, "has no value")
		case len(value) > maxName || !tagValue.MatchString(value):
			c.add(at, "%s is not a tag's value: letters, digits, '.', '-', '_' and ':'", quote(value))
		case name == ServiceTag:
			c.service(at, value)
		case name == ProtocolTag:
			c.protocol(at, Protocol(value))
		}
	}
}

// service checks a value of the tag kuma.io/service, which is in SPIFFE IDs.
func (c *checks) service(field, value string) bool {
	if len(value) > maxName || !service.MatchString(value) {
		return c.add(field, "%s is not a value of %s: letters, digits, '.', '-' and '_', since it is in SPIFFE IDs",
			quote(value), ServiceTag)
	}
	return true
}

// protocol accepts a protocol in any case, and the one that proxies treat as TCP.
func (c *checks) protocol(field string, p Protocol) bool {
	_, known := p.Known()
	return known || c.oneOf(field, string(p), protocols...)
}

// optionalProtocol accepts "" for an absent protocol.
func (c *checks) optionalProtocol(field string, p Protocol) bool {
	return p == "" || c.protocol(field, p)
}

func sortedNames(m map[string]string) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// quote quotes a user's value, and cuts a long one.
func quote(value string) string { return resource.QuoteShort(value) }
