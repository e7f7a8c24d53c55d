package push

import (
	"encoding/json"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"weft/internal/envoysim"
	"weft/internal/policy"
	"weft/internal/proxy"
	"weft/internal/service"
	"weft/internal/state"
	"weft/kind"
)

// addSources adds to an explanation of a request of a proxy the fields of policies that its route and its settings are
// from. The explanation is read from the configuration, which knows no policy.
func (w *world) addSources(from state.ProxyKey, e *envoysim.Explanation) {
	p := w.config.state.Proxies.Proxy.Get(w.r, from)
	to, ok := service.ParseDestination(e.Addressed)
	if p == nil || !ok {
		return
	}
	c := &citation{w, proxy.EffectiveKey{Policies: p.Group.Policies, Destination: to.WithLocality("")}, e, nil}
	c.confs = w.config.state.Proxies.MergedConfs(w.r, c.key)
	if c.key.Policies.Routes() {
		c.route()
	}
	for i := range e.Settings {
		c.setting(&e.Settings[i])
	}
	w.citeServers(e.SpiffeIDs.List(), e.Endpoints)
}

// citeRejections adds to the reason for which a request reaches no endpoint what the Envoys of the service reject.
func (w *world) citeRejections(e *envoysim.Explanation) {
	to, ok := service.ParseDestination(e.Addressed)
	if !ok || e.Verdict != envoysim.Unserved || to.Kind != service.MeshService {
		return
	}
	row := w.config.state.Services.Row(to)
	for _, m := range w.config.state.Services.ServiceMembers.Get(w.r, row) {
		key := state.ProxyKey{Mesh: m.Dataplane.Mesh, Name: m.Dataplane.Name}
		at := envoysim.Address{Address: m.At.Address, Port: m.At.Port}
		if message, serves := w.Rejection(key, at); message != "" && !serves {
			e.Reason += "; " + key.String() + " at " + at.String() + ": " + envoysim.RejectedText(message)
			return
		}
	}
}

// citeServers adds to the results at endpoints of this zone the fields of policies about the traffic that the servers
// receive from a client.
func (w *world) citeServers(client []string, endpoints []envoysim.EndpointVerdict) {
	for i := range endpoints {
		v := &endpoints[i]
		address, text, err := net.SplitHostPort(v.Address)
		port, failed := strconv.ParseUint(text, 10, 16)
		if err != nil || failed != nil || v.Ingress != nil || v.Egress != nil || !v.Allowed {
			continue
		}
		key, ok := w.ProxyAt(address, uint32(port))
		if p := w.config.state.Proxies.Proxy.Get(w.r, key); ok && p != nil {
			for j := range p.Listeners {
				if l := &p.Listeners[j]; l.Address == address && l.Port == uint32(port) {
					v.Received = w.received(key, l, client)
				}
			}
		}
	}
}

// received returns the fields of policies about the traffic of a client at a listener.
func (w *world) received(key state.ProxyKey, l *proxy.InboundListener, client []string) []envoysim.Setting {
	if l.Permissions == nil {
		client = nil // a plaintext inbound knows no caller
	}
	var settings []envoysim.Setting
	merged := w.config.state.Proxies.MergedAt(w.r, proxy.PlaceOf(key, key.Mesh, l.Section, nil))
	for _, of := range slices.Sorted(maps.Keys(merged)) {
		i := slices.IndexFunc(merged[of], func(callers proxy.MergedCallers) bool { return callers.Match.Has(client) })
		if i < 0 {
			continue
		}
		document, _ := json.Marshal(merged[of][i].Conf) // it was read from JSON
		policies, at := kind.ByName(of).(kind.Policy), kind.Place{Direction: kind.Received, Protocol: l.Protocol,
			Secured: true}
		for path, origin := range merged[of][i].Origins.All() {
			if policies.NoEffectReason(merged[of][i].Conf, path.String(), &at) == "" {
				settings = append(settings, envoysim.Setting{Field: of + " " + path.String(),
					Value:  strings.Trim(string(path.ValueIn(document)), `"`),
					Origin: origin.Item("rules")})
			}
		}
	}
	return settings
}

// citation is the computation of the sources of one explanation.
type citation struct {
	*world
	key   proxy.EffectiveKey
	e     *envoysim.Explanation
	confs map[string]policy.Merged // of the request
}

// route adds the sources of the route, and uses the confs of its rule.
func (c *citation) route() {
	routing := c.config.state.Proxies.RoutingOf(c.r, c.key)
	if routing == nil {
		return
	}
	for i := range routing.Rules {
		if rule := &routing.Rules[i]; c.takes(rule, routing) {
			c.confs = c.config.state.Proxies.MergedOf(c.r, c.key, rule)
			c.rule(rule, routing.Rules)
			return
		}
	}
	var items []string
	for _, origin := range routing.Merged.Parts {
		items = append(items, origin.Item("to"))
	}
	detail := "no rule matches, so the request goes to the service itself"
	if routing.Route.Last().Name == proxy.UnmatchedRule {
		detail = "no rule matches, so the proxy rejects the request"
	}
	c.addSource("match", strings.Join(items, ", "), detail)
}

// takes reports whether the request takes a rule. Routes in Envoy have its name, and a suffix for some methods.
// Connections take a rule by the match of their SNI.
func (c *citation) takes(rule *proxy.RoutingRule, routing *proxy.Routing) bool {
	if routing.Kind != kind.MeshTCPRoutes.Name || c.e.Route != "" {
		return c.e.Route == rule.Name || strings.HasPrefix(c.e.Route, rule.Name+"_")
	}
	if c.e.SNIMatch == "" {
		return len(rule.Matches) == 0
	}
	return slices.ContainsFunc(rule.Matches, func(m kind.RouteMatch) bool { return m.MergeKey() == c.e.SNIMatch })
}

// rule adds the sources of the rule that the request takes, one of several.
func (c *citation) rule(rule *proxy.RoutingRule, all []proxy.RoutingRule) {
	for _, step := range []struct{ name, field string }{{"match", "matches"}, {"filters", "filters"},
		{"backends", "backendRefs"}} {
		from, ok := rule.Fields[step.field]
		if !ok {
			continue
		}
		var matches []string
		for i := range rule.Matches {
			if step.field == "matches" {
				matches = append(matches, rule.Matches[i].String())
			}
		}
		c.addSource(step.name, from.String(), strings.Join(matches, " or "))
		for _, former := range rule.Overridden[step.field] {
			c.addSource(envoysim.Overrides, former.String(), "")
		}
		if step.field == "matches" {
			c.overridden(all)
		}
	}
	for _, u := range rule.Unresolved {
		c.addSource("unresolved", u.Field.String(), u.Reason)
	}
}

// overridden adds the matches of the other rules with the SNI of the connection, which its rule overrides.
func (c *citation) overridden(rules []proxy.RoutingRule) {
	for i := range rules {
		if _, ok := rules[i].OverriddenSNIs[c.e.SNIMatch]; ok {
			c.addSource(envoysim.Overrides, rules[i].Fields["matches"].String(), "SNI "+c.e.SNIMatch)
		}
	}
}

func (c *citation) addSource(step, field, detail string) {
	c.e.Sources = append(c.e.Sources, envoysim.Source{Step: step, Field: field, Detail: detail})
}

// setting adds the origin of a setting. The connections to a backend have the confs of the backend, and all others
// those of the request.
func (c *citation) setting(s *envoysim.Setting) {
	of, field, _ := strings.Cut(s.Field, " ")
	confs := c.confs
	if field == "connectionTimeout" {
		name := s.Destination
		if name == "" {
			name = c.e.Destination
		}
		backend, ok := service.ParseDestination(name)
		if !ok {
			return
		}
		confs = c.config.state.Proxies.MergedConfs(c.r,
			proxy.EffectiveKey{Policies: c.key.Policies, Destination: backend.WithLocality("")})
	}
	conf, ok := confs[of]
	if !ok {
		return
	}
	protocol := "http."
	if c.config.state.Services.ProtocolOf(c.r, c.key.Destination) == kind.GRPC {
		protocol = "grpc."
	}
	for path, origin := range conf.Origins.All() {
		if text := path.String(); text == field || of == kind.MeshRetries.Name && text == protocol+field {
			s.Origin = origin.Item("to")
		}
	}
}
