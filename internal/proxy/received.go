package proxy

import (
	"strings"

	"weft/internal/policy"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// PlaceKey identifies a place where a proxy receives connections: a listener of inbounds, the listener of a zone
// ingress, or a filter chain of a zone egress.
type PlaceKey struct {
	Proxy state.ProxyKey
	// Mesh is the mesh of the policies. A ZoneEgress has chains of several meshes.
	Mesh string
	// Section is the name of the section, or several joined with "+", where they share a listener.
	Section string
	// SNIs are those of a filter chain, joined with ","; empty for another place.
	SNIs string
}

// PlaceOf returns the key of a place.
func PlaceOf(proxy state.ProxyKey, mesh, section string, snis []string) PlaceKey {
	return PlaceKey{proxy, mesh, section, strings.Join(snis, ",")}
}

// Places returns the places of a proxy that receive connections about which a policy has a conf.
func (p *Proxy) Places() []PlaceKey {
	var places []PlaceKey
	add := func(confs policy.Confs, mesh, section string, snis []string) {
		if confs != (policy.Confs{}) {
			places = append(places, PlaceOf(p.Key, mesh, section, snis))
		}
	}
	for i := range p.Listeners {
		add(p.Listeners[i].Confs, p.Key.Mesh, p.Listeners[i].Section, nil)
	}
	for i := range p.Ingresses {
		add(p.Ingresses[i].Confs, p.Key.Mesh, p.Ingresses[i].Section, nil)
	}
	for i := range p.Chains {
		c := &p.Chains[i]
		add(c.Confs, c.Key.Mesh, c.Section, c.SNIs)
	}
	return places
}

// Received are the effective confs of the traffic at a place: for each kind, the confs by caller, the most specific
// match first. The first one that matches a caller is all that applies to it; without one, the defaults hold. Confs of
// more specific matches have the values of those that cover them.
type Received struct {
	Timeout Callers[kind.TimeoutConf] `json:"MeshTimeout"`
	TLS     Callers[kind.TLSConf]     `json:"MeshTLS"`
	// CircuitBreaker has one conf, of all callers.
	CircuitBreaker Callers[kind.CircuitBreakerConf] `json:"MeshCircuitBreaker"`
	RateLimit      Callers[kind.RateLimitConf]      `json:"MeshRateLimit"`
	Faults         Callers[kind.FaultConf]          `json:"MeshFaultInjection"`
}

// Confs are effective confs by value.
type Confs = policy.Confs

// Match is a match of callers.
type Match = policy.Match

// ReceivedOf returns the confs with their types.
func ReceivedOf(confs policy.Confs) Received {
	var received Received
	confs.Read(&received)
	return received
}

// Callers are confs by caller, the most specific match first.
type Callers[C any] []CallerConf[C]

// CallerConf is the conf of the callers of a match.
type CallerConf[C any] struct {
	Match policy.Match `json:"match"`
	Conf  C            `json:"conf"`
}

// All returns the conf that holds for every caller that has no other; empty where there is none.
func (c Callers[C]) All() C {
	var all C
	if n := len(c); n > 0 && c[n-1].Match.AllCallers() {
		all = c[n-1].Conf
	}
	return all
}

// Some returns the confs of some callers, the most specific match first.
func (c Callers[C]) Some() Callers[C] {
	if n := len(c); n > 0 && c[n-1].Match.AllCallers() {
		return c[:n-1]
	}
	return c
}

// MergedCallers is the effective conf of the callers of a match, with its origins.
type MergedCallers struct {
	Match policy.Match
	policy.Merged
}

// MergedAt returns the effective confs of the traffic at a place with their origins, by kind, the most specific match
// first.
func (s *Stage) MergedAt(r *table.Reader, at PlaceKey) map[string][]MergedCallers {
	merged := map[string][]MergedCallers{}
	for _, of := range s.InboundKinds.Get(r, at.Mesh) {
		plan := s.state.PolicyRows[of].Plan
		for _, matched := range policy.Inbound(s.partsAt(r, of, at)) {
			merged[of] = append(merged[of], MergedCallers{matched.Match, plan.Merge(matched.Parts)})
		}
	}
	return merged
}

// partsAt returns the rules of a kind about a place, in ascending order.
func (s *Stage) partsAt(r *table.Reader, of string, at PlaceKey) []policy.Part {
	selected := s.Selections.Get(r, SelectionKey{PoliciesKey{of, at.Mesh}, at.Proxy})
	return policy.RulesAt(selected, s.partsIn(r), at.Section, strings.Split(at.SNIs, ","))
}

// partsIn returns how to get the parts of a policy.
func (s *Stage) partsIn(r *table.Reader) func(resource.Key) []policy.Part {
	return func(of resource.Key) []policy.Part { return s.state.PolicyRows[of.Kind].Parts(r, of.Mesh, of.Name) }
}

// received returns the effective confs of the traffic at a place, by value: a changed origin leaves them equal.
func (s *Stage) received(r *table.Reader, at PlaceKey) policy.Confs {
	confs := map[string]any{}
	for of, callers := range s.MergedAt(r, at) {
		byCaller := make([]CallerConf[any], len(callers))
		for i := range callers {
			byCaller[i] = CallerConf[any]{callers[i].Match, callers[i].Conf}
		}
		confs[of] = byCaller
	}
	return policy.ConfsOf(confs)
}

// receivedAt returns the effective confs of the traffic at a place.
func (s *Stage) receivedAt(r *table.Reader, at PlaceKey) policy.Confs {
	if len(s.InboundKinds.Get(r, at.Mesh)) == 0 {
		return policy.Confs{}
	}
	return s.Received.Get(r, at)
}
