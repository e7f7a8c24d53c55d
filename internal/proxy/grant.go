package proxy

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"weft/internal/policy"
	"weft/internal/service"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// OperatorGrant is a service to which an operator's route sends requests for services of a namespace. So routes of this
// namespace may do the same.
type OperatorGrant struct {
	Namespace string
	To        service.DestinationKey // without a port
}

// grantOf returns why a route may not send to a service; empty: it may. A producer's route applies to all clients of
// its services, so the owner of its namespace would send them, with their identities, to services of others. It needs a
// grant: a ReferenceGrant in the namespace of the service, or a route of an operator that sends to the service too.
//
// Routes of operators, and those of consumers, which apply to Pods of their own namespace, need none. Routes that are
// made from routes of the Gateway API have been checked there. until is the end of the grace of a route that needs a
// grant and was stored before the rule.
func (s *Stage) grantOf(r *table.Reader, of resource.Any, ref *kind.RouteBackendRef,
	to service.DestinationKey) (reason string, until time.Time) {
	meta := of.Envelope()
	if meta.Label(policy.RoleLabel) != policy.ProducerRole || meta.Label(kind.ManagedBy) == kind.GeneratedBy {
		return "", until
	}
	d := s.services.Targeted.Get(r, to)
	if d == nil {
		return "", until
	}
	g := grantSought{Stage: s, r: r, of: of.Key(), from: meta.Label(kind.NamespaceLabel), to: to,
		name: d.Labels[kind.DisplayName], namespace: d.Labels[kind.NamespaceLabel]}
	if g.isOwn() || g.ofNamespace() || g.ofOperator() {
		return "", until
	}
	stored := kind.GraceRouteOf(of.Key(), ref.Kind, policy.BackendLabels(meta, ref))
	if end, goesOn := s.state.RouteGrace(r, stored); goesOn {
		until = end.Time
	}
	return g.advice(), until
}

// grantSought is a reference of a producer's route to a service.
type grantSought struct {
	*Stage
	r               *table.Reader
	of              resource.Key // the route
	from            string       // its namespace
	to              service.DestinationKey
	name, namespace string // of the service
}

// isOwn reports whether the service is of the namespace of the route. Namespaces with one name are one in all zones. A
// MeshMultiZoneService is of the only namespace whose services it has.
func (g *grantSought) isOwn() bool {
	if g.to.Kind != service.MultiZoneService {
		return g.to.Kind == service.MeshService && g.namespace == g.from
	}
	o, ok := g.state.MultiZoneServices.Find(g.r, g.to.Mesh, g.services.Row(g.to).Name)
	if !ok {
		return false
	}
	selector := &o.Spec.Selector
	return selector.MeshService != nil && selector.MeshService.MatchLabels[kind.NamespaceLabel] == g.from ||
		!selector.OfEveryNamespace() && slices.Equal(selector.Namespaces, []string{g.from})
}

// ofNamespace reports whether a ReferenceGrant grants the reference: of the service's namespace, in its zone. One for a
// service of operators, which has no zone, is of this zone's system namespace.
func (g *grantSought) ofNamespace() bool {
	zone, namespace := g.to.Zone, g.namespace
	if g.to.Kind != service.MeshService {
		zone, namespace = g.state.Zone, g.state.SystemNamespace
	}
	if namespace == "" {
		return false
	}
	grants := func(grant kind.ReferenceGrant) bool {
		return grant.Namespace == namespace && grant.FromKind == g.of.Kind && grant.FromNamespace == g.from &&
			grant.ToKind == g.to.Kind.String() && (grant.ToName == "" || grant.ToName == g.name)
	}
	for _, row := range g.state.ReferenceGrantsByMesh.List(g.r, state.MeshKey(g.to.Mesh)) {
		if g.state.ZoneOf(&row.Meta) == zone && slices.ContainsFunc(row.Spec.Grants, grants) {
			return true
		}
	}
	return false
}

func (g *grantSought) ofOperator() bool {
	return slices.Contains(g.OperatorGrants.Get(g.r, g.to.Mesh), OperatorGrant{g.from, g.to.WithPort(0)})
}

// advice returns the reason, with the grant to write.
func (g *grantSought) advice() string {
	owner, group, of := "an operator", "kuma.io", g.to.Kind.String()
	namespace := cmp.Or(g.state.SystemNamespace, "the system namespace")
	if g.to.Kind == service.MeshService && g.namespace != "" {
		owner, namespace = "its owner", g.namespace
		group, of = `""`, "Service"
	}
	return fmt.Sprintf("no grant lets the routes of the namespace %s send its clients to %s %s; %s writes a "+
		"ReferenceGrant in the namespace %s with from {group: kuma.io, kind: %s, namespace: %s} and to {group: %s, "+
		"kind: %s, name: %s}, or an operator writes the same route in the system namespace", g.from, g.to.Kind,
		g.to.Service, owner, namespace, g.of.Kind, g.from, group, of, g.name)
}

// operatorGrants returns what the routes of operators in a mesh grant, sorted.
func (s *Stage) operatorGrants(r *table.Reader, mesh string) []OperatorGrant {
	var grants []OperatorGrant
	for _, of := range routeKinds {
		rows := s.state.PolicyRows[of]
		for _, p := range rows.List(r, mesh) {
			o, ok := s.state.Find(r, p.Key)
			if !ok || !isOfOperators(o) {
				continue
			}
			for _, part := range rows.Parts(r, mesh, p.Key.Name) {
				grants = append(grants, s.grantsOfPart(r, o, &part)...)
			}
		}
	}
	slices.SortFunc(grants, func(a, b OperatorGrant) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), service.CompareDestinations(a.To, b.To))
	})
	return slices.Compact(grants)
}

// isOfOperators reports whether operators wrote a policy: one of the system namespace, or outside Kubernetes.
func isOfOperators(o resource.Any) bool {
	role := o.Envelope().Label(policy.RoleLabel)
	return role == "" || role == policy.SystemRole
}

// grantsOfPart returns what an item of an operator's route grants.
func (s *Stage) grantsOfPart(r *table.Reader, of resource.Any, part *policy.Part) (grants []OperatorGrant) {
	var namespaces []string
	for _, d := range s.services.TargetedBy(r, of.Envelope().Mesh, part.To) {
		if about := s.services.Targeted.Get(r, d); about != nil && about.Labels[kind.NamespaceLabel] != "" {
			namespaces = append(namespaces, about.Labels[kind.NamespaceLabel])
		}
	}
	for _, ref := range kind.BackendRefs(part.Conf) {
		for _, http := range []bool{true, false} {
			to, unresolved := s.services.BackendOf(r, backendQuery(of, ref, http))
			if unresolved != "" {
				continue
			}
			for _, namespace := range namespaces {
				grants = append(grants, OperatorGrant{namespace, to.WithPort(0)})
			}
		}
	}
	return grants
}
