package kind

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"

	"weft/resource"
)

// maxServices is the maximum number of values of kuma.io/service in the inbounds of one Dataplane. Each value may
// generate a MeshService.
const maxServices = 32

// services limits the number of services of the inbounds. An inbound of a namespace has a Service of Kubernetes, and
// generates none.
func (c *checks) services(at string, n *Networking) {
	values := map[string]bool{}
	for _, in := range n.Inbound {
		if value := in.Tags[ServiceTag]; value != "" && in.Tags[NamespaceLabel] == "" {
			values[value] = true
		}
	}
	if len(values) > maxServices {
		c.add(at, "has %d values of the tag %s, want %d at most; write MeshServices that select other tags",
			len(values), ServiceTag, maxServices)
	}
}

func validateDataplane(o *resource.Object[Dataplane], found resource.Problems) resource.Problems {
	c := envelope(&o.Meta, found)
	n := &o.Spec.Networking
	if n.Address != "" {
		c.hostAddress("networking.address", n.Address)
	}
	c.services("networking.inbound", n)
	for i, in := range n.Inbound {
		c.inbound(fmt.Sprintf("networking.inbound[%d]", i), n, in)
	}
	if z := n.ZoneIngress; z != nil {
		c.hostAddress(atZoneIngress+".advertisedAddress", z.AdvertisedAddress)
	}
	for _, s := range zoneSections(n) {
		c.sectionName(s.at+".name", s.name)
	}
	c.sections(n)
	c.sharedListeners(n)
	for i, out := range n.Outbound {
		c.outbound(fmt.Sprintf("networking.outbound[%d]", i), out)
	}
	c.boundAddresses(n)
	if n.TransparentProxying != nil {
		c.transparentProxying("networking.transparentProxying", n)
	}
	return c.problems
}

func (c *checks) inbound(at string, n *Networking, in Inbound) {
	c.sectionName(at+".name", in.Name)
	c.optionalProtocol(at+".protocol", in.Protocol)
	c.tags(at+".tags", in.Tags)
	if tag := in.Tags[ProtocolTag]; tag != "" && in.Protocol != "" &&
		Protocol(tag).ServedProtocol() != in.Protocol.ServedProtocol() {
		c.add(at+".protocol", "is %q, and the tag %s says %q; leave one out", in.Protocol, ProtocolTag, tag)
	}
	c.state(at, in)
	c.forwarding(at, n, in)
}

// forwarding rejects an inbound without a listener address, and an inbound that would forward to itself.
func (c *checks) forwarding(at string, n *Networking, in Inbound) {
	effective := n.Effective(in)
	if effective.Address == "" {
		c.add(at+".address", "is required where networking.address is absent")
		return
	}
	if admin := n.Admin; admin != nil && admin.Port != 0 && admin.Port <= 65535 &&
		effective.ServicePort == admin.Port && isLoopback(effective.ServiceAddress) {
		c.add(at+".servicePort", "is networking.admin.port, at which the proxy's administration interface listens, "+
			"which authenticates no caller; name the application's port")
	}
	itself := effective.ServiceAddress == effective.Address && effective.ServicePort == effective.Port
	if n.TransparentProxying == nil && itself {
		c.add(at+".servicePort", "the proxy would listen on %s and forward to it; let the application listen on "+
			"another port or address and name it here or in serviceAddress", effective.Listener())
	}
}

func isLoopback(address string) bool {
	ip, err := netip.ParseAddr(address)
	return err == nil && ip.IsLoopback()
}

// state rejects contradictions. An Ignored inbound may have any health.
func (c *checks) state(at string, in Inbound) {
	h := in.Health
	if h == nil {
		return
	}
	if in.Healthy != nil {
		c.add(at+".healthy", "is another spelling of health, which is there too; leave it out")
		return
	}
	if h.Ready != nil && h.Healthy != nil && *h.Ready != *h.Healthy {
		c.add(at+".health", "`ready` and `healthy` contradict each other; leave `healthy` out")
		return
	}
	said := h.Ready
	if said == nil {
		said = h.Healthy
	}
	if said != nil && (in.State == Ready && !*said || in.State == NotReady && *said) {
		c.add(at+".state", "is %q, which `health` contradicts; leave `health` out", in.State)
	}
}

const (
	atZoneIngress = "networking.zoneIngress"
	atZoneEgress  = "networking.zoneEgress"
)

// zoneSection has the common fields of zone proxy sections.
type zoneSection struct {
	at, address string
	port        uint32
	name        string
}

func zoneSections(n *Networking) []zoneSection {
	var sections []zoneSection
	if z := n.ZoneIngress; z != nil {
		sections = append(sections, zoneSection{atZoneIngress, z.Address, z.Port, z.Name})
	}
	if z := n.ZoneEgress; z != nil {
		sections = append(sections, zoneSection{atZoneEgress, z.Address, z.Port, z.Name})
	}
	return sections
}

// hostAddress checks an IP address, or a host name that resolves to an address of another machine.
func (c *checks) hostAddress(field, address string) {
	switch {
	case !NeedsLookup(address):
		c.address(field, address)
	case !c.dnsName(field, address, "neither an IP address nor a host name"):
	case LocalEndpoint(address, nil) != "":
		c.add(field, "%s is the name of every machine for itself; name the machine as others do", quote(address))
	}
}

// sections checks that the names of inbounds and zone proxy sections are distinct. Inbounds that share a listener may
// share its name, and inbounds without a name may share a port. A zone proxy section without a name is selected by its
// port, which no other section may have.
func (c *checks) sections(n *Networking) {
	type section struct{ at, listener string }
	first := map[string]section{}
	differs := func(at, name, listener string) {
		if name == "" {
			return
		}
		if other, taken := first[name]; taken {
			if listener == "" || listener != other.listener {
				c.add(at+".name", "%q is the name of %s too; each needs its own", name, other.at)
			}
			return
		}
		first[name] = section{at, listener}
	}
	unnamed := map[uint32]string{}
	for i, in := range n.Inbound {
		at := fmt.Sprintf("networking.inbound[%d]", i)
		effective := n.Effective(in)
		differs(at, in.Name, effective.Listener())
		if _, shared := unnamed[in.Port]; in.Name == "" && !shared {
			unnamed[in.Port] = at
		}
	}
	for _, s := range zoneSections(n) {
		differs(s.at, s.name, "")
		if s.name != "" {
			continue
		}
		if other, taken := unnamed[s.port]; taken && s.port != 0 {
			c.add(s.at+".name", "is required: policies reach it by its port, and %s has the port %d too", other, s.port)
		}
		unnamed[s.port] = s.at
	}
}

// sharedListeners checks that inbounds with the same address and port agree on the properties of their common listener.
func (c *checks) sharedListeners(n *Networking) {
	first := map[string]int{}
	for i, in := range n.Inbound {
		in = n.Effective(in)
		j, shared := first[in.Listener()]
		if !shared {
			first[in.Listener()] = i
			continue
		}
		other := n.Effective(n.Inbound[j])
		differs := func(field string, mine, theirs any) {
			if mine != theirs {
				c.add(fmt.Sprintf("networking.inbound[%d].%s", i, field),
					"is %v, and %v in networking.inbound[%d], which shares the listener %s; they must agree", mine,
					theirs, j, in.Listener())
			}
		}
		differs("protocol", in.Protocol, other.Protocol)
		differs("servicePort", in.ServicePort, other.ServicePort)
		differs("serviceAddress", in.ServiceAddress, other.ServiceAddress)
	}
}

func (c *checks) outbound(at string, out Outbound) {
	switch {
	case out.BackendRef != nil && len(out.Tags) > 0:
		c.add(at, "has tags and a backendRef; leave one out")
	case out.BackendRef != nil:
		c.backendRef(at+".backendRef", *out.BackendRef)
		if out.BackendRef.Port == 0 {
			c.add(at+".backendRef.port", "is required: a port of the destination")
		}
	case out.Tags[ServiceTag] == "":
		c.add(at, "names no destination: write a backendRef, or the tag %s", ServiceTag)
	default:
		c.tags(at+".tags", out.Tags)
		for _, name := range sortedNames(out.Tags) {
			if name != ServiceTag {
				c.add(at+".tags["+name+"]", "has no meaning in an outbound; only %s has", ServiceTag)
			}
		}
	}
}

func (c *checks) backendRef(at string, ref BackendRef) {
	if c.valid(at + ".kind") {
		c.nameOrLabels(at, ref.Kind, ref.Name, ref.Labels)
	}
}

// nameOrLabels requires exactly one of both, of resources of a kind.
func (c *checks) nameOrLabels(at, of, name string, labels map[string]string) {
	switch {
	case name != "" && len(labels) > 0:
		c.add(at, "has a name and labels; leave one out")
	case of == "MeshService" && strings.Contains(name, "_"):
		c.instead(at+".name", "%s", notAName(name))
	case len(labels) > 0:
		c.labels(at+".labels", labels)
	case name == "":
		c.add(at+".name", "is required, or labels")
	}
}

// TagOfPods matches a value of kuma.io/service of a Pod: its Service, the namespace and, where it has one, the port.
var TagOfPods = regexp.MustCompile(`^([a-z0-9.-]+)_([a-z0-9-]+)_svc(?:_([0-9]+))?$`)

// notAName returns why a value of kuma.io/service is no name of a service, and what replaces it.
func notAName(value string) string {
	tag := TagOfPods.FindStringSubmatch(value)
	if tag == nil {
		return fmt.Sprintf("%s is a value of %s, and no name; write the name of the MeshService, which is %s where "+
			"the control plane generates it", quote(value), ServiceTag, quote(GeneratedName(value)))
	}
	text := fmt.Sprintf("%s is a value of %s, and no name; write the MeshService %s of the namespace %s", quote(value),
		ServiceTag, tag[1], tag[2])
	if tag[3] != "" {
		text += " and its port " + tag[3]
	}
	return text + fmt.Sprintf(": on Kubernetes {name: %s, namespace: %s}, otherwise {labels: {%s: %s, %s: %s}}", tag[1],
		tag[2], DisplayName, tag[1], NamespaceLabel, tag[2])
}

// boundAddresses checks that the proxy binds no address twice: outbounds, inbounds without redirection, zone proxy
// sections, and Envoy's administration interface.
func (c *checks) boundAddresses(n *Networking) {
	taken := map[string]string{}
	bind := func(at, address string, port uint32) {
		listener := HostPort(address, port)
		if other, ok := taken[listener]; ok {
			c.add(at+".port", "%s is taken by %s", listener, other)
			return
		}
		taken[listener] = at
	}
	if n.Admin != nil && n.Admin.Port != 0 {
		bind("networking.admin", AdminAddress, n.Admin.Port)
	}
	if n.TransparentProxying == nil {
		shared := map[string]bool{}
		for i, in := range n.Inbound {
			in = n.Effective(in)
			if !shared[in.Listener()] {
				shared[in.Listener()] = true
				bind(fmt.Sprintf("networking.inbound[%d]", i), in.Address, in.Port)
			}
		}
	}
	for _, s := range zoneSections(n) {
		bind(s.at, s.address, s.port)
	}
	for i, out := range n.Outbound {
		bind(fmt.Sprintf("networking.outbound[%d]", i), out.EffectiveAddress(), out.Port)
	}
}

func (c *checks) transparentProxying(at string, n *Networking) {
	if len(zoneSections(n)) > 0 && len(n.Inbound) == 0 {
		c.add(at, "a zone proxy has none: nothing is redirected to it; leave it out")
	}
	t := n.TransparentProxying
	if t.RedirectPortInbound != 0 && t.RedirectPortInbound == t.RedirectPortOutbound {
		c.add(at+".redirectPortOutbound", "is redirectPortInbound too; each needs its own")
	}
	for i, service := range t.ReachableServices {
		c.service(fmt.Sprintf("%s.reachableServices[%d]", at, i), service)
	}
	if t.ReachableBackends == nil {
		return
	}
	for i, ref := range t.ReachableBackends.Refs {
		c.backendRef(fmt.Sprintf("%s.reachableBackends.refs[%d]", at, i), ref)
	}
}
