package kind

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"

	"weft/resource"
)

// MeshPassthrough decides which connections to addresses outside the mesh the proxies that it targets forward.
//
// Only proxies with transparent proxying are affected; connections to services of the mesh are not. Without a policy,
// every connection is forwarded. A changed policy holds for new connections and for HTTP requests; open connections
// stay. It is no security boundary: a rule about a domain holds for what the application says, not for where it
// connects to. A policy with the label kuma.io/effect: shadow has no effect.
type MeshPassthrough struct {
	// the target proxies; by default the whole mesh
	TargetRef *TargetRef      `json:"targetRef,omitempty"`
	Default   PassthroughConf `json:"default"` // the conf
}

// PassthroughConf decides which connections leave the mesh.
type PassthroughConf struct {
	// PassthroughMode is All for every connection, Matched for those that an item of appendMatch matches, and None for
	// none. A later policy decides.
	PassthroughMode string `json:"passthroughMode,omitempty" schema:"enum=All|Matched|None default=Matched"`
	// AppendMatch are the connections that leave the mesh, as alternatives. The items of all policies count.
	AppendMatch []PassthroughMatch `json:"appendMatch,omitempty" merge:"append" schema:"maxItems=256"`
}

// PassthroughMatch matches connections by their destination and protocol.
type PassthroughMatch struct {
	// Domain for the name that the application uses: the SNI of TLS, or the host of HTTP requests. IP and CIDR for the
	// address that it connects to.
	Type string `json:"type" schema:"required enum=Domain|IP|CIDR"`
	// A domain, which is stored in lower case, *.DOMAIN for all of its subdomains, or * for every domain; an IP
	// address; or a CIDR block.
	Value string `json:"value" schema:"required maxLength=253" missing:"a domain, an IP address or a CIDR block"`
	// the port that the application connects to; by default every port
	Port uint32 `json:"port,omitempty" schema:"port"`
	// Protocol is the protocol of the connection: tls, http, http2 or grpc are detected by the first bytes of the
	// application. Connections of tcp and mysql are not inspected, so the server may send first.
	Protocol string `json:"protocol,omitempty" schema:"enum=tcp|tls|grpc|http|http2|mysql default=tcp"`
}

// Modes of a MeshPassthrough.
const (
	PassthroughAll     = "All"
	PassthroughMatched = "Matched"
	PassthroughNone    = "None"
)

// Types of a [PassthroughMatch].
const (
	PassthroughDomain = "Domain"
	PassthroughIP     = "IP"
	PassthroughCIDR   = "CIDR"
)

const mysql = "mysql"

// Mode returns the mode, or its default.
func (c *PassthroughConf) Mode() string { return cmp.Or(c.PassthroughMode, PassthroughMatched) }

// IsInspected reports whether the first bytes of a connection decide whether it matches.
func (m *PassthroughMatch) IsInspected() bool { return m.Protocol == string(TLS) || m.IsHTTP() }

// IsHTTP reports whether the match is about HTTP without TLS, of any version.
func (m *PassthroughMatch) IsHTTP() bool { return Protocol(m.Protocol).IsHTTP() }

// MeshPassthroughs is the kind of [MeshPassthrough].
var MeshPassthroughs = NewPolicy(PolicyKind[MeshPassthrough, PassthroughConf]{
	Kind: resource.Kind[MeshPassthrough]{
		Info: resource.Info{
			Name: "MeshPassthrough", Plural: "meshpassthroughs", ShortName: "mp",
			Replaced: wholeProxyReplaced(),
		},
		Default: func(o *resource.Object[MeshPassthrough]) {
			for i := range o.Spec.Default.AppendMatch {
				if m := &o.Spec.Default.AppendMatch[i]; m.Type == PassthroughDomain {
					m.Value = canonicalName(m.Value)
				}
			}
		},
		Validate: validateMeshPassthrough,
	},
	Restrictive: true,
	Fields: []FieldRule[PassthroughConf]{
		{Reason: func(_ *PassthroughConf, _ string, at *Place) string {
			if !at.Transparent {
				return "without transparentProxying, no connection passes a Dataplane by itself"
			}
			return ""
		}},
		{Prefix: "appendMatch", Reason: func(c *PassthroughConf, _ string, _ *Place) string {
			if c.Mode() != PassthroughMatched {
				return fmt.Sprintf("passthroughMode is %s; it needs Matched", c.Mode())
			}
			return ""
		}},
	},
})

func validateMeshPassthrough(o *resource.Object[MeshPassthrough], found resource.Problems) resource.Problems {
	c := envelope(&o.Meta, found)
	c.wholeProxies("spec.targetRef", o.Spec.TargetRef)
	conf := &o.Spec.Default
	for i := range conf.AppendMatch {
		at, m := fmt.Sprintf("spec.default.appendMatch[%d]", i), &conf.AppendMatch[i]
		if c.passthroughMatch(at, m) {
			c.otherMatches(at, m, conf.AppendMatch[:i])
		}
	}
	return c.problems
}

// passthroughMatch checks one match.
func (c *checks) passthroughMatch(at string, m *PassthroughMatch) bool {
	valid := c.passthroughValue(at+".value", m)
	if !valid || !c.valid(at+".type") || !c.valid(at+".port") || !c.valid(at+".protocol") {
		return false
	}
	switch {
	case m.Type == PassthroughDomain && !m.IsInspected():
		valid = c.add(at+".protocol", "is %s, whose connections have no name of a domain; want tls, http, http2 or "+
			"grpc", cmp.Or(m.Protocol, string(TCP)))
	case m.Protocol == mysql && m.Port == 0:
		valid = c.add(at+".port", "is required for mysql, such as 3306")
	case m.Port == 0 && m.IsHTTP() && strings.HasPrefix(m.Value, "*"):
		valid = c.add(at+".port", "is required for %s with %s", m.Value, m.Protocol)
	}
	return valid
}

// passthroughValue checks the value of a match by its type.
func (c *checks) passthroughValue(at string, m *PassthroughMatch) bool {
	switch m.Type {
	case PassthroughDomain:
		name, _ := strings.CutPrefix(m.Value, "*.")
		if m.Value != "*" && (len(name) > maxName || !dnsName.MatchString(name)) {
			return c.add(at, "%s is not a domain, such as example.com, *.example.com or *",
				quote(m.Value))
		}
		if _, err := netip.ParseAddr(name); err == nil {
			return c.add(at, "%s is an IP address; use the type IP", quote(m.Value))
		}
		return true
	case PassthroughIP:
		ip, err := netip.ParseAddr(m.Value)
		switch {
		case err != nil || ip.Zone() != "":
			return c.add(at, "%s is not an IP address", quote(m.Value))
		case ip.IsUnspecified():
			return c.add(at, "%s means every address; use the type CIDR with 0.0.0.0/0 or ::/0", m.Value)
		case ip.Unmap().String() != m.Value:
			return c.add(at, "write %s as %s", m.Value, ip.Unmap())
		}
		return true
	case PassthroughCIDR:
		block, err := netip.ParsePrefix(m.Value)
		switch {
		case err != nil || block.Addr().Is4In6():
			return c.add(at, "%s is not a CIDR block such as 192.168.0.0/16", quote(m.Value))
		case block.Masked().String() != m.Value:
			return c.add(at, "write %s as %s", m.Value, block.Masked())
		}
		return true
	}
	return true
}

// otherMatches checks a match with the ones before it.
func (c *checks) otherMatches(at string, m *PassthroughMatch, before []PassthroughMatch) {
	protocol := func(m *PassthroughMatch) string { return cmp.Or(m.Protocol, string(TCP)) }
	for i := range before {
		switch other := &before[i]; {
		case other.Port != m.Port:
		case other.Value == m.Value && protocol(other) == protocol(m):
			c.add(at, "is spec.default.appendMatch[%d] again; remove one of them", i)
			return
		case other.IsHTTP() && m.IsHTTP() && other.Protocol != m.Protocol:
			c.add(at+".protocol", "is %s, and %s in spec.default.appendMatch[%d]; use one of http, http2 and grpc for "+
				"all matches of a port, which passes each of them", m.Protocol, other.Protocol, i)
			return
		}
	}
}

// wholeProxyReplaced returns the messages about fields that a policy about the whole proxy lacks.
func wholeProxyReplaced() map[string]string {
	const ofProxy = "has no meaning here: the policy is about the whole proxy; use `default`"
	return map[string]string{
		"to":    ofProxy,
		"from":  ofProxy,
		"rules": ofProxy,

		"targetRef.mesh": otherMesh,
	}
}

// wholeProxies checks the target of a policy about whole proxies.
func (c *checks) wholeProxies(at string, ref *TargetRef) {
	if ref == nil {
		return
	}
	c.targetRef(at, ref)
	if ref.SectionName != "" {
		c.add(at+".sectionName", "has no meaning here: the policy is about the whole proxy; leave it out")
	}
}
