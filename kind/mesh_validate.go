package kind

import (
	"fmt"

	"weft/resource"
)

const (
	defaultRSABits = 2048
	defaultCALife  = 10 * year
)

func validateMesh(o *resource.Object[Mesh], found resource.Problems) resource.Problems {
	c := topEnvelope(&o.Meta, found)
	if o.Spec.MTLS != nil {
		c.mtls("mtls", o.Spec.MTLS)
	}
	if s := o.Spec.MeshServices; s != nil {
		c.instead("meshServices.mode",
			"is %s, and every mesh has the mode Exclusive; write that or leave meshServices out", quote(s.Mode))
	}
	if m := o.Spec.DataplaneProxyMembership; m != nil {
		c.members("dataplaneProxyMembership.allowed", m.Allowed)
		c.members("dataplaneProxyMembership.blocked", m.Blocked)
	}
	if u := o.Spec.UnvouchedMembers; u != nil && (u.Tags || u.Addresses) && u.Until.IsZero() {
		c.add("unvouchedMembers.until", "is required: when it ends, such as 2027-06-30T00:00:00Z")
	}
	return c.problems
}

func (c *checks) mtls(at string, m *MeshMTLS) {
	first := map[string]int{}
	for i := range m.Backends {
		b := &m.Backends[i]
		field := fmt.Sprintf("%s.backends[%d]", at, i)
		if j, taken := first[b.Name]; taken {
			c.add(field+".name", "%q is the name of %s.backends[%d] too; each needs its own", b.Name, at, j)
		} else if c.valid(field + ".name") {
			first[b.Name] = i
		}
		c.mtlsBackend(field, b)
	}
	if _, found := first[m.EnabledBackend]; m.EnabledBackend != "" && !found {
		c.add(at+".enabledBackend", "%s is none of the backends; add it to them, or leave it out for plain traffic",
			quote(m.EnabledBackend))
	}
}

func (c *checks) mtlsBackend(at string, b *MTLSBackend) {
	if !c.valid(at + ".type") {
		return
	}
	conf := MTLSConf{}
	if b.Conf != nil {
		conf = *b.Conf
	}
	if b.Type == BuiltinBackend {
		c.builtinCA(at, b, conf)
	} else {
		c.providedCA(at+".conf", conf)
	}
}

func (c *checks) builtinCA(at string, b *MTLSBackend, conf MTLSConf) {
	at += ".conf"
	for _, field := range []struct {
		name   string
		source *LegacyDataSource
	}{{"cert", conf.Cert}, {"key", conf.Key}} {
		if field.source != nil {
			c.add(at+"."+field.name, "is given with the type builtin, whose authority the control plane makes; use "+
				"the type provided, or leave it out")
		}
	}
	if conf.CACert == nil {
		return
	}
	if _, life := b.BuiltinCA(); life < b.CertificateLife() {
		c.add(at+".caCert.expiration", "is %s, less than the %s of the certificates that it signs", written(life),
			written(b.CertificateLife()))
	}
}

func (c *checks) providedCA(at string, conf MTLSConf) {
	if conf.CACert != nil {
		c.add(at+".caCert", "is given with the type provided; use cert and key, or the type builtin")
	}
	cert := c.legacySource(at+".cert", conf.Cert)
	key := c.legacySource(at+".key", conf.Key)
	right := len(cert) == 0 || c.authorities(at+".cert", string(cert))
	right = (len(key) == 0 || c.privateKey(at+".key", key)) && right
	if right && len(cert) > 0 && len(key) > 0 {
		c.pair(at+".key", cert, key)
	}
}

// legacySource returns the inline value of a valid source.
func (c *checks) legacySource(at string, s *LegacyDataSource) []byte {
	if s == nil {
		c.add(at, "is required: where the value stands")
		return nil
	}
	ways := 0
	for _, given := range []bool{s.Secret != "", len(s.Inline) > 0, s.InlineString != ""} {
		if given {
			ways++
		}
	}
	if ways != 1 {
		c.add(at, "has %d values, want exactly one of secret, inline, inlineString", ways)
		return nil
	}
	if s.InlineString == hiddenKey {
		c.add(at+".inlineString", hiddenKeyWritten)
		return nil
	}
	return s.Value()
}

// members checks the rules of a membership. A rule without a condition is a problem.
func (c *checks) members(at string, rules []MembershipRule) {
	for i, rule := range rules {
		at := fmt.Sprintf("%s[%d]", at, i)
		switch {
		case rule.Kubernetes != nil && len(rule.Tags) > 0:
			c.add(at, "has tags and kubernetes; make two entries of it: they are alternatives")
		case rule.Kubernetes != nil:
			c.kubernetesMembers(at+".kubernetes", rule.Kubernetes)
		case len(rule.Tags) == 0:
			c.add(at, "says nothing: write tags, or kubernetes")
		default:
			c.memberTags(at+".tags", rule.Tags)
		}
	}
}

func (c *checks) memberTags(at string, tags map[string]string) {
	exact := map[string]string{}
	for name, value := range tags {
		if value == anyValue {
			value = "any" // the name is checked; any protocol is a valid value of this tag
			if name == ProtocolTag {
				continue
			}
		}
		exact[name] = value
	}
	c.tags(at, exact)
}

func (c *checks) kubernetesMembers(at string, k *KubernetesMembers) {
	if k.Namespace == nil && k.Pod == nil && k.Zone == "" {
		c.add(at, "says nothing: write namespace, pod or zone")
		return
	}
	if n := k.Namespace; n != nil {
		c.namespaceMembers(at+".namespace", n)
	}
	if p := k.Pod; p != nil {
		c.labels(at+".pod.labels", p.Labels)
	}
}

func (c *checks) namespaceMembers(at string, n *NamespaceMembers) {
	switch {
	case n.Name != "" && len(n.Labels) > 0:
		c.add(at, "has a name and labels; leave one out")
	case n.Name != "":
		c.namespaceName(at+".name", n.Name)
	case len(n.Labels) > 0:
		c.labels(at+".labels", n.Labels)
	default:
		c.add(at, "says nothing: write a name, or labels")
	}
}
