package proxy

import (
	"fmt"
	"slices"

	"weft/internal/policy"
	"weft/internal/table"
	"weft/kind"
)

// failsOnPanic reports whether a conf fails the traffic to a destination with few healthy endpoints.
func failsOnPanic(conf any) bool {
	c, ok := conf.(*kind.HealthCheckConf)
	return ok && c.FailTrafficOnPanic != nil && *c.FailTrafficOnPanic
}

// groupsEndpoints reports whether a conf groups the endpoints of a destination by affinity tags.
func groupsEndpoints(conf any) bool {
	c, ok := conf.(*kind.LoadBalancingConf)
	return ok && len(c.Locality().Affinity()) > 0
}

// excludeGroups drops the items with affinity tags where the health checks of the same destination fail the traffic on
// panic: a cluster of Envoy has either zone-aware or locality-weighted load balancing.
func (s *Stage) excludeGroups(merged map[string]policy.Merged, parts map[string][]policy.Part) {
	checks, ok := merged[kind.MeshHealthChecks.Name]
	if !ok || !failsOnPanic(checks.Conf) || !groupsEndpoints(merged[balancing].Conf) {
		return
	}
	var rejected []policy.Rejected
	left := slices.DeleteFunc(slices.Clone(parts[balancing]), func(part policy.Part) bool {
		excluded := groupsEndpoints(part.Conf)
		if excluded {
			reason := fmt.Sprintf("localityAwareness.localZone.affinityTags contradict failTrafficOnPanic of a %s: "+
				"Envoy has one of them for a destination", kind.MeshHealthChecks.Name)
			rejected = append(rejected, policy.Rejected{Origin: part.Origin(), Reason: reason})
		}
		return excluded
	})
	m := s.state.PolicyRows[balancing].Plan.Merge(left)
	m.Rejected = append(m.Rejected, rejected...)
	merged[balancing] = m
}

// mayExclude reports whether policies of a mesh have affinity tags, and others fail traffic on panic.
func (s *Stage) mayExclude(r *table.Reader, mesh string) bool {
	has := func(of string, with func(conf any) bool) bool {
		rows := s.state.PolicyRows[of]
		return slices.ContainsFunc(rows.List(r, mesh), func(p *policy.Policy) bool {
			return slices.ContainsFunc(rows.Parts(r, mesh, p.Key.Name), func(part policy.Part) bool {
				return with(part.Conf)
			})
		})
	}
	return has(kind.MeshHealthChecks.Name, failsOnPanic) && has(balancing, groupsEndpoints)
}
