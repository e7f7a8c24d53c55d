package inspect

import (
	"fmt"
	"slices"
	"strings"

	"weft/internal/proxy"
	"weft/internal/service"
	"weft/internal/sni"
	"weft/kind"
	"weft/resource"
)

// reachable is the condition that states whether an external service can be reached from this zone.
const reachable = "Reachable"

// endpointsExternal is the condition that states that some endpoints of an external service are no servers outside the
// mesh.
const endpointsExternal = "EndpointsExternal"

// localEndpoints returns the endpoints of an external service that no server outside the mesh can have, each with a
// description.
func (rs *Reports) localEndpoints(service *resource.Object[kind.MeshExternalService]) []string {
	var local []string
	for _, e := range service.Spec.Endpoints {
		if what := kind.LocalEndpoint(e.Address, rs.State.Tables.LocalNetworks); what != "" {
			local = append(local, fmt.Sprintf("%s (%s)", e.Address, what))
		}
	}
	return local
}

// ExternalConditions returns the conditions of an external service: of the stored resource, and those of
// [Reports.ReachabilityConditions], which are stored without their messages on Kubernetes.
func (rs *Reports) ExternalConditions(service *resource.Object[kind.MeshExternalService]) []kind.Condition {
	var conditions []kind.Condition
	if status, ok := rs.State.Tables.ExternalServiceStatuses.Find(rs.r, service.Mesh, service.Name); ok {
		for _, c := range status.Spec.Conditions {
			if c.Type != reachable && c.Type != endpointsExternal {
				conditions = append(conditions, c)
			}
		}
	}
	return append(conditions, rs.ReachabilityConditions(service)...)
}

// ReachabilityConditions returns the conditions about the reachability of an external service from this zone; none on
// global.
func (rs *Reports) ReachabilityConditions(service *resource.Object[kind.MeshExternalService]) []kind.Condition {
	if rs.State.Tables.Zone == "" {
		return nil
	}
	var conditions []kind.Condition
	if local := rs.localEndpoints(service); len(local) > 0 {
		conditions = append(conditions, kind.Condition{
			Type: endpointsExternal, Status: "False", Reason: "LocalAddress",
			Message: "zone egresses do not connect to " + strings.Join(local,
				", ") + "; use addresses outside the mesh",
		})
	}
	return append(conditions, rs.reachableFrom(service))
}

func (rs *Reports) reachableFrom(service *resource.Object[kind.MeshExternalService]) kind.Condition {
	egresses := len(rs.State.Routes.EgressRoute.Get(rs.r, service.Mesh).Egresses)
	if reason := rs.ExternalUnreachableReason(service); reason != "" {
		return kind.Condition{Type: reachable, Status: "False", Reason: "NoEgressReady", Message: reason}
	}
	return kind.Condition{
		Type: reachable, Status: "True", Reason: "EgressReady",
		Message: fmt.Sprintf("the zone egresses that are ready: %d", egresses),
	}
}

// ExternalUnreachableReason returns why no proxy of this zone reaches an external service; empty: proxies with an
// identity do.
func (rs *Reports) ExternalUnreachableReason(service *resource.Object[kind.MeshExternalService]) string {
	key := rs.State.Services.ExternalKeyOf(service).WithPort(service.Spec.Match.Port)
	d := rs.State.Services.External.Get(rs.r, key)
	return d.UnreachableReason(true)
}

// reportExternal returns the report of an external service as the proxies of this zone reach it.
func (rs *Reports) reportExternal(o *resource.Object[kind.MeshExternalService]) ServiceReport {
	match := &o.Spec.Match
	report := newServiceReport(o, []kind.ServicePort{{Port: match.Port, AppProtocol: match.Protocol}})
	used := rs.State.Tables.SNIFormat(rs.r).Name(sni.PortOf(o, match.Port))
	others := slices.DeleteFunc(sni.InAllFormats(sni.PortOf(o, match.Port)), func(name string) bool {
		return name == used
	})
	report.Ports[0].SNIs = append([]string{used}, others...)
	report.Zone = kind.OwnerOf(&o.Meta).Zone
	if status, ok := rs.State.Tables.ExternalServiceStatuses.Find(rs.r, o.Mesh, o.Name); ok {
		at := status.Spec.Places()
		report.reachedAt(at.VIPs, at.Addresses)
	}
	for _, e := range o.Spec.Endpoints {
		report.External = append(report.External, kind.HostPort(e.Address, e.Port))
	}
	report.Identities = append(report.Identities, rs.State.Routes.EgressRoute.Get(rs.r, o.Mesh).Identities...)
	report.Egresses = rs.reportEgresses(o.Mesh)
	report.Conditions = append(report.Conditions, rs.ExternalConditions(o)...)
	if rs.State.Tables.Zone != "" {
		report.Backends = &Backends{
			Servers: []Server{},
			Access:  rs.accessOutside(rs.State.Services.ExternalKeyOf(o).WithPort(match.Port)),
		}
	}
	return report
}

// accessOutside returns the allowed callers of an external service at the dialed egresses. Egresses with the same rules
// are one entry.
func (rs *Reports) accessOutside(key service.DestinationKey) []Access {
	all := []Access{}
	for _, e := range rs.State.Routes.EgressRoute.Get(rs.r, key.Mesh).Egresses {
		egress := rs.State.Proxies.Proxy.Get(rs.r, e.Proxy)
		if egress == nil {
			continue
		}
		for i := range egress.Chains {
			if chain := &egress.Chains[i]; chain.Key == key {
				all = joinAccess(all, accessBy(chain, e.Proxy.Name))
			}
		}
	}
	return all
}

func accessBy(chain *proxy.EgressChain, egress string) Access {
	rules := chain.Permissions
	access := Access{Port: chain.Key.Port, Dataplanes: []string{egress}, Policies: []string{}, Default: deniesUnmatched}
	access.Rules = &AppliedRules{appliedRules(rules.Deny), appliedRules(rules.ShadowDeny), appliedRules(rules.Allow)}
	for _, rule := range slices.Concat(rules.Deny, rules.ShadowDeny, rules.Allow) {
		policy, _, isPolicy := strings.Cut(rule.Origin, " rules[")
		if isPolicy && !slices.Contains(access.Policies, policy) {
			access.Policies = append(access.Policies, policy)
		}
	}
	return access
}

func (rs *Reports) reportEgresses(mesh string) []EgressReport {
	var reports []EgressReport
	for _, a := range rs.State.Routes.EgressesFor(rs.r, mesh).Egresses {
		reports = append(reports, EgressReport{Name: a.Name, Address: a.Listener(), Healthy: a.Healthy,
			Legacy: a.Legacy})
	}
	return reports
}
