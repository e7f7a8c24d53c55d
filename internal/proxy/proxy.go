package proxy

import (
	"cmp"

	"weft/internal/identity"
	"weft/internal/policy"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// Proxy is the configuration of one proxy.
type Proxy struct {
	Key   state.ProxyKey
	Zone  string
	Group Group
	// NotAdmitted is why its mesh does not admit it; empty: it does. A proxy that is not admitted gets no further
	// configuration.
	NotAdmitted string
	Identity    *identity.Identity        // nil: plaintext
	Certificate *identity.NextCertificate // nil: the control plane signs none
	// OfUser is true where a user who is no operator wrote the Dataplane: no agent may run it.
	OfUser bool
	// Required are the facts that the token of its agent must claim (see [kind.RequiredFacts]).
	Required resource.Vouched
	// Further are the other identities that a ZoneEgress presents.
	Further   []identity.Presentation
	Listeners []InboundListener
	Outbounds []ExplicitOutbound
	Capture   *Capture // nil: no transparent proxying
	// Patches are the modifications of the proxy's own resources, by mesh, sorted; see [PatchOf]. Those of a Dataplane
	// concern all of these resources. Those of a ZoneIngress or ZoneEgress concern the resources of the mesh's
	// services: its listeners are for every mesh.
	Patches []MeshPatch
	// Ingresses are the listeners for connections of remote zones. Passes are the meshes, sorted, to whose services
	// they forward, with the policies about that traffic.
	Ingresses []IngressListener
	Passes    []ZoneGroup
	// Egresses are the listeners for connections to external services, Chains their filter chains in the order of their
	// keys, and IsEgress the meshes of these services, sorted, with the policies about them. A proxy without an
	// identity has none: its clients could not authenticate it.
	Egresses     []EgressListener
	Chains       []EgressChain
	EgressGroups []EgressGroup
	// Forwards are the meshes, sorted, of whose SNIs a zone egress forwards connections to other zones. One whose
	// section was removed does so while it drains.
	Forwards []ZoneGroup
	// Excluded are the listeners that the proxy does not get, since others have their address.
	Excluded []Exclusion
}

// Capture is the address at which redirected connections arrive. Proxies with equal ones have the same listeners for
// them.
type Capture struct {
	InboundPort  uint32
	OutboundPort uint32
	IPFamilies   kind.IPFamilies
	// Passthrough has the conf, for [PassthroughOf], that decides which connections to addresses outside the mesh are
	// forwarded.
	Passthrough policy.Confs
}

func (s *Stage) proxy(r *table.Reader, key state.ProxyKey) *Proxy {
	if key.Type != kind.DataplaneProxy {
		return s.zoneProxy(r, key)
	}
	dp, ok := s.state.Dataplanes.Find(r, key.Mesh, key.Name)
	if !ok {
		return nil
	}
	p := &Proxy{
		Key:         key,
		Zone:        s.state.Zone,
		NotAdmitted: s.identity.NotAdmittedReason(r, key),
		Identity:    s.identity.Identity.Get(r, key),
	}
	p.Certificate = s.identity.NextCertificate(r, key, p.Identity)
	n := &dp.Spec.Networking
	p.Required, p.OfUser = kind.RequiredFacts(dp), dp.Vouched.User
	p.Outbounds = s.explicit(r, key.Mesh, n.Outbound)
	p.Group = Group{Mesh: key.Mesh, Secured: p.Identity != nil, Machine: s.machine(r, key)}
	if p.Identity != nil {
		p.Group.Source = s.inMesh(r, key.Mesh, p.Identity.Source)
	}
	whole := s.wholeProxyConfs(r, WholeOf(key))
	p.patch(key.Mesh, whole.Patch)
	p.Group.Patch = patchOf(whole.Patch, (*kind.OneModification).OfGroup)
	if t := n.TransparentProxying; t != nil {
		p.Capture = &Capture{
			InboundPort:  cmp.Or(t.RedirectPortInbound, 15006),
			OutboundPort: cmp.Or(t.RedirectPortOutbound, 15001),
			IPFamilies:   kind.IPFamilies(t.IPFamilyMode).And(p.Group.Machine),
			Passthrough:  passthroughConfs(whole.Passthrough),
		}
		p.Group.Transparent = true
		p.Group.IPFamilies = p.Capture.IPFamilies
	}
	p.Group.Policies = s.outboundPolicies(r, key)
	p.Group.Affinity = s.affinity(r, dp, p.Group.Policies)
	p.Group.Reach = s.reach(r, key.Mesh, n.TransparentProxying, p.Outbounds)
	p.Listeners = s.listeners(r, dp, p)
	if p.Ingresses = s.ingressListeners(r, key, n.ZoneIngress); len(p.Ingresses) > 0 {
		p.Passes = s.passes(r, key, n.ZoneIngress)
	}
	s.egressChains(r, dp, p)
	s.assignAddresses(r, p, n)
	return p
}

// machine returns the only IP family of a proxy's machine, as [Group.Machine] has it.
func (s *Stage) machine(r *table.Reader, key state.ProxyKey) kind.IPFamilies {
	status, ok := s.state.ListenerStatus(r, key)
	if !ok || status.Spec.IPFamilies == kind.DualStack {
		return ""
	}
	return status.Spec.IPFamilies
}

// zoneProxy returns the proxy of a ZoneIngress or a ZoneEgress, which serves every mesh and belongs to none; nil where
// this zone has no such resource.
func (s *Stage) zoneProxy(r *table.Reader, key state.ProxyKey) *Proxy {
	n, ok := s.state.Networking(r, key)
	if !ok {
		return nil
	}
	p := &Proxy{Key: key, Zone: s.state.Zone, Group: Group{Reach: nothing, Machine: s.machine(r, key)}}
	if p.Ingresses = s.ingressListeners(r, key, n.ZoneIngress); len(p.Ingresses) > 0 {
		p.Passes = s.passes(r, key, n.ZoneIngress)
	}
	for _, group := range p.Passes {
		p.patch(group.Mesh, s.wholeProxyConfs(r, WholeKey{group.Mesh, key}).Patch)
	}
	if key.Type == kind.EgressProxy {
		s.zoneEgressChains(r, n.ZoneEgress, p)
	}
	s.assignAddresses(r, p, n)
	return p
}
