package proxy

import (
	"fmt"
	"maps"
	"slices"

	"weft/internal/service"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// AffinityLimit is the number of proxy groups above which the affinity tags of a policy have a warning. Memory and the
// cost of a change grow with the groups. The tags have their effect with any number.
const AffinityLimit = 64

// AffinityKey identifies the servers' values of a label, in the destinations of a mesh whose endpoints the policies of
// a set group by the label.
type AffinityKey struct {
	Policies PolicySet
	Mesh     string
	Label    string
}

// AffinityMatch is a client's value of a label.
type AffinityMatch struct {
	AffinityKey
	Value string
}

var balancing = kind.MeshLoadBalancingStrategies.Name

// affinityLabels returns the labels by which the policies of a set group endpoints, sorted.
func (s *Stage) affinityLabels(r *table.Reader, set PolicySet) []string {
	var labels []string
	for _, of := range set.Keys() {
		if of.Kind == balancing {
			labels = append(labels, s.labelsOf(r, of)...)
		}
	}
	slices.Sort(labels)
	return slices.Compact(labels)
}

// labelsOf returns the labels by which one policy groups endpoints.
func (s *Stage) labelsOf(r *table.Reader, of resource.Key) []string {
	var labels []string
	for _, part := range s.state.PolicyRows[of.Kind].Parts(r, of.Mesh, of.Name) {
		if conf, ok := part.Conf.(*kind.LoadBalancingConf); ok {
			for _, tag := range conf.Locality().Affinity() {
				labels = append(labels, tag.Key)
			}
		}
	}
	slices.Sort(labels)
	return slices.Compact(labels)
}

// affinityServed returns the values of a label that servers of this zone have, sorted.
func (s *Stage) affinityServed(r *table.Reader, key AffinityKey) []string {
	values := map[string]bool{}
	for _, of := range s.services.Destinations.Get(r, key.Mesh) {
		for _, port := range s.services.Ports.Get(r, of) {
			to := of.WithPort(port)
			if !slices.Contains(service.AffinityLabels(s.ConfsOf(r, key.Policies, to)), key.Label) {
				continue
			}
			for _, value := range s.services.AffinityValues.Get(r, service.AffinityQuery{Destination: to,
				Label: key.Label}) {
				values[value] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(values))
}

// affinityMatters returns whether a server of this zone has a client's value of a label. It is a derived value of its
// own, so that the first server with a value wakes the clients with the value only.
func (s *Stage) affinityMatters(r *table.Reader, match AffinityMatch) bool {
	_, found := slices.BinarySearch(s.AffinityServed.Get(r, match.AffinityKey), match.Value)
	return found
}

// affinity returns the values of a client that make a difference for where policies send its traffic.
func (s *Stage) affinity(r *table.Reader, dp *resource.Object[kind.Dataplane], set PolicySet) service.Affinity {
	if set == (PolicySet{}) {
		return service.Affinity{}
	}
	values := map[string]string{}
	for _, label := range s.AffinityLabels.Get(r, set) {
		value := service.AffinityValue(dp, label)
		if value != "" && s.AffinityMatters.Get(r, AffinityMatch{AffinityKey{set, dp.Mesh, label}, value}) {
			values[label] = value
		}
	}
	return service.AffinityOf(values)
}

// AffinityWarning returns the warning about a policy whose affinity tags make more than [AffinityLimit] proxy groups;
// empty for any other.
func (s *Stage) AffinityWarning(r *table.Reader, of resource.Key) string {
	if of.Kind != balancing || !s.AffinityExceeds.Get(r, of) {
		return ""
	}
	return fmt.Sprintf("affinityTags divide the proxies into more than %d proxy groups, each with endpoint lists of "+
		"its own; they have their effect all the same. Memory and the cost of a change grow with the groups: use "+
		"labels with fewer values, such as the availability zone of a node", AffinityLimit)
}

// affinityExceeds returns whether the affinity tags of a policy divide the proxies to which it applies into more than
// [AffinityLimit] proxy groups. It reads proxies until it has found as many.
func (s *Stage) affinityExceeds(r *table.Reader, of resource.Key) bool {
	labels := s.labelsOf(r, of)
	if len(labels) == 0 {
		return false
	}
	groups := map[service.Affinity]bool{}
	for _, dp := range s.state.DataplanesBySelector.List(r, state.MeshKey(of.Mesh)) {
		key := state.ProxyKey{Mesh: of.Mesh, Name: dp.Name}
		if _, applies := s.SelectionOf(r, of, key); !applies {
			continue
		}
		set := s.outboundPolicies(r, key)
		groups[s.affinity(r, dp, set)] = true
		if len(groups) > AffinityLimit {
			return true
		}
	}
	return false
}
