package inspect

import (
	"fmt"
	"maps"
	"slices"

	"weft/internal/proxy"
	"weft/internal/service"
	"weft/kind"
	"weft/resource"
)

// AppliedRouting is the route of the traffic to a destination that policies route.
type AppliedRouting struct {
	// The conf has the merged rules of the kind of policies that routes: MeshHTTPRoute or MeshTCPRoute.
	AppliedConf
	// Rules are the merged rules. A request or connection takes the first one with the most specific match; see the
	// page of the kind.
	Rules []AppliedRouteRule `json:"rules"`
}

// AppliedRouteRule is one merged rule of a route.
type AppliedRouteRule struct {
	Name    string            `json:"name"`              // "rule_0", the name of its routes in Envoy
	Matches []kind.RouteMatch `json:"matches,omitempty"` // none: all connections, or all requests
	Conf    any               `json:"conf"`
	// Origins are the fields of policies that "matches", "filters" and "backendRefs" are from.
	Origins map[string]AppliedItem `json:"origins"`
	// Overridden are the fields of other policies that the former override, the least specific first.
	Overridden map[string][]AppliedItem `json:"overridden,omitempty"`
	// OverriddenSNIs are the SNIs of its matches that another rule has, with the field of a policy that decides.
	OverriddenSNIs map[string]AppliedItem `json:"overriddenSNIs,omitempty"`
	// Backends are the destinations that share the traffic; none where the proxy itself responds.
	Backends []AppliedBackend `json:"backends,omitempty"`
	// Unresolved are the references without a destination, with the reason.
	Unresolved []string `json:"unresolved,omitempty"`
	// Confs are the effective confs of the requests of the rule, by kind.
	Confs []AppliedConf `json:"confs,omitempty"`
	// Policies are the keys of the policies that the rule is from.
	Policies []resource.Key `json:"-"`
}

// AppliedBackend is a destination with its share of the traffic of a rule.
type AppliedBackend struct {
	// Destination is its name in Envoy's configuration; empty: it does not exist, its requests get 500, and its
	// connections are closed.
	Destination string `json:"destination"`
	Weight      uint32 `json:"weight"`
}

// appliedRouting returns the route of the traffic to a destination; nil where no policy routes it.
func (rs *Reports) appliedRouting(key proxy.EffectiveKey) *AppliedRouting {
	if !key.Policies.Routes() {
		return nil
	}
	routing := rs.State.Proxies.RoutingOf(rs.r, key)
	if routing == nil {
		return nil
	}
	a := &AppliedRouting{AppliedConf: appliedConf(routing.Kind, routing.Merged, "to")}
	if routing.Kind == kind.MeshTCPRoutes.Name && routing.Route.Protocol.IsHTTP() {
		a.Notes = append(a.Notes, fmt.Sprintf("the port is %s, so requests are split, not connections",
			routing.Route.Protocol))
	}
	own := confsByKind(appliedConfs(rs.State.Proxies.MergedConfs(rs.r, key), "to"))
	for i := range routing.Rules {
		source := &routing.Rules[i]
		rule := appliedRouteRule(source)
		for j := range routing.Route.Rules {
			if r := &routing.Route.Rules[j]; r.Name == rule.Name && rule.Backends == nil {
				rule.Backends = appliedBackends(r)
			}
		}
		rule.Confs = appliedConfs(rs.State.Proxies.MergedOf(rs.r, key, source), "to")
		if fmt.Sprint(confsByKind(rule.Confs)) == fmt.Sprint(own) {
			rule.Confs = nil // those of the destination
		}
		if routing.Kind == kind.MeshTCPRoutes.Name && len(rule.Matches) > 0 && routing.Route.Protocol.IsHTTP() {
			a.Notes = append(a.Notes, rule.Name+" has no effect: requests have no SNI")
		}
		a.Rules = append(a.Rules, rule)
	}
	return a
}

// confsByKind returns the items of confs by kind.
func confsByKind(confs []AppliedConf) map[string][]AppliedItem {
	items := map[string][]AppliedItem{}
	for i := range confs {
		items[confs[i].Kind] = confs[i].Items
	}
	return items
}

func appliedRouteRule(source *proxy.RoutingRule) AppliedRouteRule {
	rule := AppliedRouteRule{Name: source.Name, Matches: source.Matches, Conf: source.Conf,
		Origins: map[string]AppliedItem{}, Policies: source.Contributors()}
	item := func(f proxy.RouteField) AppliedItem { return AppliedItem{Policy: f.Policy.String(), Item: f.Path} }
	for field, from := range source.Fields {
		rule.Origins[field] = item(from)
	}
	for _, field := range slices.Sorted(maps.Keys(source.Overridden)) {
		if rule.Overridden == nil {
			rule.Overridden = map[string][]AppliedItem{}
		}
		for _, from := range source.Overridden[field] {
			rule.Overridden[field] = append(rule.Overridden[field], item(from))
		}
	}
	for sni, by := range source.OverriddenSNIs {
		if rule.OverriddenSNIs == nil {
			rule.OverriddenSNIs = map[string]AppliedItem{}
		}
		rule.OverriddenSNIs[sni] = item(by)
	}
	for _, u := range source.Unresolved {
		rule.Unresolved = append(rule.Unresolved, fmt.Sprintf("%s: %s", u.Field, u.Reason))
	}
	return rule
}

func appliedBackends(rule *service.RouteRule) []AppliedBackend {
	var backends []AppliedBackend
	for i := range rule.Backends {
		b := AppliedBackend{Weight: rule.Backends[i].Weight}
		if rule.Backends[i].Exists() {
			b.Destination = rule.Backends[i].Destination.String()
		}
		backends = append(backends, b)
	}
	return backends
}
