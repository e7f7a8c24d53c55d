package rest

import (
	"encoding/base64"
	"hash/fnv"
	"net/http"
	"slices"

	"weft/internal/inspect"
	"weft/kind"
	"weft/resource"
)

// httpMatch is a match of a rule of a MeshHTTPRoute, with a text that no other match has.
type httpMatch struct {
	Hash  string         `json:"hash"`
	Match kind.HTTPMatch `json:"match"`
}

// httpMatches returns the matches of the routes of a proxy, each once.
func (p inspected) httpMatches() []httpMatch {
	matches, seen := []httpMatch{}, map[string]bool{}
	for i := range p.applied.Outbounds {
		route := p.applied.Outbounds[i].Route
		if route == nil {
			continue
		}
		for j := range route.Rules {
			for _, match := range route.Rules[j].Matches {
				ofRequests, ok := match.(kind.HTTPMatch)
				if !ok {
					continue
				}
				h := fnv.New64a()
				_, _ = h.Write([]byte(match.MergeKey())) // never fails
				hash := base64.RawURLEncoding.EncodeToString(h.Sum(nil))
				if !seen[hash] {
					seen[hash] = true
					matches = append(matches, httpMatch{hash, ofRequests})
				}
			}
		}
	}
	return matches
}

// outbound returns the destination of a proxy with the KRI in the path.
func (a *api) outbound(r *http.Request) (inspected, *inspect.AppliedOutbound, error) {
	p, err := a.inspectedProxy(r)
	if err != nil {
		return p, nil, err
	}
	kri := r.PathValue("kri")
	i := slices.IndexFunc(p.applied.Outbounds, func(out inspect.AppliedOutbound) bool { return out.Destination == kri })
	if i < 0 {
		return p, nil, resource.Errorf(resource.NotFound, "%s reaches no destination %s", p.dataplane.Key(), kri)
	}
	return p, &p.applied.Outbounds[i], nil
}

// routeKRIs returns the identifiers of a rule: for each policy that it is from, the KRI with the name of the rule as
// its section. The most specific policy is the first one.
func (p inspected) routeKRIs(route *inspect.AppliedRouting, rule *inspect.AppliedRouteRule) []string {
	var kris []string
	for _, item := range slices.Backward(route.Items) {
		for _, key := range rule.Policies {
			o, ok := p.find(key)
			if !ok || key.String() != item.Policy {
				continue
			}
			if kri, ok := resource.KRIOf(o.Envelope(), kind.ByName(key.Kind).Describe()); ok {
				kri.Section = rule.Name
				kris = append(kris, kri.String())
			}
		}
	}
	return kris
}

// outboundRoutes returns the route of the traffic to one destination, which is given by its KRI.
func (a *api) outboundRoutes(w http.ResponseWriter, r *http.Request) error {
	p, out, err := a.outbound(r)
	if err != nil {
		return err
	}
	type rule struct {
		KRI     string            `json:"kri"`
		Matches []kind.RouteMatch `json:"matches"`
		Conf    any               `json:"conf"`
		// Origins and Overridden are the fields of policies that the rule is from, and those that they override.
		Origins    map[string]inspect.AppliedItem   `json:"origins"`
		Overridden map[string][]inspect.AppliedItem `json:"overridden,omitempty"`
	}
	type route struct {
		Kind    string   `json:"kind"`
		Rules   []rule   `json:"rules"`
		Origins []origin `json:"origins"`
	}
	routes := []route{}
	if out.Route != nil {
		of := route{Kind: out.Route.Kind, Rules: []rule{}, Origins: []origin{}}
		for i := range out.Route.Rules {
			from := &out.Route.Rules[i]
			entry := rule{Matches: append([]kind.RouteMatch{}, from.Matches...), Conf: from.Conf, Origins: from.Origins,
				Overridden: from.Overridden}
			if kris := p.routeKRIs(out.Route, from); len(kris) > 0 {
				entry.KRI = kris[0]
			}
			of.Rules = append(of.Rules, entry)
		}
		for _, o := range p.policies(policiesOf(out.Route.AppliedConf)) {
			of.Origins = append(of.Origins, origin{kriMeta(o).KRI})
		}
		routes = append(routes, of)
	}
	return writeJSON(w, http.StatusOK, map[string]any{"routes": routes})
}

// routePolicies returns the effective confs of the requests that one rule of a route takes, which is given by the KRI
// of a policy that it is from, with the name of the rule as its section.
func (a *api) routePolicies(w http.ResponseWriter, r *http.Request) error {
	p, out, err := a.outbound(r)
	if err != nil {
		return err
	}
	wanted := r.PathValue("route")
	if out.Route != nil {
		for i := range out.Route.Rules {
			rule := &out.Route.Rules[i]
			if !slices.Contains(p.routeKRIs(out.Route, rule), wanted) {
				continue
			}
			confs := rule.Confs
			if confs == nil {
				confs = out.Confs
			}
			return writeJSON(w, http.StatusOK, map[string]any{"policies": p.confs(confs)})
		}
	}
	return resource.Errorf(resource.NotFound, "no rule of the route to %s is %s; `.../_routes` lists them",
		out.Destination, wanted)
}

// effectiveConf is the effective conf of one kind of policies.
type effectiveConf struct {
	Kind    string   `json:"kind"`
	Conf    []any    `json:"conf"`
	Origins []origin `json:"origins"`
}

func (p inspected) confs(confs []inspect.AppliedConf) []effectiveConf {
	policies := []effectiveConf{}
	for _, conf := range confs {
		of := effectiveConf{Kind: conf.Kind, Conf: []any{conf.Conf}, Origins: []origin{}}
		for _, o := range p.policies(policiesOf(conf)) {
			of.Origins = append(of.Origins, origin{kriMeta(o).KRI})
		}
		policies = append(policies, of)
	}
	return policies
}

// outboundPolicies returns the effective confs of the traffic to one destination, which is given by its KRI.
func (a *api) outboundPolicies(w http.ResponseWriter, r *http.Request) error {
	p, out, err := a.outbound(r)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, map[string]any{"policies": p.confs(out.Confs)})
}
