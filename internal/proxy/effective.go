package proxy

import (
	"weft/internal/policy"
	"weft/internal/service"
	"weft/internal/table"
	"weft/resource"
)

// EffectiveKey identifies the traffic that proxies with a set of policies send to one port of a service.
type EffectiveKey struct {
	Policies    PolicySet
	Destination service.DestinationKey // without a locality
}

// MergedConfs returns the effective confs of the traffic to a destination with their origins, by kind. Kinds without a
// conf about it, and those of routes, are absent.
func (s *Stage) MergedConfs(r *table.Reader, key EffectiveKey) map[string]policy.Merged {
	return s.merged(r, key, nil)
}

// merged returns the effective confs of the traffic to a destination, by the routes whose labels are given.
func (s *Stage) merged(r *table.Reader, key EffectiveKey, routes []map[string]string) map[string]policy.Merged {
	targeted := s.services.Targeted.Get(r, key.Destination)
	if targeted == nil {
		return nil
	}
	d := *targeted
	d.Routes = routes
	parts := map[string][]policy.Part{}
	for _, of := range key.Policies.Keys() {
		if !IsRouteKind(of.Kind) {
			about := policy.Outbound(s.state.PolicyRows[of.Kind].Parts(r, of.Mesh, of.Name), &d)
			parts[of.Kind] = append(parts[of.Kind], about...)
		}
	}
	return s.mergeAll(parts)
}

// mergeAll merges the parts of each kind.
func (s *Stage) mergeAll(parts map[string][]policy.Part) map[string]policy.Merged {
	merged := make(map[string]policy.Merged, len(parts))
	for of, about := range parts {
		if len(about) > 0 {
			policy.Sort(about)
			merged[of] = s.state.PolicyRows[of].Plan.Merge(about)
		}
	}
	s.excludeGroups(merged, parts)
	return merged
}

// AboutKey identifies the items of one policy about a destination.
type AboutKey struct {
	Policy      resource.Key
	Destination service.DestinationKey // without a locality
}

// about returns the items of a policy about a destination. An edited policy runs it for each destination, and only
// those whose items differ run [Stage.Effective] for the sets that have the policy.
func (s *Stage) about(r *table.Reader, key AboutKey) []policy.Part {
	targeted := s.services.Targeted.Get(r, key.Destination)
	if targeted == nil {
		return nil
	}
	return policy.Outbound(s.state.PolicyRows[key.Policy.Kind].Parts(r, key.Policy.Mesh, key.Policy.Name), targeted)
}

// ConcernKey identifies the destinations of a part of a proxy group's reach to which the `to` items of a policy apply.
type ConcernKey struct {
	Policy resource.Key
	Of     ReachPart
}

func (s *Stage) concerned(r *table.Reader, key ConcernKey) (destinations []service.DestinationKey) {
	parts := s.state.PolicyRows[key.Policy.Kind].Parts(r, key.Policy.Mesh, key.Policy.Name)
	for _, d := range s.ReachedPart.Get(r, key.Of) {
		if targeted := s.services.Targeted.Get(r, d); targeted != nil && len(policy.Outbound(parts, targeted)) > 0 {
			destinations = append(destinations, d)
		}
	}
	return destinations
}

// ConcernedBy returns the destinations in a part of those that proxies reach which a policy of a set has to items
// about. The traffic to any other has no effective confs and no route of a policy, so a set with policies about few
// destinations has few derived values.
func (s *Stage) ConcernedBy(r *table.Reader, set PolicySet, of ReachPart) map[service.DestinationKey]bool {
	concerned := map[service.DestinationKey]bool{}
	for _, key := range set.Keys() {
		for _, d := range s.Concerned.Get(r, ConcernKey{key, of}) {
			concerned[d] = true
		}
	}
	return concerned
}

// effective returns the effective confs of the traffic to a destination, by value: a changed origin leaves them equal.
func (s *Stage) effective(r *table.Reader, key EffectiveKey) policy.Confs {
	parts := map[string][]policy.Part{}
	for _, of := range key.Policies.Keys() {
		if !IsRouteKind(of.Kind) {
			parts[of.Kind] = append(parts[of.Kind], s.About.Get(r, AboutKey{of, key.Destination})...)
		}
	}
	return confsOf(s.mergeAll(parts))
}

func confsOf(merged map[string]policy.Merged) policy.Confs {
	confs := map[string]any{}
	for of, m := range merged {
		confs[of] = m.Conf
	}
	return policy.ConfsOf(confs)
}

// ConfsOf returns the effective confs of the traffic from proxies with a set of policies to a destination.
func (s *Stage) ConfsOf(r *table.Reader, set PolicySet, destination service.DestinationKey) policy.Confs {
	if set == (PolicySet{}) {
		return policy.Confs{}
	}
	return s.Effective.Get(r, EffectiveKey{set, destination})
}
