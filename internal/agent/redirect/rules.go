package redirect

import (
	"fmt"
	"net/netip"
)

// prefix is the prefix of weft's chains.
const prefix = "WEFT_"

// Our chains.
const (
	inboundChain  = prefix + "INBOUND"  // connections to this machine
	outboundChain = prefix + "OUTBOUND" // connections of this machine
	dnsChain      = prefix + "DNS"      // questions of this machine
	trackingChain = prefix + "TRACKING" // how the kernel remembers questions
)

// jumpMark is the comment of a jump to one of them.
const jumpMark = "weft-dp"

// ourZone is where the kernel remembers the questions of the proxy (conntrack zone).
const ourZone = 15053

// family is IPv4 or IPv6.
type family struct {
	six bool
	// name is the name in messages, programs the prefix of its programs.
	name, programs string
	loopback       string // the addresses that never leave a machine
}

var (
	ipv4 = &family{name: "IPv4", programs: "iptables", loopback: "127.0.0.0/8"}
	ipv6 = &family{name: "IPv6", programs: "ip6tables", loopback: "::1/128", six: true}
)

// has returns whether an address is of the family.
func (f *family) has(a netip.Addr) bool { return a.Unmap().Is6() == f.six }

// redirects returns whether connections of a family are redirected.
func (o *Options) redirects(f *family) bool {
	if f.six {
		return o.IPv6
	}
	return o.IPv4
}

// DeliverySource is the address from which a proxy dials the application behind it, where that is at an address of its
// machine that is redirected (the Dataplane's inbound without serviceAddress, and probes). IPv6 has none.
const DeliverySource = "127.0.0.6"

// wanted are our rules of a family, as iptables-save would show them.
func (o *Options) wanted(f *family) rules {
	r := rules{}
	r.jump("nat", "PREROUTING", "-p tcp -m addrtype --dst-type LOCAL", inboundChain)
	r.jump("nat", "OUTPUT", "-p tcp", outboundChain)
	o.inbound(r, f)
	if o.DNSPort != 0 {
		r.jump("nat", "OUTPUT", "-p udp -m udp --dport 53", dnsChain)
		r.jump("raw", "OUTPUT", "-p udp -m udp --dport 53", trackingChain)
		o.dns(r, f)
	}
	o.outbound(r, f)
	r.seal()
	return r
}

// inbound redirects packets to an address of this machine. The jump matches LOCAL destinations only, since the machine
// may be a router.
func (o *Options) inbound(r rules, f *family) {
	for _, from := range o.ExcludeInboundIPs {
		if f.has(from.Addr()) {
			r.add("nat", inboundChain, fmt.Sprintf("-s %s -j RETURN", from))
		}
	}
	for _, ports := range o.ExcludeInboundPorts {
		r.add("nat", inboundChain, fmt.Sprintf("-p tcp -m tcp %s -j RETURN", ports.match()))
	}
	r.add("nat", inboundChain, fmt.Sprintf("-p tcp -j REDIRECT --to-ports %d", o.InboundPort))
}

// outbound redirects connections that programs of this machine open. Of connections within the machine, only the
// proxy's own calls of a local service are redirected, as if they were inbound. The connections that deliver such a
// call are not; they have the proxy's source, or a loopback destination. Over IPv6 the two can't be distinguished, and
// neither is redirected.
func (o *Options) outbound(r rules, f *family) {
	if !f.six {
		r.add("nat", outboundChain,
			"-s "+DeliverySource+"/32 -o lo -j RETURN",
			fmt.Sprintf("! -d %s -o lo %s -j %s", f.loopback, o.Proxy.match(), inboundChain))
	}
	if o.DNSPort != 0 {
		r.add("nat", outboundChain, "-p tcp -m tcp --dport 53 -j "+dnsChain)
	}
	r.add("nat", outboundChain,
		"-o lo -j RETURN",
		o.Proxy.match()+" -j RETURN")
	for _, to := range o.ExcludeOutboundIPs {
		if f.has(to.Addr()) {
			r.add("nat", outboundChain, fmt.Sprintf("-d %s -j RETURN", to))
		}
	}
	for _, ports := range o.ExcludeOutboundPorts {
		r.add("nat", outboundChain, fmt.Sprintf("-p tcp -m tcp %s -j RETURN", ports.match()))
	}
	for _, users := range o.ExcludeOutboundOfUsers {
		r.add("nat", outboundChain, users.rules("tcp")...)
	}
	r.add("nat", outboundChain, fmt.Sprintf("-p tcp -j REDIRECT --to-ports %d", o.OutboundPort))
}

// dns redirects questions but for the proxy's own. Those are remembered in a zone of their own: where one of
// them and a program's had the same port one after the other, the kernel would treat the second as part of
// the first, and redirect the proxy's question or let the program's pass.
func (o *Options) dns(r rules, f *family) {
	r.add("raw", trackingChain, fmt.Sprintf("-p udp %s -j CT --zone-orig %d", o.Proxy.match(), ourZone))
	r.add("nat", dnsChain, o.Proxy.match()+" -j RETURN")
	for _, users := range o.ExcludeOutboundOfUsers {
		r.add("nat", dnsChain, users.rules("udp")...)
		r.add("nat", dnsChain, users.rules("tcp")...)
	}
	for _, to := range o.resolvers(f) {
		for _, protocol := range []string{"udp", "tcp"} {
			r.add("nat", dnsChain, fmt.Sprintf("%s-p %[2]s -m %[2]s --dport 53 -j REDIRECT --to-ports %[3]d", to,
				protocol, o.DNSPort))
		}
	}
}

// resolvers are the parts of rules that match the resolvers of a family, "" for any.
func (o *Options) resolvers(f *family) []string {
	if len(o.Resolvers) == 0 {
		return []string{""}
	}
	var parts []string
	for _, a := range o.Resolvers {
		if a = a.Unmap().WithZone(""); f.has(a) {
			parts = append(parts, fmt.Sprintf("-d %s ", netip.PrefixFrom(a, a.BitLen())))
		}
	}
	return parts
}
