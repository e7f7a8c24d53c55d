package graph

import (
	"cmp"
	"reflect"
	"slices"

	"weft/internal/identity"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// derive makes the stages, each of which reads rows and the ones before it.
func (s *State) derive() {
	s.Membership = table.NewDerived(s.DB, "membership", s.membership, same[*kind.Membership])
	s.Refused = table.NewDerived(s.DB, "refused by membership", s.refused, func(a, b string) bool { return a == b })
	s.PutOut = table.NewDerived(s.DB, "put out", s.putOut, slices.Equal)
	s.MTLS = table.NewDerived(s.DB, "mtls of a mesh", s.mtls, func(a, b MTLS) bool { return a == b })
	s.EgressChoice = table.NewDerived(s.DB, "choice of zone egresses", s.egressChoice, same[*EgressChoice])
	s.EgressIdentity = table.NewDerived(s.DB, "identity of zone egresses", s.egressIdentity, same[*Identity])
	s.Identity = table.NewDerived(s.DB, "identity", s.identity, same[*Identity])
	s.Authority = table.NewDerived(s.DB, "authority", s.authority, func(a, b Authority) bool { return a == b })
	s.Presented = table.NewDerived(s.DB, "names of a proxy", s.presented, slices.Equal)
	s.ServiceNames = table.NewDerived(s.DB, "names of a proxy's services", s.serviceNames, slices.Equal)
	s.Moving = table.NewDerived(s.DB, "movements of names", s.moving, kind.LeafNames.Same)
	s.Domains = table.NewDerived(s.DB, "trust domains", s.domains, same[*identity.Domains])
	s.Trust = table.NewDerived(s.DB, "trust", s.trust, same[*Trust])
	s.Also = table.NewDerived(s.DB, "names beside a rule's", s.also, slices.Equal)
	s.EgressTrust = table.NewDerived(s.DB, "trust in zone egresses", s.egressTrust, same[*Trust])
	s.Names = table.NewDerived(s.DB, "services of a mesh", s.names, slices.Equal)
	s.Tagged = table.NewDerived(s.DB, "services of a tag", s.tagged, slices.Equal)
	s.Labelled = table.NewDerived(s.DB, "services of labels", s.labelled, slices.Equal)
	s.Named = table.NewDerived(s.DB, "service of a row", s.named, func(a, b DestinationKey) bool { return a == b })
	s.Ports = table.NewDerived(s.DB, "service ports", s.ports, slices.Equal)
	s.ByEgress = table.NewDerived(s.DB, "whether by egress", s.byEgress, func(a, b bool) bool { return a == b })
	s.WayOut = table.NewDerived(s.DB, "ways out of the zone", s.wayOut, same[*WayOut])
	s.ServiceIdentities = table.NewDerived(s.DB, "service identities", s.serviceIdentities, slices.Equal)
	s.Destination = table.NewDerived(s.DB, "destination", s.destination, same[*Destination])
	s.Endpoints = table.NewDerived(s.DB, "endpoints", s.endpoints, equalEndpoints)
	s.MultiZone = table.NewDerived(s.DB, "destination of many zones", s.multiZone, same[*Destination])
	s.Legs = table.NewDerived(s.DB, "endpoints of a leg", s.legs, equalEndpoints)
	s.External = table.NewDerived(s.DB, "destination outside the mesh", s.external, same[*Destination])
	s.ExternalEndpoints = table.NewDerived(s.DB, "endpoints of a destination outside the mesh", s.externalEndpoints, equalEndpoints)
	s.ServicePassages = table.NewDerived(s.DB, "passages of a service", s.servicePassages, slices.Equal)
	s.Passages = table.NewDerived(s.DB, "passages of a mesh", s.passages, slices.Equal)
	s.Beyond = table.NewDerived(s.DB, "ingresses of other zones", s.beyond, slices.Equal)
	s.PassagesAbroad = table.NewDerived(s.DB, "passages of a mesh to other zones", s.passagesAbroad, slices.Equal)
	s.Passable = table.NewDerived(s.DB, "passable endpoints", s.passable, slices.Equal)
	s.Doors = table.NewDerived(s.DB, "zone ingresses", s.doors, slices.Equal)
	s.EgressDoors = table.NewDerived(s.DB, "zone egresses", s.egressDoors, slices.Equal)
	s.Exits = table.NewDerived(s.DB, "exits of a mesh", s.exits, same[[]Exit])
	s.Outside = table.NewDerived(s.DB, "servers outside the mesh", s.outside, same[*Outside])
	s.Reached = table.NewDerived(s.DB, "reached", s.reached, slices.Equal)
	s.HostsOf = table.NewDerived(s.DB, "host names of a destination", s.hostsOf, equalHosts)
	s.Hosts = table.NewDerived(s.DB, "host names of a class", s.hosts, equalHosts)
	s.Proxy = table.NewDerived(s.DB, "proxy", s.proxy, same[*Proxy])
	s.Withdrawing = table.NewDerived(s.DB, "withdrawing", s.withdrawing, slices.Equal)
	s.services = s.serviceKinds()
}

func same[V any](a, b V) bool { return reflect.DeepEqual(a, b) }

func equalEndpoints(a, b *Endpoints) bool { return slices.Equal(a.Endpoints, b.Endpoints) }

// identity chooses the MeshIdentity of a Dataplane: of those that select it the one with most labels,
// then the first by name; where none does, the mtls of the mesh. A selected Dataplane never becomes plain because
// its SPIFFE ID can't be rendered: it has an identity that nobody can present, and the reason stands in Problem.
func (s *State) identity(r *table.Reader, key ProxyKey) *Identity {
	if key.Type == kind.EgressProxy {
		return s.EgressIdentity.Get(r, s.EgressChoice.Get(r, s.Zone).Chosen)
	}
	dp, ok := s.Dataplanes.Find(r, key.Mesh, key.Name)
	if !ok {
		return nil
	}
	selecting := s.selecting(r, dp)
	if len(selecting) == 0 {
		return s.mtlsIdentity(r, dp)
	}
	chosen := selecting[0]
	id, domain, err := identity.SpiffeID(&chosen.Spec, key.Mesh, s.Zone, dp.Name, dp.Labels, &dp.Spec)
	if err != nil {
		return &Identity{MeshIdentity: chosen.Name, Problem: err.Error(), Source: sourceOf(&chosen.Spec, "")}
	}
	given := &Identity{MeshIdentity: chosen.Name, LeafNames: kind.NamesOf(id), TrustDomain: domain, Source: sourceOf(&chosen.Spec, domain)}
	if given.Source.FromSPIRE() {
		return given // SPIRE attests the workload itself
	}
	facts := identity.SpiffeFacts(&chosen.Spec, dp)
	if kind.Workload(dp.Name, dp.Labels, &dp.Spec) == EgressWorkload {
		egress := dp.Spec.Networking.ZoneEgress
		if egress == nil {
			given.LeafNames, given.Problem = kind.LeafNames{}, reservedWorkload(dp)
			return given
		}
		facts = append(facts, kind.SectionFacts(&kind.Networking{ZoneEgress: egress})...)
	}
	return given.restingOn(dp, facts)
}

// restingOn returns an identity that rests on facts of its Dataplane. Where nobody vouches for one of them it has no
// SPIFFE ID, so that neither clients nor rules know the proxy by an ID that its owner chose.
func (id *Identity) restingOn(dp *resource.Object[kind.Dataplane], facts []string) *Identity {
	id.Rests, id.Unvouched = dp.Vouched.By(facts)
	if len(id.Unvouched) > 0 {
		id.LeafNames, id.Problem = kind.LeafNames{}, identity.Unvouched(dp, id.Unvouched).Error()
	}
	return id
}

// selecting are the MeshIdentities that select a Dataplane, the chosen one first.
func (s *State) selecting(r *table.Reader, dp *resource.Object[kind.Dataplane]) []*resource.Object[kind.MeshIdentity] {
	var selecting []*resource.Object[kind.MeshIdentity]
	for _, candidate := range s.IdentitiesByMesh.List(r, MeshKey(dp.Mesh)) {
		selector := candidate.Spec.Selector
		if selector != nil && selector.Dataplane != nil && selector.Dataplane.Matches(dp.Labels) {
			selecting = append(selecting, candidate)
		}
	}
	slices.SortFunc(selecting, func(a, b *resource.Object[kind.MeshIdentity]) int {
		return cmp.Or(cmp.Compare(selectorLabels(b), selectorLabels(a)), cmp.Compare(a.Name, b.Name))
	})
	return selecting
}

// selectorLabels is how many labels a MeshIdentity that selects something names.
func selectorLabels(o *resource.Object[kind.MeshIdentity]) int {
	return len(o.Spec.Selector.Dataplane.MatchLabels)
}
