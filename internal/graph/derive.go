package graph

import (
	"cmp"
	"reflect"
	"slices"

	"weft/internal/pki"
	"weft/internal/policy"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// derive adds the derived tables, each of which reads rows and tables that were added before.
func (s *State) derive() {
	s.Membership = table.NewDerived(s.DB, "membership", s.membership, deepEqual[*kind.Membership])
	s.NotAdmitted = table.NewDerived(s.DB, "not admitted", s.notAdmitted, func(a, b string) bool { return a == b })
	s.EvictedSANs = table.NewDerived(s.DB, "evicted SANs", s.evictedSANs, slices.Equal)
	s.MTLS = table.NewDerived(s.DB, "mtls of a mesh", s.mtls, func(a, b MTLS) bool { return a == b })
	s.ReservedIDs = table.NewDerived(s.DB, "SPIFFE IDs of zone egresses", s.reservedIDs, slices.Equal)
	s.EgressChoice = table.NewDerived(s.DB, "choice of zone egresses", s.egressChoice, deepEqual[*EgressChoice])
	s.EgressIdentity = table.NewDerived(s.DB, "identity of zone egresses", s.egressIdentity, deepEqual[*Identity])
	s.Identity = table.NewDerived(s.DB, "identity", s.identity, deepEqual[*Identity])
	s.Authority = table.NewDerived(s.DB, "authority", s.authority, func(a, b Authority) bool { return a == b })
	s.Presented = table.NewDerived(s.DB, "SPIFFE IDs of a proxy", s.presented, slices.Equal)
	s.ServiceNames = table.NewDerived(s.DB, "SPIFFE IDs of a proxy's services", s.serviceNames, slices.Equal)
	s.Inbounds = table.NewDerived(s.DB, "inbounds of a Dataplane", s.inbounds, deepEqual[[]Member])
	s.Moving = table.NewDerived(s.DB, "identity changes", s.moving, kind.SpiffeIDs.Same)
	s.Domains = table.NewDerived(s.DB, "trust domains", s.domains, deepEqual[*pki.Domains])
	s.Trust = table.NewDerived(s.DB, "trust", s.trust, deepEqual[*Trust])
	s.Also = table.NewDerived(s.DB, "SPIFFE IDs beside a rule's", s.otherIDs, slices.Equal)
	s.EgressTrust = table.NewDerived(s.DB, "trust in zone egresses", s.egressTrust, deepEqual[*Trust])
	s.Destinations = table.NewDerived(s.DB, "services of a mesh", s.destinations, slices.Equal)
	s.Tagged = table.NewDerived(s.DB, "services of a tag", s.tagged, slices.Equal)
	s.Labeled = table.NewDerived(s.DB, "services of labels", s.labeledServices, slices.Equal)
	s.Named = table.NewDerived(s.DB, "service of a row", s.named, func(a, b DestinationKey) bool { return a == b })
	s.Ports = table.NewDerived(s.DB, "service ports", s.ports, slices.Equal)
	s.ByEgress = table.NewDerived(s.DB, "whether by egress", s.byEgress, func(a, b bool) bool { return a == b })
	s.EgressRoute = table.NewDerived(s.DB, "egress routes of the zone", s.egressRoute, deepEqual[*EgressRoute])
	s.ServiceIdentities = table.NewDerived(s.DB, "service identities", s.serviceIdentities, slices.Equal)
	s.Destination = table.NewDerived(s.DB, "destination", s.destination, deepEqual[*Destination])
	s.Endpoints = table.NewDerived(s.DB, "endpoints", s.endpoints, equalEndpoints)
	s.MultiZone = table.NewDerived(s.DB, "destination of many zones", s.multiZone, deepEqual[*Destination])
	s.LocalityEndpoints = table.NewDerived(s.DB, "endpoints of a locality", s.localityEndpoints, equalEndpoints)
	s.External = table.NewDerived(s.DB, "external destination", s.external, deepEqual[*Destination])
	s.ExternalEndpoints = table.NewDerived(s.DB, "endpoints of an external destination", s.externalEndpoints,
		equalEndpoints)
	s.Routes = table.NewDerived(s.DB, "routes", s.route, deepEqual[*Route])
	s.ServiceSNIRoutes = table.NewDerived(s.DB, "SNI routes of a service", s.serviceSNIRoutes, slices.Equal)
	s.SNIRoutes = table.NewDerived(s.DB, "SNI routes of a mesh", s.sniRoutes, slices.Equal)
	s.RemoteEndpoints = table.NewDerived(s.DB, "ingresses of other zones", s.remoteIngresses, slices.Equal)
	s.CrossZoneSNIRoutes = table.NewDerived(s.DB, "cross-zone SNI routes of a mesh", s.crossZoneSNIRoutes, slices.Equal)
	s.Forwardable = table.NewDerived(s.DB, "forwardable endpoints", s.forwardable, slices.Equal)
	s.IngressProxies = table.NewDerived(s.DB, "zone ingresses", s.ingressProxies, slices.Equal)
	s.EgressProxies = table.NewDerived(s.DB, "zone egresses", s.egressProxies, slices.Equal)
	s.EgressServices = table.NewDerived(s.DB, "egress filter chains of a mesh", s.egressServices,
		deepEqual[[]EgressService])
	s.ExternalUpstreams = table.NewDerived(s.DB, "external upstream", s.externalUpstream, deepEqual[*ExternalUpstream])
	s.Reached = table.NewDerived(s.DB, "reached", s.reached, slices.Equal)
	s.HostsOf = table.NewDerived(s.DB, "host names of a destination", s.hostsOf, equalHosts)
	s.Hosts = table.NewDerived(s.DB, "host names of a proxy group", s.hosts, equalHosts)
	s.Policies = table.NewDerived(s.DB, "policies of a mesh", s.policies, (*policy.List).Equal)
	s.OutboundKinds = table.NewDerived(s.DB, "kinds of outbound policies", s.outboundKinds, slices.Equal)
	s.Selectable = table.NewDerived(s.DB, "proxy as policies select it", s.selectable, deepEqual[*policy.Proxy])
	s.Selections = table.NewDerived(s.DB, "policies of a proxy", s.selections, policy.EqualSelections)
	s.Proxy = table.NewDerived(s.DB, "proxy", s.proxy, deepEqual[*Proxy])
	s.Draining = table.NewDerived(s.DB, "draining", s.draining, slices.Equal)
	s.services = s.serviceKinds()
}

func deepEqual[V any](a, b V) bool { return reflect.DeepEqual(a, b) }

func equalEndpoints(a, b *Endpoints) bool { return slices.Equal(a.Endpoints, b.Endpoints) }

// identity returns the identity of a Dataplane. Of the MeshIdentities that select it, the one with the most labels is
// chosen, then the first by name; without one, the mtls of the mesh. A selected Dataplane never becomes plaintext
// because its SPIFFE ID can't be rendered: its identity then has a Problem, and no proxy can present it.
func (s *State) identity(r *table.Reader, key state.ProxyKey) *Identity {
	if key.Type == kind.EgressProxy {
		return s.EgressIdentity.Get(r, s.EgressChoice.Get(r, s.Zone).Chosen)
	}
	dp, ok := s.Dataplanes.Find(r, key.Mesh, key.Name)
	if !ok {
		return nil
	}
	selecting := s.SelectingIdentities(r, dp)
	if len(selecting) == 0 {
		return s.mtlsIdentity(r, dp)
	}
	chosen := selecting[0]
	id, domain, err := pki.SpiffeID(&chosen.Spec, key.Mesh, s.Zone, dp.Name, dp.Labels, &dp.Spec)
	if err != nil {
		return &Identity{MeshIdentity: chosen.Name, Problem: err.Error(), Source: sourceOf(&chosen.Spec, "")}
	}
	given := &Identity{MeshIdentity: chosen.Name, SpiffeIDs: kind.SpiffeIDsOf(id), TrustDomain: domain,
		Source: sourceOf(&chosen.Spec, domain)}
	var facts []string // of SPIRE none: it attests the workload itself
	if !given.Source.FromSPIRE() {
		facts = pki.SpiffeFacts(&chosen.Spec, dp)
	}
	given, facts = s.reserve(r, dp, given, facts)
	return given.restingOn(dp, facts)
}

// restingOn returns an identity that rests on facts of its Dataplane. If a fact has no voucher, the identity has no
// SPIFFE ID. So neither clients nor rules accept the proxy by an ID that its owner chose.
func (id *Identity) restingOn(dp *resource.Object[kind.Dataplane], facts []string) *Identity {
	id.Rests, id.Unvouched = dp.Vouched.By(facts)
	if len(id.Unvouched) > 0 {
		return id.without(pki.Unvouched(dp, id.Unvouched).Error())
	}
	return id
}

// SelectingIdentities returns the MeshIdentities that select a Dataplane, the chosen one first.
func (s *State) SelectingIdentities(
	r *table.Reader,
	dp *resource.Object[kind.Dataplane],
) []*resource.Object[kind.MeshIdentity] {
	var selecting []*resource.Object[kind.MeshIdentity]
	for _, candidate := range s.IdentitiesByMesh.List(r, state.MeshKey(dp.Mesh)) {
		selector := candidate.Spec.Selector
		if selector != nil && selector.Dataplane != nil && selector.Dataplane.Matches(dp.Labels) {
			selecting = append(selecting, candidate)
		}
	}
	slices.SortFunc(selecting, func(a, b *resource.Object[kind.MeshIdentity]) int {
		return cmp.Or(cmp.Compare(SelectorLabels(b), SelectorLabels(a)), cmp.Compare(a.Name, b.Name))
	})
	return selecting
}

// SelectorLabels returns the number of labels in the selector of a MeshIdentity.
func SelectorLabels(o *resource.Object[kind.MeshIdentity]) int {
	return len(o.Spec.Selector.Dataplane.MatchLabels)
}
