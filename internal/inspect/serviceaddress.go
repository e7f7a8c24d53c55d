package inspect

import (
	"weft/internal/sni"
	"weft/kind"
	"weft/resource"
)

// ServiceIngress returns the address at which remote zones reach a service: its first port at the first healthy ingress
// of its zone, or at the first ingress where none is healthy. nil: its zone has no ingress. (Mesh Scoped Zone Ingress
// and Zone Egress.)
func (rs *Reports) ServiceIngress(service *resource.Object[kind.MeshService]) *kind.ServiceIngress {
	row, ok := rs.State.Tables.ZoneAddress(rs.r, service.Mesh, rs.State.Tables.ZoneOf(&service.Meta))
	if !ok || len(row.Spec.Ingresses) == 0 || len(service.Spec.Ports) == 0 {
		return nil
	}
	first := row.Spec.Usable()[0]
	ingress := &kind.ServiceIngress{Address: first.Address, Port: first.Port, SNI: service.Spec.Ports[0].SNI()}
	for _, a := range row.Spec.Ingresses {
		ingress.Endpoints = append(ingress.Endpoints, kind.IngressEndpoint{Address: a.Address, Port: a.Port,
			Healthy: a.Healthy})
	}
	return ingress
}

// ServiceEgress returns the address at which the proxies of this zone reach an external service: the first of the
// zone's egresses by name that serves the service's mesh. nil: there is none. (Mesh Scoped Zone Ingress and Zone
// Egress.)
func (rs *Reports) ServiceEgress(service *resource.Object[kind.MeshExternalService]) *kind.ServiceEgress {
	egresses := rs.State.Routes.EgressesFor(rs.r, service.Mesh)
	usable := egresses.Usable()
	if len(usable) == 0 {
		return nil
	}
	name := rs.State.Tables.SNIFormat(rs.r).Name(sni.PortOf(service, service.Spec.Match.Port))
	egress := &kind.ServiceEgress{Address: usable[0].Address, Port: usable[0].Port, SNI: name}
	for _, a := range egresses.Egresses {
		egress.Endpoints = append(egress.Endpoints, kind.EgressEndpoint{Address: a.Address, Port: a.Port,
			Healthy: a.Healthy})
	}
	return egress
}
