package preview

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"weft/internal/match"
	"weft/internal/proxy"
	"weft/internal/service"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
)

// callersOf returns the present callers of the mesh for which a place of a proxy has another result.
func (c *comparer) callersOf(before, after *proxy.Proxy) []Caller {
	old, next := guards(before), guards(after)
	var callers []Caller
	for _, section := range slices.Sorted(maps.Keys(old)) {
		b := next[section]
		if a := old[section]; b.Mesh == "" || verdictKey(a) == verdictKey(b) {
			continue
		}
		was, is := c.verdicts(old[section]), c.verdicts(b)
		for _, id := range c.callersIn(b.Mesh) {
			if allows(was[id]) != allows(is[id]) {
				callers = append(callers, Caller{section, id, was[id], is[id]})
			}
		}
	}
	return callers
}

// guards returns the places of a proxy with permissions, by the section and, at an egress, the external service.
func guards(p *proxy.Proxy) map[string]proxy.Guard {
	places := map[string]proxy.Guard{}
	if p == nil {
		return places
	}
	for i := range p.Listeners {
		places[p.Listeners[i].Section] = p.Listeners[i].Guard()
	}
	for i := range p.Chains {
		places[destinationText(p.Chains[i].Key)] = p.Chains[i].Guard()
	}
	return places
}

// verdictKey is equal for places with equal results.
func verdictKey(g proxy.Guard) string {
	if g.Permissions == nil {
		return g.Mesh
	}
	text, err := json.Marshal([]any{g.Mesh, g.TrustDomains, g.Permissions})
	if err != nil {
		panic(fmt.Sprintf("preview: %v", err)) // strings only
	}
	return string(text)
}

// verdicts returns the result for each caller of the place's mesh. Places with equal permissions share it.
func (c *comparer) verdicts(g proxy.Guard) map[string]string {
	key := verdictKey(g)
	known := c.allowed[key]
	if known == nil {
		known = map[string]string{}
		for _, id := range c.callersIn(g.Mesh) {
			known[id] = verdict(g, id)
		}
		c.allowed[key] = known
	}
	return known
}

// The results for a caller, before the deciding rule.
const (
	allowed = "allowed"
	denied  = "denied"
)

func allows(verdict string) bool { return strings.HasPrefix(verdict, allowed) }

// verdict returns the result for a caller. Without roots of its trust domain, no connection of the caller is accepted,
// whatever permissions say.
func verdict(g proxy.Guard, id string) string {
	p := g.Permissions
	if p == nil {
		return allowed + ": the proxy has no identity, so permissions have no effect"
	}
	if domain, trusted := g.Trusts(id); !trusted {
		return denied + ": the mesh does not trust the trust domain " + domain
	}
	for _, list := range []struct {
		rules  []match.Rule
		result string
	}{{p.Deny, denied}, {p.ShadowDeny, allowed}, {p.Allow, allowed}} {
		for _, rule := range list.rules {
			if rule.Has(id) || slices.Contains(rule.OtherIDs, id) {
				return list.result + " by " + rule.Origin
			}
		}
	}
	return denied + ": no rule matches"
}

// callersIn returns the SPIFFE IDs of the present callers of a mesh, sorted: those of the zone's proxies, and those of
// the services of remote zones.
func (c *comparer) callersIn(mesh string) []string {
	if known, ok := c.callers[mesh]; ok {
		return known
	}
	ids := map[string]bool{}
	for _, r := range []*table.Reader{c.before, c.after} {
		for _, dp := range c.state.Tables.DataplanesBySelector.List(r, state.MeshKey(mesh)) {
			id := c.state.Identity.Identity.Get(r, state.ProxyKey{Mesh: mesh, Name: dp.Name})
			if id != nil {
				for _, spiffeID := range id.List() {
					ids[spiffeID] = true
				}
			}
		}
		for _, o := range c.state.Tables.ServicesByMesh.List(r, state.MeshKey(mesh)) {
			for _, spiffeID := range o.Spec.SpiffeIDs() {
				ids[spiffeID] = true
			}
		}
	}

	c.callers[mesh] = slices.Sorted(maps.Keys(ids))
	return c.callers[mesh]
}

// maxFilterText bounds the text of a filter, in bytes.
const maxFilterText = 200

// filterText reads as `filter RequestHeaderModifier {"set":[{"name":"x-a","value":"b"}]}`.
func filterText(f *kind.HTTPFilter) string {
	conf := *f
	conf.Type = ""
	document, err := json.Marshal(&conf)
	var fields map[string]json.RawMessage
	if err == nil {
		err = json.Unmarshal(document, &fields)
	}
	if err != nil {
		panic(fmt.Sprintf("preview: %v", err)) // it was read from JSON
	}
	delete(fields, "type")
	text := "filter " + f.Type
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		text += " " + string(fields[name])
	}
	if len(text) > maxFilterText {
		text = strings.ToValidUTF8(text[:maxFilterText], "") + "..."
	}
	return text
}

// requestsOf compares the backends and filters of the requests to each destination.
func (c *comparer) requestsOf(before, after *proxy.Proxy) []Request {
	destinations := append(slices.Clone(c.reached(c.before, before)), c.reached(c.after, after)...)
	slices.SortFunc(destinations, service.CompareDestinations)
	var requests []Request
	for _, d := range slices.Compact(destinations) {
		old, next := c.backends(c.before, before, d), c.backends(c.after, after, d)
		matches := append(slices.Collect(maps.Keys(old)), slices.Collect(maps.Keys(next))...)
		slices.Sort(matches)
		for _, match := range slices.Compact(matches) {
			if !slices.Equal(old[match], next[match]) {
				requests = append(requests, Request{destinationText(d), match, append([]string{}, old[match]...),
					append([]string{}, next[match]...)})
			}
		}
	}
	return requests
}

// ruleText returns the match of a rule of a route as text.
func ruleText(route *service.Route, rule *service.RouteRule) string {
	switch {
	case rule.SNI != "":
		return kind.MatchOfSNI(rule.SNI).String()
	case !route.Protocol.IsHTTP():
		return "connections"
	}
	return rule.Match.String()
}

// backends returns the backends of a destination's route with their weights, and the filters, by match.
func (c *comparer) backends(r *table.Reader, p *proxy.Proxy, d service.DestinationKey) map[string][]string {
	if p == nil || !slices.Contains(c.reached(r, p), d) {
		return nil
	}
	route := c.state.Proxies.RouteOf(r, p.Group.Policies, d).Get()
	if route == nil {
		route = c.state.Services.Routes.Get(r, d)
	}
	if route == nil {
		return nil
	}
	byMatch := map[string][]string{}
	for i := range route.Rules {
		rule := &route.Rules[i]
		text := ruleText(route, rule)
		for _, backend := range rule.Backends {
			weight := ""
			if len(rule.Backends) > 1 {
				weight = fmt.Sprintf(" (weight %d)", backend.Weight)
			}
			to := "a backend that does not exist"
			if backend.Exists() {
				to = destinationText(backend.Destination)
			}
			byMatch[text] = append(byMatch[text], to+weight)
		}
		for j := range rule.Filters {
			byMatch[text] = append(byMatch[text], filterText(&rule.Filters[j]))
		}
	}
	return byMatch
}
