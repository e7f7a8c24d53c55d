package envoy

import (
	"slices"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"

	"weft/internal/xds"
)

// OnlyAddsEndpoints says whether a load assignment has every endpoint that it had, as it was, and others. Either may be
// nil, which is not so; a version that cannot be decoded is not either.
func OnlyAddsEndpoints(before, after *xds.Resource) bool {
	had, has := loadAssignment(before), loadAssignment(after)
	if had == nil || has == nil || !proto.Equal(had.Policy, has.Policy) {
		return false
	}
	old, now := endpointSet(had), endpointSet(has)
	if len(now) <= len(old) {
		return false
	}
	for endpoint := range old {
		if !now[endpoint] {
			return false
		}
	}
	return true
}

// HasEndpoints says whether a load assignment has an endpoint. nil has none, nor has a version that cannot be decoded.
func HasEndpoints(r *xds.Resource) bool {
	assignment := loadAssignment(r)
	return assignment != nil && slices.ContainsFunc(assignment.Endpoints, func(l *endpointv3.LocalityLbEndpoints) bool { return len(l.LbEndpoints) > 0 })
}

func loadAssignment(r *xds.Resource) *endpointv3.ClusterLoadAssignment {
	if r == nil {
		return nil
	}
	message, err := r.Message()
	if err != nil {
		return nil
	}
	assignment, _ := message.(*endpointv3.ClusterLoadAssignment)
	return assignment
}

// endpointSet has each endpoint, encoded with what its locality says.
func endpointSet(a *endpointv3.ClusterLoadAssignment) map[string]bool {
	all := map[string]bool{}
	for _, locality := range a.Endpoints {
		for _, endpoint := range locality.LbEndpoints {
			one := &endpointv3.LocalityLbEndpoints{
				Locality: locality.Locality, Metadata: locality.Metadata, Priority: locality.Priority,
				Proximity: locality.Proximity, LoadBalancingWeight: locality.LoadBalancingWeight,
				LbEndpoints: []*endpointv3.LbEndpoint{endpoint},
			}
			wire, err := proto.MarshalOptions{Deterministic: true}.Marshal(one)
			if err != nil {
				return nil
			}
			all[string(wire)] = true
		}
	}
	return all
}
