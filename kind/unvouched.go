package kind

import (
	"fmt"
	"slices"

	"weft/resource"
)

// UnvouchedChange returns why a write of a Dataplane takes an operator, which its writer is not; empty: it takes none.
// Such a write leaves every vouched fact as it is. It has the proxy forward requests to the proxy's own machine only;
// where somebody vouches for more than the name of the stored Dataplane, it adds no address, no application and no
// administration port to the machine. before is nil for a new Dataplane.
func UnvouchedChange(before, after *resource.Object[Dataplane]) string {
	var vouched []string
	stored := new(Networking)
	if before != nil {
		vouched, stored = vouchedFacts(before), &before.Spec.Networking
	}
	has := Facts(after)
	for _, fact := range vouched {
		if !slices.Contains(has, fact) {
			return "somebody vouches for " + ReadFact(fact).String() + ", which the write changes or removes"
		}
	}
	isOwned := slices.ContainsFunc(vouched, func(fact string) bool { return ReadFact(fact).Name == "" })
	next := &after.Spec.Networking
	for i := range next.Inbound {
		in := next.Effective(next.Inbound[i])
		isLocal := isLoopback(in.ServiceAddress) || in.ServiceAddress == in.Address
		if (isOwned || !isLocal) && !stored.hasApplication(&in) {
			return fmt.Sprintf("networking.inbound[%d] adds the application %s", i,
				HostPort(in.ServiceAddress, in.ServicePort))
		}
		if isOwned && !stored.hasAddress(in.Address) {
			return fmt.Sprintf("networking.inbound[%d] adds the address %s", i, in.Address)
		}
	}
	if isOwned && next.Admin != nil && (stored.Admin == nil || *stored.Admin != *next.Admin) {
		return "networking.admin is new"
	}
	return ""
}

// vouchedFacts returns the facts of a Dataplane for which an operator or a token vouches.
func vouchedFacts(o *resource.Object[Dataplane]) []string {
	record := Completed(o)
	return slices.DeleteFunc(Facts(o), func(fact string) bool { return !record.Has(fact) })
}

// hasAddress reports whether an inbound has an address.
func (n *Networking) hasAddress(address string) bool {
	return slices.ContainsFunc(n.Inbound, func(in Inbound) bool { return n.Effective(in).Address == address })
}

// hasApplication reports whether an inbound forwards to the application of an effective inbound.
func (n *Networking) hasApplication(of *Inbound) bool {
	return slices.ContainsFunc(n.Inbound, func(in Inbound) bool {
		in = n.Effective(in)
		return in.ServiceAddress == of.ServiceAddress && in.ServicePort == of.ServicePort
	})
}
