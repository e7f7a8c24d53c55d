package proxy

import (
	"slices"

	"weft/internal/policy"
	"weft/internal/service"
	"weft/internal/table"
)

// EffectiveKey identifies the traffic that proxies with a set of policies send to one port of a service.
type EffectiveKey struct {
	Policies    PolicySet
	Destination service.DestinationKey // without a locality
}

// Merged returns the effective confs of the traffic to a destination with their origins, by kind. Kinds without a conf
// about it, and those of routes, are absent.
func (s *Stage) Merged(r *table.Reader, key EffectiveKey) map[string]policy.Merged {
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
		if slices.Contains(routeKinds, of.Kind) {
			continue
		}
		about := policy.Outbound(s.state.PolicyRows[of.Kind].Parts(r, of.Mesh, of.Name), &d)
		if len(about) > 0 {
			parts[of.Kind] = append(parts[of.Kind], about...)
		}
	}
	merged := make(map[string]policy.Merged, len(parts))
	for of, about := range parts {
		policy.Sort(about)
		merged[of] = s.state.PolicyRows[of].Plan.Merge(about)
	}
	return merged
}

// effective returns the effective confs of the traffic to a destination, by value: a changed origin leaves them equal.
func (s *Stage) effective(r *table.Reader, key EffectiveKey) policy.Confs {
	return confsOf(s.Merged(r, key))
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
