package reconcile

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
	"net/netip"
	"slices"

	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// Ranges are the networks of virtual IPs. They may overlap: each address is assigned once.
type Ranges struct {
	MeshService          netip.Prefix
	MeshMultiZoneService netip.Prefix
	MeshExternalService  netip.Prefix
	// IPv6 has those of every kind. It embeds the IPv4 ones, so it is never full.
	IPv6 netip.Prefix
}

func (ranges *Ranges) rangeOf(u Request) (cidr netip.Prefix, setting string) {
	switch u.Kind {
	case kind.MeshMultiZoneServices.Name:
		return ranges.MeshMultiZoneService, "KUMA_IPAM_MESH_MULTI_ZONE_SERVICE_CIDR"
	case kind.MeshExternalServices.Name:
		return ranges.MeshExternalService, "KUMA_IPAM_MESH_EXTERNAL_SERVICE_CIDR"
	}
	return ranges.MeshService, "KUMA_IPAM_MESH_SERVICE_CIDR"
}

// vipsOf returns the virtual IPs of a service, one of each IP family, which are assigned once and kept. Where one is
// not free, it returns a condition too.
func (p *Plan) vipsOf(r *table.Reader, u Request, had []kind.VIP) (vips []kind.VIP, unassigned []kind.Condition) {
	if p.Global() {
		return had, nil
	}
	if len(had) > 0 {
		return p.withIPv6(r, u, had)
	}
	cidr, setting := p.Ranges.rangeOf(u)
	if !p.noVIP.Get(r, cidr.Masked()) {
		if vip, ok := p.freeVIP(r, u.Mesh+"/"+u.Name, cidr); ok {
			return p.withIPv6(r, u, []kind.VIP{{IP: vip.String()}})
		}
	}
	return nil, notAssigned("RangeIsFull", "%s has no free address; set %s to a larger range", cidr, setting)
}

// withIPv6 adds the IPv6 virtual IP of a service that has only one of IPv4. It embeds that address, so no other service
// gets it from this range or a former one.
func (p *Plan) withIPv6(r *table.Reader, u Request, vips []kind.VIP) ([]kind.VIP, []kind.Condition) {
	four, err := netip.ParseAddr(vips[0].IP)
	if err != nil || !four.Is4() || len(vips) > 1 {
		return vips, nil
	}
	six := kind.EmbedIPv4(p.Ranges.IPv6, four).String()
	for _, owner := range p.State.Services.VIPOwners(r, six) {
		if owner != resource.Key(u) { // a cluster IP
			return vips, notAssigned("AddressInUse", "%s is an address of %s; set KUMA_IPAM_IPV6_CIDR to a range of "+
				"which no address is in use", six, owner)
		}
	}
	return append(slices.Clip(vips), kind.VIP{IP: six}), nil
}

func notAssigned(reason, format string, args ...any) []kind.Condition {
	return []kind.Condition{{Type: "VIPAssigned", Status: "False", Reason: reason,
		Message: fmt.Sprintf(format, args...)}}
}

// rangeIsFull is a derived value of its own, so that the services without an address depend on one value and not on
// each address.
func (p *Plan) rangeIsFull(r *table.Reader, cidr netip.Prefix) bool {
	_, free := p.freeVIP(r, "", cidr)
	return !free
}

// freeVIP returns a free address of a range, false where the range is full. The search starts at a hash of the name, so
// that a service usually gets the same address in every control plane with the same resources.
func (p *Plan) freeVIP(r *table.Reader, name string, cidr netip.Prefix) (netip.Addr, bool) {
	base := binary.BigEndian.Uint32(cidr.Masked().Addr().AsSlice())
	usable := uint32(1)<<(32-cidr.Bits()) - 2 // without the network address and the last address
	h := fnv.New32a()
	io.WriteString(h, name)
	start := h.Sum32() % usable
	for i := range usable {
		var raw [4]byte
		binary.BigEndian.PutUint32(raw[:], base+1+(start+i)%usable)
		if addr := netip.AddrFrom4(raw); len(p.State.Services.VIPOwners(r, addr.String())) == 0 {
			return addr, true
		}
	}
	return netip.Addr{}, false
}

// servicesWithVIPs are the kinds of services by the kinds of the rows that have their virtual IPs.
var servicesWithVIPs = map[string]string{
	kind.MeshServiceStatuses.Name:          kind.MeshServices.Name,
	kind.MeshMultiZoneServiceStatuses.Name: kind.MeshMultiZoneServices.Name,
	kind.MeshExternalServiceStatuses.Name:  kind.MeshExternalServices.Name,
}

// vipsIn returns the virtual IPs that a row assigns to its service.
func vipsIn(row resource.Any) []kind.VIP {
	switch status := row.(type) {
	case *resource.Object[kind.MeshServiceStatus]:
		return status.Spec.VIPs
	case *resource.Object[kind.MeshMultiZoneServiceStatus]:
		return status.Spec.VIPs
	case *resource.Object[kind.MeshExternalServiceStatus]:
		return status.Spec.Places().VIPs
	}
	return nil
}
