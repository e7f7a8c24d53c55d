package proxy

import (
	"net/netip"
	"slices"
	"strings"

	"weft/internal/service"
	"weft/internal/table"
	"weft/kind"
)

// Exclusion is a listener that a proxy does not get, since another of its listeners has the address: Envoy rejects the
// second listener of an address, and whichever it has first stays.
type Exclusion struct {
	At       string // its address and port
	Listener string // what it is for, such as "the zone ingress"
	Holder   string // the listener that has the address, "the inbound 8080 at 10.0.0.1:8080"; empty: see NoFamily
	// NoFamily states that the machine does not have the IP family of the address.
	NoFamily bool `json:",omitempty"`
	// Virtual is set where the listener is for a virtual IP of a destination.
	Virtual service.VirtualAddress `json:",omitzero"`
	// Own states that the IP address is one at which the proxy serves, be it at another port. Connections of a machine
	// to itself are not redirected, so the excluded listener would get none of its application.
	Own bool `json:",omitempty"`
}

// String returns the exclusion as a sentence.
func (e *Exclusion) String() string {
	if e.NoFamily {
		return e.Listener + " gets no listener at " + e.At + ", since the machine does not have its IP family"
	}
	return e.Listener + " gets no listener at " + e.At + ", which is the address of " + e.Holder
}

// claim is a listener and its address.
type claim struct {
	at     netip.AddrPort
	binds  bool
	serves bool // it accepts connections of other proxies
	of     string
}

func (c *claim) address() string { return kind.HostPort(c.at.Addr().String(), uint32(c.at.Port())) }

func (c *claim) String() string { return c.of + " at " + c.address() }

// claimOf returns the claim of a listener that binds its port. What it is for is a noun phrase.
func claimOf(of, address string, port uint32) claim {
	ip, _ := netip.ParseAddr(address) // of a validated resource
	return claim{at: netip.AddrPortFrom(ip.Unmap(), uint16(port)), binds: true, of: of}
}

// collides reports whether Envoy cannot have both listeners: they have the same address, or one binds the port of every
// address of the family, and the other one too.
func (c *claim) collides(other *claim) bool {
	if c.at.Port() != other.at.Port() || c.at.Addr().Is4() != other.at.Addr().Is4() {
		return false
	}
	wildcard := c.at.Addr().IsUnspecified() || other.at.Addr().IsUnspecified()
	return c.at == other.at || wildcard && c.binds && other.binds
}

// claims are the listeners of a proxy that have their address, by port.
type claims map[uint16][]claim

// add gives a listener its address, or returns the one that has it.
func (cs claims) add(c claim) (holder *claim) {
	taken := cs[c.at.Port()]
	if i := slices.IndexFunc(taken, func(other claim) bool { return other.collides(&c) }); i >= 0 {
		return &taken[i]
	}
	cs[c.at.Port()] = append(taken, c)
	return nil
}

// sorted returns all claims by their addresses.
func (cs claims) sorted() []claim {
	return slices.SortedFunc(func(yield func(claim) bool) {
		for _, taken := range cs {
			for _, c := range taken {
				if !yield(c) {
					return
				}
			}
		}
	}, func(a, b claim) int { return a.at.Compare(b.at) })
}

// assignAddresses decides which listeners of a proxy get their address, of all that resources ask for, and excludes the
// others. The order is that of their need: what the proxy cannot run without, then inbounds, zone ingresses and zone
// egresses with those that drain, then outbounds of the Dataplane, and virtual IPs last. No write can be rejected in
// its place: the resources are of several users, and some addresses are known at run time only.
func (s *Stage) assignAddresses(r *table.Reader, p *Proxy, n *kind.Networking) {
	cs := claims{}
	if n.Admin != nil && n.Admin.Port != 0 {
		cs.add(claimOf("networking.admin", kind.AdminAddress, n.Admin.Port))
	}
	if p.Capture != nil {
		for _, wildcard := range wildcards(p.Capture.IPFamilies) {
			cs.add(claimOf("the redirection of incoming connections", wildcard, p.Capture.InboundPort))
			cs.add(claimOf("the redirection of outgoing connections", wildcard, p.Capture.OutboundPort))
		}
		if p.Capture.IPFamilies == kind.NoIPFamily {
			wildcard := wildcards(kind.IPFamilies(n.TransparentProxying.IPFamilyMode))[0]
			p.Excluded = append(p.Excluded, Exclusion{At: kind.HostPort(wildcard, p.Capture.OutboundPort),
				Listener: "the redirection of outgoing connections", NoFamily: true})
		}
	}
	p.Listeners = assign(cs, p, p.Listeners, func(l *InboundListener) claim {
		c := claimOf("the inbound "+l.Section, l.Address, l.Port)
		c.binds, c.serves = l.Bind, true
		return c
	})
	p.Ingresses = assign(cs, p, p.Ingresses, func(l *IngressListener) claim {
		c := claimOf("the zone ingress", l.Address, l.Port)
		c.serves = true
		return c
	})
	p.Egresses = assign(cs, p, p.Egresses, func(l *EgressListener) claim {
		c := claimOf("the zone egress", l.Address, l.Port)
		c.serves = true
		return c
	})
	p.Outbounds = assign(cs, p, p.Outbounds, func(o *ExplicitOutbound) claim {
		return claimOf("an outbound", o.Address, o.Port)
	})
	if p.Group.Transparent {
		s.excludeVirtual(r, p, cs.sorted())
	}
}

// assign returns the listeners that get their address.
func assign[L any](cs claims, p *Proxy, listeners []L, claimOf func(*L) claim) []L {
	return slices.DeleteFunc(listeners, func(l L) bool {
		c := claimOf(&l)
		if p.Group.Machine.Lacks(c.at.Addr().String()) {
			p.Excluded = append(p.Excluded, Exclusion{At: c.address(), Listener: c.of, NoFamily: true})
			return true
		}
		holder := cs.add(c)
		if holder != nil {
			p.Excluded = append(p.Excluded, Exclusion{At: c.address(), Listener: c.of, Holder: holder.String()})
		}
		return holder != nil
	})
}

// excludeVirtual excludes the listeners of virtual IPs whose address another listener has, and those at every port of
// an address at which the proxy serves. The virtual IP of a Pod behind a headless Service is such an address: a
// connection of another machine to it would be forwarded with the certificate of this proxy, for any client.
func (s *Stage) excludeVirtual(r *table.Reader, p *Proxy, taken []claim) {
	serving := map[netip.Addr]*claim{}
	for i := range taken {
		if c := &taken[i]; c.serves && serving[c.at.Addr()] == nil {
			serving[c.at.Addr()] = c
		}
	}
	for i := range taken {
		c := &taken[i]
		vip, mesh := c.at.Addr().String(), p.Key.Mesh
		switch server := serving[c.at.Addr()]; {
		case c.at.Addr().IsUnspecified():
		case server == nil:
			p.exclude(s.services.VirtualAt(r, mesh, vip, uint32(c.at.Port())), c)
		case server == c:
			p.exclude(s.services.VirtualOf(r, mesh, vip), c)
		}
	}
}

// exclude excludes the listeners of virtual IPs, since another listener has their address.
func (p *Proxy) exclude(virtual []service.VirtualAddress, holder *claim) {
	for _, v := range virtual {
		p.Excluded = append(p.Excluded, Exclusion{At: kind.HostPort(v.VIP, v.Destination.Port), Listener: v.Service(),
			Holder: holder.String(), Virtual: v, Own: holder.serves})
	}
}

// wildcards returns the addresses at which redirected connections of IP families arrive.
func wildcards(families kind.IPFamilies) (all []string) {
	if families.Has(false) {
		all = append(all, netip.IPv4Unspecified().String())
	}
	if families.Has(true) {
		all = append(all, netip.IPv6Unspecified().String())
	}
	return all
}

// VIPs is a set of virtual IPs. Equal sets are equal values, and the zero value is the empty set.
type VIPs string

// Has reports whether the set has a virtual IP.
func (v VIPs) Has(vip string) bool {
	return v != "" && slices.Contains(strings.Split(string(v), " "), vip)
}

// ExcludedVIPs returns the virtual IPs of a destination at which a group gets no listener of it: an older service,
// which the group reaches too, has the same address and port.
func (s *Stage) ExcludedVIPs(r *table.Reader, group Group, d service.DestinationKey) VIPs {
	var excluded []string
	for _, preceding := range s.services.Preceding.Get(r, d) {
		if s.reaches(r, group, preceding.Destination) && !slices.Contains(excluded, preceding.VIP) {
			excluded = append(excluded, preceding.VIP)
		}
	}
	return VIPs(strings.Join(excluded, " "))
}

// DestinationAt returns the destination to which the listener of a group at a virtual IP leads.
func (s *Stage) DestinationAt(r *table.Reader, group Group, vip string, port uint32) (service.DestinationKey, bool) {
	for _, virtual := range s.services.VirtualAt(r, group.Mesh, vip, port) {
		if s.reaches(r, group, virtual.Destination) {
			return virtual.Destination, true
		}
	}
	return service.DestinationKey{}, false
}

// reaches reports whether a group reaches a destination.
func (s *Stage) reaches(r *table.Reader, group Group, d service.DestinationKey) bool {
	_, reached := slices.BinarySearchFunc(s.Reached.Get(r, group.ReachKey()), d, service.CompareDestinations)
	return reached
}
