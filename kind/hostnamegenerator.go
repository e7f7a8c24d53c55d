package kind

import (
	"net/netip"
	"strings"

	"weft/resource"
)

// HostnameGenerator gives a host name to each service that it selects. A service that several generators select has a
// host name from each.
type HostnameGenerator struct {
	// Selector is the selector of the services. For the selector, the label kuma.io/origin is "zone" on a zone's own
	// MeshServices, and "global" on MeshServices of other zones, which arrive through global.
	Selector HostnameSelector `json:"selector" schema:"required one"`
	// Template is the template of the host name. It may contain {{ .DisplayName }} (the service's name on its owner),
	// {{ .Name }} (its name on this control plane), {{ .Namespace }} (on Kubernetes), {{ .Mesh }}, {{ .Zone }} and {{
	// label "NAME" }}.
	Template string `json:"template" schema:"required maxLength=1024" missing:"for example \"{{ .DisplayName }}.svc.{{ .Zone }}.mesh.local\""`
}

// HostnameSelector has exactly one of its fields.
type HostnameSelector struct {
	MeshService          *LabelSelector `json:"meshService,omitempty"`          // MeshServices by their labels
	MeshMultiZoneService *LabelSelector `json:"meshMultiZoneService,omitempty"` // MeshMultiZoneServices by their labels
	MeshExternalService  *LabelSelector `json:"meshExternalService,omitempty"`  // MeshExternalServices by their labels
}

// HostnameGenerators is the kind of [HostnameGenerator].
var HostnameGenerators = &resource.Kind[HostnameGenerator]{
	Info: resource.Info{
		Name: "HostnameGenerator", Plural: "hostnamegenerators", ShortName: "hg", Scope: resource.Global,
		WrittenBy: resource.Operator, ForEveryMesh: true,
		Sync:     resource.GlobalToZones | resource.ZoneToGlobal,
		Replaces: []resource.OlderKind{{Name: "VirtualOutbound", Plural: "virtual-outbounds"}},
		Replaced: map[string]string{
			"extension": "has no meaning here; use `template`",
		},
	},
	Validate: validateHostnameGenerator,
}

func validateHostnameGenerator(o *resource.Object[HostnameGenerator], found resource.Problems) resource.Problems {
	c := envelope(&o.Meta, found)
	c.hostnameSelector("spec.selector", o.Spec.Selector)
	if sample, ok := c.template("spec.template", o.Spec.Template, HostnameActions, ""); ok && !IsHostname(sample) {
		c.add("spec.template",
			"%s does not render to a host name: want lower case letters, digits and '-', in parts between dots",
			quote(o.Spec.Template))
	}
	return c.problems
}

func (c *checks) hostnameSelector(at string, s HostnameSelector) {
	ways := 0
	for _, kind := range []struct {
		field    string
		selector *LabelSelector
	}{{".meshService", s.MeshService}, {".meshMultiZoneService", s.MeshMultiZoneService},
		{".meshExternalService", s.MeshExternalService}} {
		if kind.selector != nil {
			ways++
			c.labels(at+kind.field+".matchLabels", kind.selector.MatchLabels)
		}
	}
	if ways != 1 {
		c.add(at, "has %d selections, want exactly one of meshService, meshMultiZoneService, meshExternalService; "+
			"{matchLabels: {}} selects all", ways)
	}
}

// IsHostname reports whether a name is a host name: labels of RFC 1123 in lower case, 63 characters each and 253 in all
// (RFC 1035, section 2.3.4), and the last one not a number.
func IsHostname(name string) bool {
	return len(name) <= maxName && resource.Subdomain.MatchString(name) && !longLabel(name) && !endsInANumber(name)
}

// IsDNSName reports whether a name is one of a server outside the mesh: a host name, of which parts may have '_' too,
// as names in DNS have.
func IsDNSName(name string) bool {
	return len(name) <= maxName && dnsName.MatchString(name) && !longLabel(name) && !endsInANumber(name)
}

// canonicalName returns a name of a server in lower case and without the dot at its end. An IP address and
// "*." stay as they are.
func canonicalName(name string) string {
	if _, err := netip.ParseAddr(name); err == nil {
		return name
	}
	name = strings.ToLower(name)
	if whole := strings.TrimSuffix(name, "."); whole != "*" {
		return whole
	}
	return name
}

// endsInANumber reports whether some parsers would read the name as an IP address.
func endsInANumber(name string) bool {
	return aNumber.MatchString(name[strings.LastIndexByte(name, '.')+1:])
}

func longLabel(name string) bool {
	length := 0
	for _, r := range name {
		if length++; r == '.' {
			length = 0
		}
		if length > maxLabel {
			return true
		}
	}
	return false
}
