package agent

import (
	"context"
	"net"
	"net/netip"
	"time"

	"weft/kind"
)

// familiesInterval is the time from one look at the addresses of the machine to the next. A network may come up after
// the agent.
const familiesInterval = 5 * time.Second

// keepFamilies reports the IP families of the machine whenever they change.
func (a *agent) keepFamilies(ctx context.Context) error {
	look := time.NewTicker(familiesInterval)
	defer look.Stop()
	for {
		select {
		case <-look.C:
			a.statusReporter.setFamilies(MachineFamilies())
		case <-ctx.Done():
			return nil
		}
	}
}

// MachineFamilies returns the IP families of this machine, or "" where they cannot be read.
func MachineFamilies() kind.IPFamilies {
	found, err := net.InterfaceAddrs()
	if err != nil {
		return ""
	}
	var addresses []netip.Addr
	for _, address := range found {
		if prefix, err := netip.ParsePrefix(address.String()); err == nil {
			addresses = append(addresses, prefix.Addr())
		}
	}
	return familiesOf(addresses)
}

// familiesOf returns the IP families of a machine with these addresses. It lacks IPv6 if no interface has an address of
// it, as with the kernel's ipv6.disable=1, with which Envoy rejects every such address. It lacks IPv4 if only IPv6
// connects it with others.
func familiesOf(addresses []netip.Addr) kind.IPFamilies {
	var has6, connects4, connects6 bool
	for _, a := range addresses {
		a = a.Unmap()
		has6 = has6 || a.Is6()
		connects4 = connects4 || a.Is4() && a.IsGlobalUnicast()
		connects6 = connects6 || a.Is6() && a.IsGlobalUnicast()
	}
	return kind.IPFamiliesOf(connects4 || !connects6, has6)
}
