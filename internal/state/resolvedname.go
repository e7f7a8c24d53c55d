package state

import (
	"net/netip"
	"slices"

	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// ResolvedNameTables are the IP addresses of the host names in addresses of resources.
type ResolvedNameTables struct {
	ResolvedNames Rows[kind.ResolvedName]
	// ResolvedNamesByAddress finds the names by an IP address.
	ResolvedNamesByAddress table.Index[*resource.Object[kind.ResolvedName]]
}

func (t *Tables) addResolvedName() {
	t.ResolvedNames = addRows(t, kind.ResolvedNames)
	t.ResolvedNamesByAddress = table.NewIndex(t.ResolvedNames, resolvedKeys)
}

// HostNames returns the host names of a resource that this zone resolves, sorted: networking.address of its own
// Dataplanes, and the addresses that other zones advertise. The global control plane resolves none.
func (t *Tables) HostNames(o resource.Any) []string {
	var addresses []string
	switch o := o.(type) {
	case *resource.Object[kind.Dataplane]:
		if t.Zone != "" && t.IsOwn(&o.Meta) {
			addresses = append(addresses, o.Spec.Networking.Address)
		}
	case *resource.Object[kind.MeshZoneAddress]:
		if t.Zone != "" && !t.IsOwn(&o.Meta) {
			for _, ingress := range o.Spec.Ingresses {
				addresses = append(addresses, ingress.Address)
			}
		}
	}
	names := slices.DeleteFunc(addresses, func(address string) bool { return !kind.NeedsLookup(address) })
	slices.Sort(names)
	return slices.Compact(names)
}

// hostNameKeys is the index function of the resources that have a host name, by the name.
func hostNameKeys[S any](t *Tables) func(*resource.Object[S]) []string {
	return func(o *resource.Object[S]) []string { return t.HostNames(o) }
}

func resolvedKeys(row *resource.Object[kind.ResolvedName]) []string {
	var keys []string
	for _, a := range row.Spec.Addresses {
		keys = append(keys, a.Address)
	}
	return keys
}

// Resolve returns the IP addresses that stand for an address, sorted: an IP address for itself, and for a host name
// those to which it resolves or, until clients have moved, did. It returns none of a host name that is not resolved.
// An address of the dialing machine itself is excluded, whatever is stored.
func (t *Tables) Resolve(r *table.Reader, address string) []string {
	if !kind.NeedsLookup(address) {
		return []string{address}
	}
	row, ok := t.ResolvedNames.Find(r, "", address)
	if !ok || kind.LocalEndpoint(address, t.LocalNetworks) != "" {
		return nil
	}
	var addresses []string
	for _, a := range row.Spec.Addresses {
		if t.dialable(a.Address) {
			addresses = append(addresses, a.Address)
		}
	}
	return addresses
}

func (t *Tables) dialable(address string) bool {
	ip, err := netip.ParseAddr(address)
	return err == nil && kind.LocalAddress(ip, t.LocalNetworks) == ""
}

// NetworkingOf returns the networking of a Dataplane with an IP address in the place of a host name: the first one to
// which it resolves now; with the host name while it is not resolved.
func (t *Tables) NetworkingOf(r *table.Reader, dp *resource.Object[kind.Dataplane]) *kind.Networking {
	n := &dp.Spec.Networking
	if !kind.NeedsLookup(n.Address) {
		return n
	}
	resolved := *n
	row, _ := t.ResolvedNames.Find(r, "", n.Address)
	for _, address := range t.Resolve(r, n.Address) {
		current := slices.ContainsFunc(row.Spec.Addresses, func(a kind.ResolvedAddress) bool {
			return a.Address == address && a.Until.IsZero()
		})
		if current {
			resolved.Address = address
			break
		}
	}
	return &resolved
}
