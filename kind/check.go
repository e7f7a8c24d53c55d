package kind

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"weft/resource"
)

// checks collects the problems of one object. Each method adds a problem for an invalid value, and reports whether the
// value is valid.
type checks struct {
	problems resource.Problems
	// namespaces reports whether the object is of Kubernetes, so that its references may have a namespace.
	namespaces bool
}

func (c *checks) add(field, format string, args ...any) bool {
	c.problems.Add(field, format, args...)
	return false
}

// envelope returns the checks of an object, with the problems of its name and labels.
func envelope(meta *resource.Meta) *checks {
	c := &checks{namespaces: meta.Label(EnvLabel) == Kubernetes}
	c.name("name", meta.Name)
	c.labels("labels", meta.Labels)
	return c
}

// topEnvelope is envelope for a mesh or a zone, whose names have stricter rules.
func topEnvelope(meta *resource.Meta) *checks {
	c := &checks{}
	if problem := MeshNameProblem(meta.Name); problem != "" {
		c.add("name", "%s", problem)
	}
	c.labels("labels", meta.Labels)
	return c
}

var (
	label1035  = regexp.MustCompile(`^[a-z]([-a-z0-9]*[a-z0-9])?$`)
	label1123  = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
	subdomain  = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
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
	"name":      subdomain,
	"host":      dnsName,
	"mesh":      label1035,
	"section":   label1123,
	"labelName": regexp.MustCompile(`^([-a-z0-9.]+/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`),
	"tagName":   tagName,
	"tagValue":  tagValue,
	"duration":  duration,
}

const (
	maxName  = 253 // of a DNS name
	maxLabel = 63  // of a DNS label, and of a label's name and value

	// proxyType is a label and a tag of former releases.
	proxyType        = ProxyTypeLabel
	proxyTypeProblem = "has no meaning here; a zone proxy is told by its section of networking"
)

var protocols = []string{string(TCP), string(TLS), string(HTTP), string(HTTP2), string(GRPC), string(Kafka)}

// NameProblem returns the problem of the name of a resource other than a Mesh (RFC 1123, subdomain), or "".
func NameProblem(name string) string {
	switch {
	case name == "":
		return "is required"
	case len(name) > maxName || !subdomain.MatchString(name):
		return fmt.Sprintf("%s is not a name: lower case letters, digits, '-' and '.', at most %d, beginning and "+
			"ending with a letter or digit", quote(name), maxName)
	}
	return ""
}

func (c *checks) name(field, name string) bool {
	if problem := NameProblem(name); problem != "" {
		return c.add(field, "%s", problem)
	}
	return true
}

// MeshNameProblem returns the problem of the name of a mesh or a zone (RFC 1035, label), or "". Such a name has no
// dots, so a proxy's node id splits at the first one.
func MeshNameProblem(name string) string {
	switch {
	case name == "":
		return "is required"
	case len(name) > maxLabel || !label1035.MatchString(name):
		return fmt.Sprintf("%s is not a name of a mesh or zone: lower case letters, digits and '-', at most %d, "+
			"beginning with a letter, without a dot", quote(name), maxLabel)
	}
	return ""
}

// section checks the name of an inbound or of a service's port (RFC 1123, label). A number is invalid, since it would
// look like a port.
func (c *checks) section(field, name string) bool {
	switch {
	case len(name) > maxLabel || !label1123.MatchString(name):
		return c.add(field, "%s is not a name: lower case letters, digits and '-', at most %d", quote(name), maxLabel)
	case onlyDigits.MatchString(name):
		return c.add(field, "%q is a number; leave the name out, and it is reached by its port", name)
	}
	return true
}

func (c *checks) port(field string, port uint32) bool {
	if port < 1 || port > 65535 {
		return c.add(field, "is %d, want a port from 1 to 65535", port)
	}
	return true
}

// optionalPort accepts 0 for an absent port.
func (c *checks) optionalPort(field string, port uint32) bool {
	return port == 0 || c.port(field, port)
}

var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// address checks a unicast IP address in its canonical form, since listeners and endpoints are identified by it.
func (c *checks) address(field, address string) bool {
	ip, err := netip.ParseAddr(address)
	switch {
	case err != nil || ip.Zone() != "":
		return c.add(field, "%s is not an IP address", quote(address))
	case ip.IsUnspecified():
		return c.add(field, "%s means every address; name one", address)
	case ip.IsMulticast():
		return c.add(field, "%s is a multicast address; name one of a machine", address)
	case ip.Unmap().IsLinkLocalUnicast() || ip.Unmap() == broadcast:
		return c.add(field,
			"%s is a link-local or broadcast address, which is another machine on each link; name one of a machine",
			address)
	case ip.Unmap().String() != address:
		return c.add(field, "write %s as %s", address, ip.Unmap())
	}
	return true
}

// optionalAddress accepts "" for an absent address.
func (c *checks) optionalAddress(field, address string) bool {
	return address == "" || c.address(field, address)
}

func (c *checks) oneOf(field, value string, allowed ...string) bool {
	if value == "" {
		return c.add(field, "is required: %s", strings.Join(allowed, ", "))
	}
	if !slices.Contains(allowed, value) {
		return c.add(field, "is %s, want one of %s", quote(value), strings.Join(allowed, ", "))
	}
	return true
}

// optionalOneOf accepts "" for an absent value.
func (c *checks) optionalOneOf(field, value string, allowed ...string) bool {
	return value == "" || c.oneOf(field, value, allowed...)
}

// duration accepts 0 for an absent duration.
func (c *checks) duration(field string, d Duration, low, high time.Duration) bool {
	if value := time.Duration(d); value != 0 && (value < low || value > high) {
		return c.add(field, "is %s, want %s to %s", value, low, high)
	}
	return true
}

// life checks a duration that is stored as text, or "" for an absent one.
func (c *checks) life(field, text string, low, high time.Duration) bool {
	if text == "" {
		return true
	}
	d, err := ParseDuration(text)
	switch {
	case err != nil:
		return c.add(field, "%s", err)
	case d < low || d > high:
		return c.add(field, "is %s, want %s to %s", text, written(low), written(high))
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
	} else if len(prefix) > maxName || !subdomain.MatchString(prefix) {
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
func quote(value string) string {
	const most = 80
	if len(value) > most {
		return fmt.Sprintf("%q...", value[:most])
	}
	return fmt.Sprintf("%q", value)
}
