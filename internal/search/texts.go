package search

import (
	"iter"

	"weft/internal/sni"
	"weft/internal/state"
	"weft/kind"
	"weft/resource"
)

// candidate is a resource that a search looks at.
type candidate struct {
	resource.Any
	insight *kind.DataplaneInsight // of a Dataplane whose proxy has connected
}

// resources returns the resources of a kind that the search is about. A candidate is valid until the next one.
func (s *scan) resources(d resource.Descriptor, q Query) iter.Seq[*candidate] {
	info := d.Describe()
	return func(yield func(*candidate) bool) {
		var c candidate
		switch {
		case q.Mesh != "" && info.Scope != resource.Mesh && d != resource.Descriptor(kind.Meshes):
			return
		case d == resource.Descriptor(kind.Dataplanes):
			for p := range s.world.Proxies(q.Mesh) {
				if c = (candidate{p.Dataplane, p.Insight()}); !yield(&c) {
					return
				}
			}
			return
		}
		mesh := q.Mesh
		if info.Scope != resource.Mesh {
			mesh = ""
		}
		for c.Any = range s.world.Resources(info.Name, mesh) {
			isHidden := info.AdminOnly && !q.Secrets.HasResource(c.Key()) ||
				q.Mesh != "" && d == resource.Descriptor(kind.Meshes) && c.Key().Name != q.Mesh
			if !isHidden && !yield(&c) {
				return
			}
		}
	}
}

// match returns the best match of a resource, or nil.
func (s *scan) match(d resource.Descriptor, c *candidate) *Match {
	s.best = Match{}
	meta := c.Envelope()
	if s.kri != "" {
		if kri, ok := resource.KRIOf(meta, d.Describe()); ok {
			s.visitKRI(kri.String())
		}
	} else {
		s.visit(Name, meta.Name)
		if display := kind.DisplayNameOf(meta); display != meta.Name {
			s.visit(DisplayName, display)
		}
		s.visitPairs(Label, meta.Labels)
		s.visitContent(c)
	}
	if s.best.Field == "" {
		return nil
	}
	match := s.best
	return &match
}

// visitKRI compares an identifier with the beginning of one.
func (s *scan) visitKRI(kri string) {
	switch at := indexFold(kri, s.kri); {
	case at != 0:
	case len(kri) == len(s.kri):
		s.consider(Match{KRI, kri, Exact})
	default:
		s.consider(Match{KRI, kri, Prefix})
	}
}

// visitContent compares what a resource has beside its envelope.
func (s *scan) visitContent(c *candidate) {
	switch o := c.Any.(type) {
	case *resource.Object[kind.Dataplane]:
		s.visitProxy(o, c.insight)
		for i := range o.Spec.Networking.Inbound {
			s.visitPairs(Tag, o.Spec.Networking.Inbound[i].Tags)
		}
	case *resource.Object[kind.ZoneIngress], *resource.Object[kind.ZoneEgress]:
		proxy, _ := state.ProxyOf(o.Key())
		insight, ok := s.world.State.Tables.Insight(s.r, proxy)
		if !ok {
			s.visitProxy(o, nil)
			return
		}
		s.visitProxy(o, &insight.Spec)
	case *resource.Object[kind.MeshService]:
		s.visitPorts(o.Spec.Ports)
		for i := range o.Spec.Identities {
			if identity := &o.Spec.Identities[i]; identity.Type == kind.SpiffeIdentity {
				s.visit(SPIFFEID, identity.Value)
			}
		}
		if status, ok := s.world.State.Tables.ServiceStatuses.Find(s.r, o.Mesh, o.Name); ok {
			s.visitNames(status.Spec.VIPs, status.Spec.Addresses)
		}
	case *resource.Object[kind.MeshMultiZoneService]:
		s.visitPorts(o.Spec.Ports)
		if status, ok := s.world.State.Tables.MultiZoneServiceStatuses.Find(s.r, o.Mesh, o.Name); ok {
			s.visitNames(status.Spec.VIPs, status.Spec.Addresses)
		}
	case *resource.Object[kind.MeshExternalService]:
		s.visitExternal(o)
	}
}

func (s *scan) visitProxy(o resource.Any, insight *kind.DataplaneInsight) {
	for _, address := range s.world.AddressesOf(s.r, o) {
		s.visit(Address, address)
	}
	if insight == nil || insight.Certificate == nil {
		return
	}
	s.visit(SPIFFEID, insight.Certificate.SpiffeID)
	for _, further := range insight.Certificate.Further {
		s.visit(SPIFFEID, further)
	}
}

func (s *scan) visitPorts(ports []kind.ServicePort) {
	for i := range ports {
		for _, name := range ports[i].SNIs {
			s.visit(SNI, name.Value)
		}
	}
}

func (s *scan) visitNames(vips []kind.VIP, addresses []kind.Address) {
	for _, vip := range vips {
		s.visit(VirtualIP, vip.IP)
	}
	for _, address := range addresses {
		s.visit(HostName, address.Hostname)
	}
}

func (s *scan) visitExternal(o *resource.Object[kind.MeshExternalService]) {
	for i := range o.Spec.Endpoints {
		s.visit(Address, o.Spec.Endpoints[i].Address)
	}
	for _, name := range sni.InAllFormats(sni.PortOf(o, o.Spec.Match.Port)) {
		s.visit(SNI, name)
	}
	if status, ok := s.world.State.Tables.ExternalServiceStatuses.Find(s.r, o.Mesh, o.Name); ok {
		s.visitNames(status.Spec.VIPs, status.Spec.Addresses)
	}
}
