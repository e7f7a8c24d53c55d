package service

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"weft/internal/policy"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// Effective are the effective confs of the traffic to a destination. The zero value has none: the defaults hold.
type Effective struct {
	Timeout        kind.TimeoutConf        `json:"MeshTimeout"`
	CircuitBreaker kind.CircuitBreakerConf `json:"MeshCircuitBreaker"`
	LoadBalancing  kind.LoadBalancingConf  `json:"MeshLoadBalancingStrategy"`
	Retry          kind.RetryConf          `json:"MeshRetry"`
	HealthCheck    kind.HealthCheckConf    `json:"MeshHealthCheck"`
}

// EffectiveOf returns the confs with their types.
func EffectiveOf(confs policy.Confs) Effective {
	var e Effective
	confs.Read(&e)
	return e
}

var toKinds = [...]policy.ToKind{
	MeshService: policy.ToMeshService, MultiZoneService: policy.ToMeshMultiZoneService,
	ExternalService: policy.ToMeshExternalService,
}

// targeted returns a destination as to items match it; nil where there is no such service. Its status and its endpoints
// leave it equal. A removed external service is targeted as before while it drains.
func (s *Stage) targeted(r *table.Reader, key DestinationKey) *policy.Destination {
	if d := s.retainedTarget(r, key); d != nil {
		return d
	}
	row := s.Row(key)
	o, ok := s.state.Find(r, resource.Key{Kind: key.Kind.String(), Mesh: row.Mesh, Name: row.Name})
	if !ok {
		return nil
	}
	d := &policy.Destination{Kind: toKinds[key.Kind], Labels: map[string]string{}}
	maps.Copy(d.Labels, o.Envelope().Labels)
	d.Labels[resource.DisplayName] = kind.DisplayNameOf(o.Envelope())
	if key.Zone != "" {
		d.Labels[resource.ZoneLabel] = key.Zone
	}
	number := strconv.Itoa(int(key.Port))
	isName := false
	for _, port := range s.PortsOf(r, key) {
		isName = isName || port.Name == number
		if port.Port == key.Port && port.Name != "" {
			d.Sections = append(d.Sections, port.Name)
		}
	}
	if !isName {
		d.Sections = append(d.Sections, number)
	}
	return d
}

// retainedTarget returns a removed external service as to items matched it; nil where it exists or does not drain.
func (s *Stage) retainedTarget(r *table.Reader, key DestinationKey) *policy.Destination {
	if key.Kind != ExternalService {
		return nil
	}
	row, ok := s.state.RetainedExternalServices.Find(r, key.Mesh, RetainedEndpointsName(s.Row(key).Name, key.Port))
	exists := func(port kind.ServicePort) bool { return port.Port == key.Port }
	if !ok || slices.ContainsFunc(s.PortsOf(r, key), exists) {
		return nil
	}
	return &policy.Destination{Kind: toKinds[key.Kind], Labels: row.Spec.Labels, Sections: row.Spec.Sections}
}

// TargetedBy returns the ports of the services that a to item is about, sorted. An item about the whole mesh has none.
func (s *Stage) TargetedBy(r *table.Reader, mesh string, to *policy.To) []DestinationKey {
	var targeted []DestinationKey
	for of, toKind := range toKinds {
		if toKind != to.Kind {
			continue
		}
		for _, key := range s.labeledAs(r, BackendQuery{Kind: DestinationKind(of), Mesh: mesh, Labels: to.Labels}) {
			for _, port := range s.Ports.Get(r, key) {
				if d := s.Targeted.Get(r, key.WithPort(port)); d != nil && to.Matches(d) {
					targeted = append(targeted, key.WithPort(port))
				}
			}
		}
	}
	slices.SortFunc(targeted, CompareDestinations)
	return targeted
}

// UntargetedReason returns why a to item is about no port of a service; empty: it is about one, or about the whole mesh
// or a route.
func (s *Stage) UntargetedReason(r *table.Reader, mesh string, to *policy.To) string {
	for of, toKind := range toKinds {
		if toKind != to.Kind || len(s.TargetedBy(r, mesh, to)) > 0 {
			continue
		}
		q := BackendQuery{Kind: DestinationKind(of), Mesh: mesh, Labels: to.Labels}
		if len(s.labeledAs(r, q)) == 0 {
			return missing(q)
		}
		return fmt.Sprintf("no %s %s has a port %s", q.Kind, ShownLabels(q.Labels), to.Section)
	}
	return ""
}
