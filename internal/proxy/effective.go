package proxy

import (
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
// about it are absent.
func (s *Stage) Merged(r *table.Reader, key EffectiveKey) map[string]policy.Merged {
	d := s.services.Targeted.Get(r, key.Destination)
	if d == nil {
		return nil
	}
	parts := map[string][]policy.Part{}
	for _, of := range key.Policies.Keys() {
		about := policy.Outbound(s.state.PolicyRows[of.Kind].Parts(r, of.Mesh, of.Name), d)
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
	confs := map[string]any{}
	for of, merged := range s.Merged(r, key) {
		confs[of] = merged.Conf
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
