package inspect

import (
	"slices"

	"weft/internal/state"
	"weft/kind"
	"weft/resource"
)

// Unreachable is a text that states why clients of remote zones don't reach a service.
type Unreachable string

const (
	// NoIdentity is the reason of a service with plaintext servers: ingresses route by SNI, and plaintext has none.
	NoIdentity Unreachable = "its servers have no identity: other zones reach mutual TLS only"
	// NoSNI is the reason of a service with a port without an SNI: ingresses route by SNI only.
	NoSNI Unreachable = "a port of it has no server name (SNI) yet"
	// NoIngress is the reason of a service in a zone without a zone ingress.
	NoIngress Unreachable = "its zone has no zone ingress"
	// NoHealthyIngress is the reason of a service in a zone that reports no healthy ingress.
	NoHealthyIngress Unreachable = "no zone ingress of its zone is healthy"
)

// UnreachableReasons returns why clients of remote zones don't reach a service; none where they do.
func (rs *Reports) UnreachableReasons(o *resource.Object[kind.MeshService]) []Unreachable {
	var reasons []Unreachable
	if len(o.Spec.SpiffeIDs()) == 0 {
		reasons = append(reasons, NoIdentity)
	}
	if slices.ContainsFunc(o.Spec.Ports, func(p kind.ServicePort) bool { return p.SNI() == "" }) {
		reasons = append(reasons, NoSNI)
	}
	proxies := rs.reportIngresses(o.Mesh, rs.State.Tables.ZoneOf(&o.Meta))
	switch {
	case len(proxies) == 0:
		reasons = append(reasons, NoIngress)
	case !slices.ContainsFunc(proxies, func(proxy IngressReport) bool { return proxy.Healthy }):
		reasons = append(reasons, NoHealthyIngress)
	}
	return reasons
}

// ManyZones returns whether the services of a mesh are in several zones, this one included.
func (rs *Reports) ManyZones(mesh string) bool {
	one := rs.State.Tables.Zone
	for _, o := range rs.State.Tables.ServicesByMesh.List(rs.r, state.MeshKey(mesh)) {
		zone := rs.State.Tables.ZoneOf(&o.Meta)
		if one != "" && zone != one {
			return true
		}
		one = zone
	}
	return false
}
