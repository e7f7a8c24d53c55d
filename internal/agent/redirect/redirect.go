// Package redirect installs and removes rules of iptables and ip6tables that redirect the connections of a Linux
// machine, or of one of its network namespaces, to the machine's proxy.
//
// The rules are in chains of their own, whose names begin with [prefix] and contain a checksum of the rules. Jumps from
// the kernel's chains lead to them, after all other rules. Nothing else is changed. Installed rules are replaced in one
// transaction per table, and restored if a later step fails. Changes that could not be undone exactly are rejected:
// chains that were edited, and rules of other programs that jump into them.
//
// The rules are a pure function of [Options], and the commands to install them a pure function of the rules and the
// output of iptables-save.
package redirect

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Options select the redirected connections.
type Options struct {
	// Proxy is whose connections are the proxy's own.
	Proxy Owner
	// InboundPort and OutboundPort are the proxy's: the Dataplane's transparentProxying names them too.
	InboundPort, OutboundPort uint16
	// DNSPort is the port of weft-dp's DNS server; 0: DNS queries are not redirected.
	DNSPort uint16
	// Resolvers receive redirected DNS requests; none: any address.
	Resolvers []netip.Addr
	// Connections from ExcludeInboundIPs, and to ExcludeInboundPorts of this machine, come in as they are.
	ExcludeInboundIPs   []netip.Prefix
	ExcludeInboundPorts []Ports
	// Connections to ExcludeOutboundIPs, and to ExcludeOutboundPorts anywhere, go out as they are. Questions
	// to resolvers are no matter of these.
	ExcludeOutboundIPs   []netip.Prefix
	ExcludeOutboundPorts []Ports
	// ExcludeOutboundOfUsers are ports to which connections and DNS queries of some users go out as they are.
	ExcludeOutboundOfUsers []UserPorts
	// IPv4 and IPv6 say of which of them connections are redirected.
	IPv4, IPv6 bool
}

// Owner is a user or a group, by which the kernel identifies a program's connections.
type Owner struct {
	Group bool
	ID    uint32
}

// match is the part of a rule that matches packets of the owner.
func (o Owner) match() string {
	if o.Group {
		return fmt.Sprintf("-m owner --gid-owner %d", o.ID)
	}
	return fmt.Sprintf("-m owner --uid-owner %d", o.ID)
}

// Ports are a range of ports.
type Ports struct{ First, Last uint16 }

// ParsePorts reads "22" or "8000-8010".
func ParsePorts(text string) (Ports, error) {
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		last = first
	}
	from, err := strconv.ParseUint(first, 10, 16)
	to, err2 := strconv.ParseUint(last, 10, 16)
	if err != nil || err2 != nil || from == 0 || from > to {
		return Ports{}, fmt.Errorf("%q is no port, want a number from 1 to 65535, or a range such as 8000-8010", text)
	}
	return Ports{uint16(from), uint16(to)}, nil
}

// match is the part of a rule that matches packets to these ports.
func (p Ports) match() string {
	if p.First == p.Last {
		return fmt.Sprintf("--dport %d", p.First)
	}
	return fmt.Sprintf("--dport %d:%d", p.First, p.Last)
}

// UserPorts are ports of a protocol, for some users.
type UserPorts struct {
	Protocol    string  // tcp, udp or * for both. Of UDP, only DNS queries are redirected
	Ports       []Ports // none: all
	First, Last uint32  // the users
}

// ParseUserPorts reads PROTOCOL:PORTS:USERS, such as "tcp:22,80-90:1000" or "*:*:0-999".
func ParseUserPorts(text string) (UserPorts, error) {
	fail := func(reason error) (UserPorts, error) {
		return UserPorts{}, fmt.Errorf("%q is not PROTOCOL:PORTS:USERS such as tcp:22:1000 or *:53:0-999: %w", text,
			reason)
	}
	parts := strings.Split(text, ":")
	if len(parts) != 3 || parts[0] != "tcp" && parts[0] != "udp" && parts[0] != "*" {
		return fail(errors.New("want the protocol tcp, udp or *"))
	}
	u := UserPorts{Protocol: parts[0]}
	if parts[1] != "*" {
		for part := range strings.SplitSeq(parts[1], ",") {
			ports, err := ParsePorts(part)
			if err != nil {
				return fail(err)
			}
			u.Ports = append(u.Ports, ports)
		}
	}
	first, last, isRange := strings.Cut(parts[2], "-")
	if !isRange {
		last = first
	}
	from, err := strconv.ParseUint(first, 10, 32)
	to, err2 := strconv.ParseUint(last, 10, 32)
	if err != nil || err2 != nil || from > to {
		return fail(errors.New("want the ID of a user, or a range of them"))
	}
	u.First, u.Last = uint32(from), uint32(to)
	return u, nil
}

// rules are the parts of rules that match packets of a protocol.
func (u UserPorts) rules(protocol string) []string {
	if u.Protocol != protocol && u.Protocol != "*" {
		return nil
	}
	owner := fmt.Sprintf("-m owner --uid-owner %d", u.First)
	if u.Last != u.First {
		owner += fmt.Sprintf("-%d", u.Last)
	}
	if len(u.Ports) == 0 {
		return []string{fmt.Sprintf("-p %s %s -j RETURN", protocol, owner)}
	}
	var all []string
	for _, ports := range u.Ports {
		all = append(all, fmt.Sprintf("-p %[1]s -m %[1]s %[2]s %[3]s -j RETURN", protocol, ports.match(), owner))
	}
	return all
}

// ParsePrefix reads an address or a range of them, "10.0.0.0/8".
func ParsePrefix(text string) (netip.Prefix, error) {
	if address, err := netip.ParseAddr(text); err == nil && address.Zone() == "" {
		return netip.PrefixFrom(address, address.BitLen()), nil
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%q is no address, want one such as 10.0.0.1, or a range such as 10.0.0.0/8",
			text)
	}
	return prefix.Masked(), nil
}

// Check returns the problem of the options, in the words of the command line.
func (o *Options) Check() error {
	switch {
	case !o.IPv4 && !o.IPv6:
		return errors.New("neither IPv4 nor IPv6 is to be redirected")
	case o.InboundPort == 0:
		return errors.New(
			"--redirect-inbound-port is 0, want the port of the Dataplane's transparentProxying.redirectPortInbound")
	case o.OutboundPort == 0:
		return errors.New(
			"--redirect-outbound-port is 0, want the port of the Dataplane's transparentProxying.redirectPortOutbound")
	case o.InboundPort == o.OutboundPort:
		return fmt.Errorf("--redirect-inbound-port and --redirect-outbound-port are both %d", o.InboundPort)
	}
	return nil
}
